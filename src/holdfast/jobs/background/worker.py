"""What a supervisor does beside its job, on a thread of its own: it may fail, and the job goes on."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import HoldfastError, Internal
from holdfast.extras import missing_package
from holdfast.jobs.events import Event

_NICE: Final = 10


class BackgroundWorker:
    """Runs one piece of work after another on a thread that gives way to everybody else.

    Args:
        name: The thread's name.
        step: Does what is due now, and says in how many seconds there may be more; None until `wake`.
        may: Asked before each step; if it says no, nothing is done until `wake`.
    """

    def __init__(
        self, name: str, step: Callable[[], float | None], may: Callable[[], bool] = lambda: True
    ) -> None:
        self._step = step
        self._may = may
        self._abandoned = False
        self._wake = threading.Event()
        self._closing = False
        self._heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; called again, it does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def wake(self) -> None:
        """Let it look at once what is due."""
        self._wake.set()

    def say(self, kind: str, text: str, **facts: Any) -> None:
        """Leave word for the supervisor's own thread."""
        self._heard.put(Event(kind, text, facts))

    def heard(self) -> list[Event]:
        """What was said since the last call."""
        notices = []
        with suppress(queue.Empty):
            while True:
                notices.append(self._heard.get_nowait())
        return notices

    @property
    def alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread.is_alive()

    def close(self, timeout_s: float) -> None:
        """Let it do what is due now, and end; what takes longer ends with the process."""
        if self.alive:
            self._closing = True
            self._wake.set()
            self._thread.join(timeout_s)

    def abandon(self) -> None:
        """Let it do nothing more. A step that is under way goes on to its end, and is not waited for."""
        self._abandoned = True
        self._closing = True
        self._wake.set()

    def _run(self) -> None:
        give_way()
        pause: float | None = None
        while True:
            self._wake.wait(pause)
            # In this order: what is asked for after the look wakes it once more.
            self._wake.clear()
            closing = self._closing
            pause = None if self._abandoned or not self._may() else self._step()
            if closing:
                return


def error_of(error: Exception) -> HoldfastError:
    """An error as one that can be told."""
    if isinstance(error, HoldfastError):
        return error
    return missing_package(error) or Internal(
        "something went wrong inside Holdfast", found=f"{type(error).__name__}: {error}"
    )


def one_line(error: HoldfastError) -> str:
    """An error in one line."""
    return " ".join(line.strip() for line in str(error).splitlines())


class Pace:
    """Keeps what is done again and again to a small part of the time.

    Args:
        share: The part, such as 0.05.
        longest_s: However long it took, no pause is longer.
        shortest_s: However quick it was, no pause is shorter.
    """

    def __init__(self, share: float, longest_s: float, shortest_s: float = 0.0) -> None:
        self._share = share
        self._longest_s = longest_s
        self._shortest_s = shortest_s
        self._next = 0.0

    def wait_s(self) -> float:
        """How long to wait before it may be done again."""
        return max(self._next - time.monotonic(), 0.0)

    def took(self, seconds: float) -> None:
        """Say how long it took."""
        pause = min(seconds * (1 / self._share - 1), self._longest_s)
        self._next = time.monotonic() + max(pause, self._shortest_s)


def give_way() -> None:
    """Let everybody else go first, where threads have priorities of their own, as Linux gives them."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
