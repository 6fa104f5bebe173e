"""What every kind of operation has at hand, and what it promises."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.registry.operation_log import Operation, Operations
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.savepoints.copying import ProgressCallback

_TELL_S: Final = 0.5
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class OperationContext:
    """What an operation works with.

    Attributes:
        home: The state home.
        registry: Its jobs.
        operations: Where steps are noted.
        clock: The time in epoch milliseconds.
        closing: Set when the process is about to end; who waits for something gives up then.
        chance: So many random bytes.
    """

    home: StateHome
    registry: Registry
    operations: Operations
    clock: Callable[[], int]
    closing: threading.Event = field(default_factory=threading.Event)
    chance: Callable[[int], bytes] = os.urandom

    @property
    def control(self) -> Control:
        """The jobs, from outside."""
        return Control(self.home, self.clock)

    def details(self, operation: Operation) -> JobDetails:
        """The job that an operation is about.

        Raises:
            NotFound: There is none.
        """
        return self.control.details(operation.job or "", batches=1)

    def teller(self, operation: Operation) -> ProgressCallback:
        """Shows how far an operation is, now and then."""
        last = 0.0

        def tell(done: int, total: int, what: str) -> None:
            nonlocal last
            if self.closing.is_set():
                raise Unavailable("the server is ending", hint="the next one finishes this, or undoes it")
            now = time.monotonic()
            if now - last >= _TELL_S:
                last = now
                self.operations.tell(operation, done, total, what)

        return tell

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until something holds.

        Raises:
            Unavailable: The time is up, or the server ends.
        """
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise Unavailable(f"it has not come to this: {what}", found=f"nothing for {timeout_s:.0f} s")
            if self.closing.wait(LOOK_S):
                raise Unavailable("the server is ending", hint="the next one finishes this, or undoes it")


class Verb(Protocol):
    """A kind of operation."""

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Do it, and say what came of it.

        Raises:
            HoldfastError: It failed, and what was begun is undone.
        """

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Finish what a process that was killed has begun, and say what came of it.

        Raises:
            HoldfastError: It was undone, or there was nothing to undo; the error says which.
        """


def undone(operation: Operation, what: str) -> HoldfastError:
    """The error of an operation that a killed process has begun and nobody can finish."""
    return Conflict(
        "the server was killed in the middle of this, and it was undone",
        where=operation.operation_id,
        found=what,
        hint="ask for it again",
    )
