"""A planned handover: between two batches, a driver with the job file as it is now takes over.

The running driver stops only once the new one is warm, so that code that does not start leaves the job as it
is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.jobs.events import Say
from holdfast.jobs.operation_verbs import restart_undone
from holdfast.jobs.processes.protocol import JobDefined
from holdfast.jobs.registry.operation_log import RESTART, Operation, Operations
from holdfast.jobs.rescaler import owner_of, refuse
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.standby_driver import StandbyDriver
from holdfast.quantities import rounded_duration

_PATIENCE_S: Final = 300.0


class Handover:
    """The planned handovers of one job, at most one at a time.

    Args:
        home: The state home.
        job: The job's name.
        standby: The driver that takes over.
        clock: Returns epoch milliseconds.
        now: A monotonic clock.
        say: Reports events.
    """

    def __init__(
        self,
        home: StateHome,
        job: str,
        standby: StandbyDriver,
        clock: Callable[[], int],
        now: Callable[[], float],
        say: Say,
    ) -> None:
        self._job = job
        self._standby = standby
        self._clock = clock
        self._now = now
        self._say = say
        self._operations = Operations(home)
        self._requested: list[Operation] = []
        self._began_s = 0.0
        self._stopped_s: float | None = None
        self._warm_ms = 0

    @property
    def under_way(self) -> bool:
        """True if a new driver is to take over."""
        return bool(self._requested)

    def recover(self) -> None:
        """Fail what a former supervisor was asked for: this one starts the job's file as it is now."""
        for left in self._operations.running():
            if left.verb == RESTART and left.owner == owner_of(self._job):
                self._operations.fail(left, restart_undone(left).as_dict(), self._clock())
        for waiting in self._operations.waiting(RESTART, self._job):
            error = Conflict(
                "the supervisor ended before it began the restart, and a new supervisor has started the job",
                code="HF-E4076",
                where=f"operation {waiting.operation_id}",
                hint=f"no restart is needed; check the job with `holdfast status {self._job}`",
            )
            refuse(self._operations, waiting, owner_of(self._job), error, self._clock())

    def begin(self) -> None:
        """Accept the requests that wait, each with a driver that starts after it.

        While a driver is about to take over, they wait until it has.
        """
        if self._stopped_s is not None:
            return
        owner, before = owner_of(self._job), len(self._requested)
        for waiting in self._operations.waiting(RESTART, self._job):
            begun = self._operations.begin(waiting.operation_id, owner, self._clock())
            if begun is not None:
                self._requested.append(begun)
        if len(self._requested) > before:
            self._standby.renew()
            self._began_s = self._now()
            self._say("restarting-warm", "starting a second driver, which takes over between two batches")

    def may_stop(self, require_same: Callable[[JobDefined], None]) -> bool:
        """Return True once the new driver is warm and has built the queries; the running one may then stop.

        Args:
            require_same: Raises a HoldfastError if the new driver has loaded a different job.
        """
        standby = self._standby
        if not self._requested or self._stopped_s is not None:
            return False
        standby.keep()
        try:
            if standby.defined is not None:
                require_same(standby.defined)
        except HoldfastError as error:
            self.fail(error)
            return False
        if standby.built:
            self.takes_over()
            return True
        if standby.error is not None:
            self.fail(standby.error)
        elif standby.ready:
            standby.build()
        elif self._now() - self._began_s > _PATIENCE_S:
            self.fail(
                Unavailable(
                    f"the new driver is not ready after {_PATIENCE_S:.0f} s",
                    code="HF-E5070",
                    where=self._job,
                    hint=f"find the log with `holdfast status {self._job}`, and repeat the restart",
                )
            )
        return False

    def takes_over(self) -> bool:
        """Record that no driver runs until the new one has started the queries; False without a request."""
        if self._requested and self._stopped_s is None:
            self._stopped_s = self._now()
            self._warm_ms = int((self._stopped_s - self._began_s) * 1000)
        return bool(self._requested)

    def complete(self) -> None:
        """Record that the new driver has started the queries."""
        took_ms = 0 if self._stopped_s is None else int((self._now() - self._stopped_s) * 1000)
        for begun in self._requested:
            result = {"job": self._job, "took_ms": took_ms, "warm_ms": self._warm_ms}
            self._operations.complete(begun, result, self._clock())
        if self._requested:
            self._say("restarted", f"restarted in {rounded_duration(took_ms)}", took_ms=took_ms)
        self._ended()
        self.begin()

    def fail(self, error: HoldfastError) -> None:
        """Record that the new driver could not take over, and end one that only waits for that."""
        for begun in self._requested:
            self._operations.fail(begun, error.as_dict(), self._clock())
        if self._requested:
            self._say("caution", f"not restarted: {error.fact}")
            self._standby.close()
        self._ended()

    def _ended(self) -> None:
        self._requested.clear()
        self._stopped_s = None
