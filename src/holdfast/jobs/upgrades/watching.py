"""Watch new code of a job until it is healthy, or has failed, or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from holdfast.checkpoints.logs import Logs
from holdfast.errors import HoldfastError
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.reports import job_lags
from holdfast.jobs.upgrades.upgrade_record import Goals
from holdfast.model import JobState
from holdfast.observe.alerting import Alert
from holdfast.observe.rules import BY_RULE
from holdfast.quantities import counted, rounded_duration
from holdfast.storage import open_storage

_LOOK_S: Final = 0.2
# The ending of metrics that count what happened in the last minutes.
_LOOKS_BACK: Final = ("_lately", "_lately_seconds")


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """The verdict of a watch on new code.

    Attributes:
        healthy: True if it may stay.
        text: The reason.
        batches: The number of batches that it committed.
    """

    healthy: bool
    text: str
    batches: int


class HealthWatch:
    """The health of a job since a start with new code.

    Args:
        goals: The conditions.
        attempt: The number of the last driver of the old code.
        since_ms: The time when the old code had ended, in epoch milliseconds.
        former_alerts: The alerts that fired before, which do not count.
    """

    def __init__(self, goals: Goals, attempt: int, since_ms: int, former_alerts: Collection[str]) -> None:
        self._goals = goals
        self._attempt = attempt
        self._since_ms = since_ms
        self._former_alerts = former_alerts
        self._first_left: int | None = None

    def judge(
        self, details: JobDetails, alerts: Collection[Alert], now_ms: int, *, over: bool
    ) -> HealthVerdict | None:
        """Return the verdict; None while it is open.

        Args:
            details: The job.
            alerts: Its alerts.
            now_ms: The time in epoch milliseconds.
            over: True if the time for the watch is over.
        """
        job = details.status.job
        batches = [batch for batch in details.batches if batch.committed_ms >= self._since_ms]
        count = len(batches)
        failure = self.failure(details)
        if failure is not None:
            return HealthVerdict(False, f"the new code failed: {failure}", count)
        if job.state in (JobState.FAILED, JobState.CANCELED) or (
            not details.status.supervised and job.state is not JobState.FINISHED
        ):
            return HealthVerdict(False, f"the job ended: {job.reason or details.status.word}", count)
        if job.state is JobState.FINISHED:
            return HealthVerdict(True, f"the job has finished, {counted(count, 'batch')} committed", count)
        left = sum(lag.left for lag in job_lags(details, now_ms))
        if batches and self._first_left is None:
            self._first_left = left
        committed = {query.name: 0 for query in details.queries}
        for batch in batches:
            committed[batch.query] = committed.get(batch.query, 0) + 1
        waits = [name for name, done in committed.items() if done < self._goals.batches]
        began_ms = max((attempt.running_ms or now_ms for attempt in details.attempts), default=now_ms)
        last_ms = max((batch.committed_ms for batch in batches), default=began_ms)
        is_idle = (over or now_ms - last_ms >= self._goals.idle_ms) and all(
            _is_idle(query.checkpoint) for query in details.queries if query.name in waits
        )
        # An alert about the last minutes may be about the old code; failures are judged above.
        firing = [
            alert
            for alert in alerts
            if alert.firing
            and not BY_RULE[alert.rule].metric.endswith(_LOOKS_BACK)
            and alert_key(alert) not in self._former_alerts
        ]
        grows = self._first_left is not None and left > self._first_left
        if not firing and not grows and job.state is JobState.RUNNING and (not waits or is_idle):
            text = f"{counted(count, 'batch')} committed, no alert"
            text += ", no input waits" if waits else f", {counted(left, 'record')} behind" if left else ""
            return HealthVerdict(True, text, count)
        if not over:
            return None
        if firing:
            why = f"alert {firing[0].rule}: {firing[0].text}"
        elif grows:
            why = f"the lag grew from {self._first_left} to {left} records"
        else:
            done = min(committed.values(), default=0)
            why = f"{done} of {self._goals.batches} batches committed"
        return HealthVerdict(False, f"{why} after {rounded_duration(self._goals.within_ms)}", count)

    def failure(self, details: JobDetails) -> str | None:
        """Return the first failure of a driver with the new code, or None."""
        failures = (
            str(attempt.failure)
            for attempt in details.attempts
            if attempt.number > self._attempt and attempt.failure is not None
        )
        return next(failures, None)

    def run(
        self,
        look: Callable[[], JobDetails],
        alerts: Callable[[], Collection[Alert]],
        clock: Callable[[], int],
    ) -> HealthVerdict:
        """Look at the job until there is a verdict.

        Args:
            look: Returns the job.
            alerts: Returns its alerts.
            clock: Returns epoch milliseconds.
        """
        deadline = time.monotonic() + self._goals.within_ms / 1000
        while True:
            over = time.monotonic() > deadline
            verdict = self.judge(look(), alerts(), clock(), over=over)
            if verdict is not None:
                return verdict
            time.sleep(_LOOK_S)


def alert_key(alert: Alert) -> str:
    """Return the identity of an alert as text."""
    return " ".join((alert.rule, *alert.labels))


def _is_idle(checkpoint: str) -> bool:
    """Return True if a query has committed every batch that it has planned."""
    try:
        logs = Logs(open_storage(checkpoint))
    except HoldfastError:
        return False
    return not logs.offered or logs.newest == logs.offered[-1]
