"""One driver of a job as its supervisor sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError
from holdfast.jobs.failures import summary as failures
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import Finished, JobDefined, JobFailed, Refused, Stopped, kind_of
from holdfast.model import Failure


@dataclass(slots=True)
class DriverAttempt:
    """One driver while it runs."""

    process: DriverProcess
    number: int = 0
    recovers: bool = False
    ending: str | None = None
    failure: Failure | None = None
    refusal: HoldfastError | None = None
    failed_ms: int | None = None
    leads: bool = True
    until_s: float = 0.0
    batches: int = 0
    committed: set[str] = field(default_factory=set)
    _busy_since: dict[str, float] = field(default_factory=dict)
    _slow: dict[str, int] = field(default_factory=dict)

    def ended(self, message: Finished | Stopped | JobFailed | Refused) -> None:
        """Note the last message of the driver."""
        if isinstance(message, Refused):
            self.refusal = message.error
        elif isinstance(message, JobFailed):
            self.failure, self.failed_ms = message.failure, message.at_ms
        else:
            self.ending = kind_of(message)

    def end_for(self, error: HoldfastError | OSError, *, may_pass: bool = False) -> None:
        """End the driver for an error here: a refusal, or a file that could not be made, which may pass.

        Args:
            error: The error.
            may_pass: Whether an error of ours may pass too.
        """
        if isinstance(error, HoldfastError) and may_pass:
            self.failure = failures.from_exception(error, str(error), label=failures.START)
        elif isinstance(error, HoldfastError):
            self.refusal = error
        else:
            self.failure = failures.not_begun(error)
        self.process.kill()

    def busy(self, query: str, *, busy: bool) -> None:
        """Note that a query has begun a batch, or ended one."""
        if busy:
            self._busy_since[query] = time.monotonic()
        else:
            self._busy_since.pop(query, None)

    def has_committed(self, query: str) -> None:
        """Note a batch; if the query is still busy, it is with the next one."""
        self.batches += 1
        self.committed.add(query)
        if query in self._busy_since:
            self._busy_since[query] = time.monotonic()

    def too_slow(self, definition: JobDefined, say: Callable[..., None]) -> bool:
        """Whether batches ran too long too often, which is then the failure; `say` is told of each."""
        timeout_ms = definition.timeout_ms
        for query, late in () if timeout_ms is None else self.newly_slow(timeout_ms):
            say("slow", f"query {query}: a batch runs longer than the checkpoint timeout")
            if late > definition.tolerable_failures:
                line = f"a batch ran for {late} times {timeout_ms} ms without a commit"
                self.failure = Failure("checkpoint", "timeout", line, query=query, cause="resources")
                return True
        return False

    def newly_slow(self, timeout_ms: int) -> Iterator[tuple[str, int]]:
        """Queries whose batch has run a further time as long as it may, with how many times by now."""
        for query, since in self._busy_since.items():
            late = int((time.monotonic() - since) * 1000 / timeout_ms)
            if late > self._slow.get(query, 0):
                self._slow[query] = late
                yield query, late
