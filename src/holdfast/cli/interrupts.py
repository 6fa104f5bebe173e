"""Detection of Ctrl-C behind other errors, such as that of an interrupted import."""

from __future__ import annotations

# The C module of `signal`, which is available earlier; see `holdfast.__main__`.
import _signal as signal  # type: ignore[import-not-found]  # it is in no stub
from types import FrameType
from typing import Final

# The interpreter's own import files.
_IMPORTING: Final = "<frozen importlib"
_LATER_S: Final = 0.001
_came: list[int] = []


def remember() -> None:
    """Install a handler that raises KeyboardInterrupt and records it for `stands_for_one`."""
    _came.clear()
    signal.signal(signal.SIGINT, _raise)


def is_one(error: BaseException | None) -> bool:
    """Return whether an error is a KeyboardInterrupt, or was raised from one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def stands_for_one(error: BaseException) -> bool:
    """Return whether an unhandled error was caused by Ctrl-C."""
    return bool(_came) or is_one(error)


def _raise(number: int, frame: FrameType | None) -> None:
    _came.append(number)
    if frame is not None and frame.f_code.co_filename.startswith(_IMPORTING):
        # An exception raised during an import may be lost in a callback; raise it a moment later.
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, _LATER_S)
        return
    raise KeyboardInterrupt
