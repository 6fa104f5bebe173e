"""Metrics and alerts of a query that runs elsewhere, from the files of its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.checkpoints.checkpoint import FROM_REGISTRY, BatchFailure, CommittedBatch
from holdfast.config.alert_settings import Alerts
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.jobs.background import Throttle
from holdfast.jobs.events import JobEvent
from holdfast.jobs.metrics_loop import EVERY_S, AlertDelivery
from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import BatchProgress
from holdfast.observe.alerting import AlertEvent, AlertStore
from holdfast.observe.files import look
from holdfast.observe.job_metrics import JobFacts
from holdfast.observe.metrics import MetricSample
from holdfast.observe.watcher import Watcher
from holdfast.storage import open_storage
from holdfast.storage.port import Storage


def with_registry(
    home: StateHome, address: str, batches: Sequence[CommittedBatch]
) -> tuple[CommittedBatch, ...]:
    """Return a checkpoint's batches, completed from the registry of a state home.

    Without a job for the checkpoint they have only the facts in the files.
    """
    if not home.registry.exists():
        return tuple(batches)
    registry = Registry(home.registry)
    wanted = open_storage(address).uri
    for job in registry.jobs():
        for query in registry.queries(job.name):
            if _uri(query.checkpoint) == wanted:
                heard = [batch for batch in registry.batches(job.name) if batch.query == query.name]
                return measured_batches(batches, heard, registry.attempts(job.name), query.name)
    return tuple(batches)


def measured_batches(
    batches: Sequence[CommittedBatch], heard: Sequence[BatchProgress], attempts: Sequence[Attempt], query: str
) -> tuple[CommittedBatch, ...]:
    """Return the batches with the durations that the driver reported, and the failures before each.

    A driver that failed has failed in the batch that was committed next: only one runs at a time.

    Args:
        batches: The batches from the files.
        heard: The query's batches in the registry.
        attempts: The job's attempts.
        query: The query's name.
    """
    known = {batch.batch_id: batch for batch in heard}
    failures: dict[int, list[BatchFailure]] = {}
    for attempt in attempts:
        failure, ended_ms = attempt.failure, attempt.ended_ms
        if failure is None or ended_ms is None or failure.query not in (None, query):
            continue
        after = [batch.batch_id for batch in heard if batch.committed_ms > ended_ms]
        before = [batch.batch_id for batch in heard if batch.committed_ms <= ended_ms]
        if not before and (not after or min(after) > 0):
            continue  # the registry does not keep the batches of that time any more
        batch_id = min(after, default=max(before, default=-1) + 1)
        line = f"{failure.error_class}: {failure.line}" if failure.line else failure.error_class
        failures.setdefault(batch_id, []).append(BatchFailure(attempt.number, ended_ms, failure.cause, line))
    # Of batches before and after those that the registry keeps nobody knows what failed.
    watched = range(min(known, default=0), max(known, default=-1) + 1)
    return tuple(
        _measured(
            replace(batch, failures=tuple(failures.get(batch.batch_id, ())))
            if batch.batch_id in watched
            else batch,
            known.get(batch.batch_id),
        )
        for batch in batches
    )


def _measured(batch: CommittedBatch, heard: BatchProgress | None) -> CommittedBatch:
    if heard is None:
        return batch
    return replace(
        batch,
        committed_ms=heard.committed_ms,
        duration_ms=heard.duration_ms,
        duration_source=FROM_REGISTRY,
    )


def _uri(address: str) -> str | None:
    try:
        return open_storage(address).uri
    except HoldfastError:  # a storage that this machine has no library for
        return None


_SHARE: Final = 0.05
_LONGEST_S: Final = 300.0


class CheckpointWatch:
    """Watches one checkpoint through its files: sizes, partitions, watermark, format.

    Args:
        checkpoint: The checkpoint.
        name: The job's name in metrics and alerts.
        alerts: Thresholds and routes.
        home: The state home.
        clock: Returns epoch milliseconds.

    Attributes:
        mirrored_ms: The time up to which the checkpoint has been mirrored; None without a mirror.

    Raises:
        Conflict: A supervisor already watches a job of this name.
    """

    def __init__(
        self, checkpoint: Storage, name: str, alerts: Alerts, home: Path, clock: Callable[[], int]
    ) -> None:
        if SupervisorLock(StateHome(home), name).is_held():
            raise Conflict(
                "the job name is in use by a job with a live supervisor",
                code="HF-E4016",
                where=str(home),
                found=name,
                hint=f"see the metrics of the job with `holdfast status {name}`, or give a different name"
                " with --name",
            )
        self._checkpoint = checkpoint
        self._name = name
        self._clock = clock
        self.mirrored_ms: int | None = None
        diary = AlertStore(home)
        self._watcher = Watcher(name, alerts, diary)
        self._delivery = AlertDelivery(name, alerts, diary, clock)
        self._delivery.start()
        self._pace = Throttle(_SHARE, _LONGEST_S, EVERY_S)

    def look(self) -> tuple[AlertEvent, ...]:
        """Check the files, unless the last check was recent, and evaluate the alert rules.

        Raises:
            Corrupt: A file that was read is damaged.
            Unavailable: The storage or the diary does not answer.
        """
        if self._pace.wait_s():
            return ()
        began = time.monotonic()
        try:
            facts = look(self._checkpoint, self._clock())
        except NotFound:
            return ()
        finally:
            self._pace.took(time.monotonic() - began)
        self._watcher.looked(self._name, facts)
        events = self._watcher.evaluate(self._facts(), self._clock())
        self._delivery.now(self._watcher.alerts, events)
        return events

    def samples(self) -> tuple[MetricSample, ...]:
        """Return the newest metrics, with current ages."""
        return self._watcher.measure(self._facts(), self._clock())

    def _facts(self) -> JobFacts:
        mirrored = {} if self.mirrored_ms is None else {self._name: self.mirrored_ms}
        return JobFacts(self._name, mirrored_ms=mirrored)

    def heard(self) -> list[JobEvent]:
        """Return the failed deliveries."""
        return self._delivery.heard()

    def close(self) -> tuple[AlertEvent, ...]:
        """Stop watching, and resolve the open alerts."""
        events = self._watcher.end(JobFacts(self._name, up=False), self._clock())
        self._delivery.now((), events)
        self._delivery.close()
        return events
