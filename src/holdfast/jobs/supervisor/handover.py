"""A planned handover: between two batches, a driver with the job file as it is now takes over.

The running driver is told to stop only once the new one is warm, so that code that does not start leaves the
job as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.jobs.events import Say
from holdfast.jobs.operation_verbs import undone
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
        clock: Returns epoch milliseconds.
        now: A monotonic clock.
        say: Reports events.
    """

    def __init__(
        self, home: StateHome, job: str, clock: Callable[[], int], now: Callable[[], float], say: Say
    ) -> None:
        self._job = job
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
        """True from the request until the new driver has started the queries, or the handover has failed."""
        return bool(self._requested)

    def recover(self) -> None:
        """Fail what a former supervisor was asked for: this one starts the job's file as it is now."""
        for left in self._operations.running():
            if left.verb == RESTART and left.owner == owner_of(self._job):
                error = undone(left, "the supervisor ended before the new driver had started")
                self._operations.fail(left, error.as_dict(), self._clock())
        for waiting in self._operations.waiting(RESTART, self._job):
            error = Conflict(
                "the supervisor ended before it began the restart, and a new supervisor has started the job",
                code="HF-E4076",
                where=f"operation {waiting.operation_id}",
                hint=f"no restart is needed; check the job with `holdfast status {self._job}`",
            )
            refuse(self._operations, waiting, owner_of(self._job), error, self._clock())

    def begin(self) -> bool:
        """Accept the requests that wait; False if there is none."""
        if self._requested:
            return True
        owner = owner_of(self._job)
        for waiting in self._operations.waiting(RESTART, self._job):
            begun = self._operations.begin(waiting.operation_id, owner, self._clock())
            if begun is not None:
                self._requested.append(begun)
        if self._requested:
            self._began_s, self._stopped_s = self._now(), None
            self._say("restarting-warm", "starting a second driver, which takes over between two batches")
        return bool(self._requested)

    def may_stop(self, standby: StandbyDriver) -> bool:
        """Return True once the new driver is warm and has built the queries; the running one may then stop.

        Args:
            standby: The new driver.
        """
        standby.keep()
        if standby.built:
            self._warm_ms = int((self._now() - self._began_s) * 1000)
            self._stopped_s = self._now()
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

    def complete(self) -> None:
        """Record that the new driver has started the queries."""
        # None if the former driver failed before it could stop.
        since_s = self._began_s if self._stopped_s is None else self._stopped_s
        took_ms = int((self._now() - since_s) * 1000)
        for begun in self._requested:
            result = {"job": self._job, "took_ms": took_ms, "warm_ms": self._warm_ms}
            self._operations.complete(begun, result, self._clock())
        if self._requested:
            self._say("restarted", f"restarted in {rounded_duration(took_ms)}", took_ms=took_ms)
        self._requested.clear()

    def fail(self, error: HoldfastError) -> None:
        """Record that the new driver could not take over."""
        for begun in self._requested:
            self._operations.fail(begun, error.as_dict(), self._clock())
        if self._requested:
            self._say("caution", f"not restarted: {error.fact}")
        self._requested.clear()
