"""Ctrl-C, remembered: an import in C that it breaks off fails with an error that names no interrupt."""

from __future__ import annotations

# What `signal` is made of, and here before it; see `holdfast.__main__`.
import _signal as signal  # type: ignore[import-not-found]  # it is in no stub
from types import FrameType
from typing import NoReturn

_came: list[int] = []


def remember() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as it did, and `stands_for_one` remembers it."""
    _came.clear()
    signal.signal(signal.SIGINT, _raise)


def is_one(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or was raised from it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def stands_for_one(error: BaseException) -> bool:
    """Whether an error that nothing has answered comes from Ctrl-C, by its causes or by its time."""
    return bool(_came) or is_one(error)


def _raise(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as handlers are called
    _came.append(number)
    raise KeyboardInterrupt
