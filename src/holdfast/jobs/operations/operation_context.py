"""What every kind of operation has at hand, and what it promises."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.registry.operation_arguments import Arguments
from holdfast.jobs.registry.operation_log import Operation, Operations
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome

A = TypeVar("A", bound=Arguments)

_TELL_S: Final = 0.5
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class OperationContext(Generic[A]):
    """One operation, and what it works with.

    Attributes:
        operation: The operation, as it is written down.
        wanted: Its arguments.
        home: The state home.
        registry: Its jobs.
        operations: Where steps are noted.
        clock: The time in epoch milliseconds.
        closing: Set when the process is about to end; who waits for something gives up then.
        chance: So many random bytes.
    """

    operation: Operation
    wanted: A
    home: StateHome
    registry: Registry
    operations: Operations
    clock: Callable[[], int]
    closing: threading.Event
    chance: Callable[[int], bytes] = os.urandom

    @property
    def control(self) -> Control:
        """The jobs, from outside."""
        return Control(self.home, self.clock)

    def details(self) -> JobDetails:
        """The job that the operation is about.

        Raises:
            NotFound: There is none.
        """
        return self.control.details(self.operation.job or "", batches=1)

    def teller(self) -> ProgressCallback:
        """Shows how far the operation is, now and then."""
        last = 0.0

        def tell(done: int, total: int, what: str) -> None:
            nonlocal last
            if self.closing.is_set():
                raise _server_ends()
            now = time.monotonic()
            if now - last >= _TELL_S:
                last = now
                self.operations.tell(self.operation, done, total, what)

        return tell

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until something holds.

        Raises:
            Unavailable: The time is up, or the server ends.
        """
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"timed out waiting until {what}",
                    found=f"not so after {timeout_s:.0f} s",
                    hint="see what the job does with `holdfast status`, then ask for this again",
                )
            if self.closing.wait(LOOK_S):
                raise _server_ends()


class Verb(Protocol[A]):
    """A kind of operation."""

    def run(self, work: OperationContext[A]) -> Mapping[str, Any]:
        """Do it, and give its result.

        Raises:
            HoldfastError: It failed, and what was begun is undone.
        """

    def recover(self, work: OperationContext[A]) -> Mapping[str, Any]:
        """Finish what a process that was killed has begun, and give its result.

        Raises:
            HoldfastError: It was undone, or there was nothing to undo; the error says which.
        """


class RepeatableVerb(Verb[A], Protocol[A]):
    """A kind of operation that changes nothing: a killed one is done again."""

    def recover(self, work: OperationContext[A]) -> Mapping[str, Any]:
        """Do it again."""
        return self.run(work)


def undone(operation: Operation, what: str) -> HoldfastError:
    """The error of an operation that a killed process has begun and nobody can finish."""
    return Conflict(
        "the server was killed in the middle of this, and it was undone",
        where=operation.operation_id,
        found=what,
        hint="ask for it again",
    )


def no_query_yet(job: str) -> Conflict:
    """The error for a job of which no query has started."""
    return Conflict(
        f"job {job!r} has not started a query yet",
        found="no query",
        hint=f"see `holdfast status {job}`, and try again when it runs",
    )


def no_such_query(query: str, queries: Iterable[str]) -> Invalid:
    """The error for a query that a job does not have."""
    return Invalid(
        "the job has no such query",
        found=query,
        expected=", ".join(queries) or "no query",
        hint="see the job's queries with `holdfast status JOB`",
    )


def _server_ends() -> Unavailable:
    return Unavailable("the server is ending", hint="the next one finishes this, or undoes it")
