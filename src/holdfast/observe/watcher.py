"""The metrics and alerts of one watched job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from holdfast.config.alert_settings import Alerts
from holdfast.model import BatchProgress
from holdfast.observe.alerting import TOLD, WAITING, Alert, AlertEvent, AlertStore, ended, evaluate
from holdfast.observe.alerting import Key as AlertKey
from holdfast.observe.batch_numbers import query_samples
from holdfast.observe.files import FileFacts, alone_samples, file_samples
from holdfast.observe.growth import state_limit
from holdfast.observe.job_metrics import JobFacts, JobTotals, job_samples
from holdfast.observe.metrics import MetricSample, sample
from holdfast.observe.sizing import batch_limit_ms

BATCHES_KEPT: Final = 1000
# Metrics are written at most once per this time; alert events are written at once.
_WRITE_MS: Final = 5_000


class Watcher:
    """The metrics and alerts of one job, recorded on one thread and evaluated on a different one.

    `committed` and `busy` only record their arguments and never block.

    Args:
        job: The job's name.
        alerts: The thresholds of the job.
        diary: The alert database, which keeps alerts over restarts; None for none.
        former: The batches that were committed and counted before, oldest first.

    Raises:
        Unavailable: The alert database cannot be read.
        Corrupt: The alert database is damaged.
    """

    def __init__(
        self, job: str, alerts: Alerts, diary: AlertStore | None, former: Iterable[BatchProgress] = ()
    ) -> None:
        self.job = job
        self._alerts = alerts
        self._diary = diary
        self._lock = threading.Lock()
        self._history: dict[str, deque[BatchProgress]] = {}
        self._busy: dict[str, int] = {}
        self._files: dict[str, FileFacts] = {}
        self._totals = JobTotals(None if diary is None else diary.totals(job))
        self._standing: dict[AlertKey, Alert] = {} if diary is None else diary.standing(job)
        self._samples: tuple[MetricSample, ...] = ()
        self._written_ms: int | None = None
        for batch in former:
            self._remember(batch)

    @property
    def samples(self) -> tuple[MetricSample, ...]:
        """Return the samples of the last evaluation."""
        return self._samples

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Return the open alerts of the last evaluation, firing and pending."""
        return tuple(self._standing.values())

    @property
    def batches(self) -> tuple[BatchProgress, ...]:
        """Return the last batches of all queries, oldest first."""
        with self._lock:
            batches = [batch for history in self._history.values() for batch in history]
        return tuple(sorted(batches, key=lambda batch: (batch.committed_ms, batch.query, batch.batch_id)))

    def committed(self, batch: BatchProgress) -> None:
        """Record a committed batch."""
        with self._lock:
            self._totals.add(batch)
            self._remember(batch)
            if batch.query in self._busy:
                self._busy[batch.query] = batch.committed_ms

    def busy(self, query: str, since_ms: int | None) -> None:
        """Record the start of a query's running batch; None if the query waits for rows."""
        with self._lock:
            if since_ms is None:
                self._busy.pop(query, None)
            else:
                self._busy.setdefault(query, since_ms)

    def idle(self) -> None:
        """Record that no query is running."""
        with self._lock:
            self._busy.clear()

    def looked(self, query: str, facts: FileFacts) -> None:
        """Record the facts about the files of a query's checkpoint."""
        with self._lock:
            self._files[query] = facts

    def evaluate(self, facts: JobFacts, now_ms: int) -> tuple[AlertEvent, ...]:
        """Collect the metrics, evaluate the rules, and store new events.

        Raises:
            Unavailable: The alert database cannot be written; no event was sent, and the next evaluation
                finds the same ones.
        """
        samples = self.measure(facts, now_ms)
        standing, events = evaluate(samples, self._standing, now_ms)
        self._save(now_ms, samples, standing, events)
        self._samples, self._standing = samples, standing
        return events

    def end(self, facts: JobFacts, now_ms: int) -> tuple[AlertEvent, ...]:
        """Evaluate one last time: end all open alerts except the failure of the job."""
        self.idle()
        told = self.evaluate(facts, now_ms)
        over = ended(self._standing, now_ms, stays=("job_failed",))
        left = {key: alert for key, alert in self._standing.items() if alert.rule == "job_failed"}
        self._written_ms = None
        self._save(now_ms, self._samples, left, over)
        self._standing = left
        return (*told, *over)

    def measure(self, facts: JobFacts, now_ms: int) -> tuple[MetricSample, ...]:
        """Return the current metrics, without evaluating the rules."""
        thresholds = self._alerts.thresholds
        with self._lock:
            busy = dict(self._busy)
            numbers = job_samples(facts, now_ms, min(busy.values(), default=None))
            numbers += self._totals.samples(self.job)
            histories = {query: tuple(history) for query, history in self._history.items()}
            files = dict(self._files)
        for query, history in histories.items():
            numbers += query_samples(
                self.job,
                history,
                now_ms,
                limit_bytes=state_limit(thresholds),
                limit_ms=batch_limit_ms(thresholds),
                busy_since_ms=busy.get(query),
            )
        for query, look in files.items():
            if query in histories:
                numbers += file_samples(self.job, query, look)
            else:
                numbers += alone_samples(self.job, query, look, now_ms)
        for rule, value in thresholds.items():
            numbers.append(sample("holdfast_alert_threshold", value, self.job, rule))
        return tuple(numbers)

    def _save(
        self,
        now_ms: int,
        samples: tuple[MetricSample, ...],
        standing: dict[AlertKey, Alert],
        events: tuple[AlertEvent, ...],
    ) -> None:
        if self._diary is None:
            return
        moved = standing.keys() != self._standing.keys()
        recent = self._written_ms is not None and 0 <= now_ms - self._written_ms < _WRITE_MS
        if recent and not events and not moved:
            return
        routed = self._alerts.webhook is not None
        with self._lock:
            totals = self._totals.values
        self._diary.save(
            self.job,
            now_ms,
            samples=samples,
            totals=totals,
            standing=standing,
            events=events,
            told=WAITING if routed else TOLD,
        )
        self._written_ms = now_ms

    def _remember(self, batch: BatchProgress) -> None:
        history = self._history.setdefault(batch.query, deque(maxlen=BATCHES_KEPT))
        # A batch that ran again replaces the lost one.
        while history and history[-1].batch_id >= batch.batch_id:
            history.pop()
        history.append(batch)
