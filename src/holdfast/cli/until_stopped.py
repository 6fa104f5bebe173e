"""Verbs that go on until somebody ends them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """The event is set by Ctrl-C or SIGTERM, so that work is finished; a second one ends it at once."""
    stopped = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
