"""One driver of a job as its supervisor sees it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from holdfast.config.units import counted
from holdfast.errors import HoldfastError
from holdfast.jobs.failures import summary as failures
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import Finished, JobDefined, JobFailed, Refused, Stopped, kind_of
from holdfast.model import Failure


@dataclass(slots=True)
class _Lateness:
    """How late the batches of one query are.

    Attributes:
        since: When the batch that runs has begun; None where none does.
        times: How many timeouts it has passed.
        late: Whether anything since the last commit has passed one.
        row: The late batches in a row that were committed before.
    """

    since: float | None = None
    times: int = 0
    late: bool = False
    row: int = 0


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
    now: Callable[[], float] = time.monotonic
    _lateness: defaultdict[str, _Lateness] = field(default_factory=lambda: defaultdict(_Lateness))

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
        batch = self._lateness[query]
        batch.since, batch.times = self.now() if busy else None, 0

    def has_committed(self, query: str) -> None:
        """Note a batch; if the query is still busy, it is with the next one."""
        self.batches += 1
        self.committed.add(query)
        batch = self._lateness[query]
        batch.row = batch.row + 1 if batch.late else 0
        batch.late, batch.times = False, 0
        if batch.since is not None:
            batch.since = self.now()

    def too_slow(self, definition: JobDefined, say: Callable[..., None]) -> bool:
        """Whether batches ran too long too often, which is then the failure; `say` is told of each.

        Late batches in a row are counted; one that hangs counts again with each further timeout.
        """
        timeout_ms = definition.timeout_ms
        for query, batch in () if timeout_ms is None else self._newly_late(timeout_ms):
            say("slow", f"query {query}: a batch runs longer than the checkpoint timeout")
            if batch.row + batch.times > definition.tolerable_failures:
                line = f"a batch ran for {batch.times} times {timeout_ms} ms without a commit"
                if batch.row:
                    line += f", after {counted(batch.row, 'late batch')}"
                self.failure = Failure("checkpoint", "timeout", line, query=query, cause="resources")
                return True
        return False

    def _newly_late(self, timeout_ms: int) -> Iterator[tuple[str, _Lateness]]:
        """Queries whose batch has run a further time as long as it may."""
        for query, batch in self._lateness.items():
            times = 0 if batch.since is None else int((self.now() - batch.since) * 1000 / timeout_ms)
            if times > batch.times:
                batch.times, batch.late = times, True
                yield query, batch
