"""Ctrl-C, remembered: an import in C that it breaks off fails with an error that names no interrupt."""

from __future__ import annotations

# What `signal` is made of, and here before it; see `holdfast.__main__`.
import _signal as signal  # type: ignore[import-not-found]  # it is in no stub
from types import FrameType
from typing import Final

# The files of the interpreter's own that import.
_IMPORTING: Final = "<frozen importlib"
_LATER_S: Final = 0.001
_came: list[int] = []


def remember() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as it did, and `stands_for_one` remembers it."""
    _came.clear()
    signal.signal(signal.SIGINT, _raise)


def is_one(error: BaseException | None) -> bool:
    """Return whether an error is Ctrl-C, or was raised from it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def stands_for_one(error: BaseException) -> bool:
    """Return whether an unhandled error comes from Ctrl-C, by its causes or by its time."""
    return bool(_came) or is_one(error)


def _raise(number: int, frame: FrameType | None) -> None:
    _came.append(number)
    if frame is not None and frame.f_code.co_filename.startswith(_IMPORTING):
        # What is raised there may be lost in a callback, with a traceback: a moment later it is not.
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, _LATER_S)
        return
    raise KeyboardInterrupt
