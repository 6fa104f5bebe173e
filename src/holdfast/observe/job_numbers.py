"""What is known of a job beside its batches: failures, recoveries, savepoints and drills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.observe.metrics import LATELY_MS, Sample, sample


@dataclass(frozen=True, slots=True)
class TakenSavepoint:
    """The newest savepoint of a query.

    Attributes:
        at_ms: When it was taken.
        took_ms: How long that took.
        size_bytes: The bytes of its files.
    """

    at_ms: int
    took_ms: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job at one moment.

    Attributes:
        name: The job's name.
        up: Whether somebody supervises or watches it.
        failed: Whether it has failed for good.
        started_ms: When it was started.
        running_ms: When the driver that runs was started.
        restarts: Drivers that followed a failed one.
        failures: When each failed batch failed, with its cause.
        recovery_ms: What the last recovery took.
        recovering_since_ms: When the failure happened that the job has not recovered from yet.
        savepoints: The newest savepoint of each query that has savepoints taken; None before its first.
        drills_ms: What the newest drill of each query took.
    """

    name: str
    up: bool = True
    failed: bool = False
    started_ms: int | None = None
    running_ms: int | None = None
    restarts: int = 0
    failures: tuple[tuple[int, str], ...] = ()
    recovery_ms: int | None = None
    recovering_since_ms: int | None = None
    savepoints: Mapping[str, TakenSavepoint | None] = field(default_factory=dict)
    drills_ms: Mapping[str, int] = field(default_factory=dict)


def job_samples(facts: JobFacts, now_ms: int) -> list[Sample]:
    """The numbers of a job as a whole."""
    job = facts.name
    lately = sum(1 for at_ms, _ in facts.failures if at_ms > now_ms - LATELY_MS)
    found = [
        sample("holdfast_up", facts.up, job),
        sample("holdfast_job_failed", facts.failed, job),
        sample("holdfast_restarts_total", facts.restarts, job),
        sample("holdfast_checkpoint_failures_lately", lately, job),
        sample("holdfast_measured_timestamp_seconds", now_ms / 1000, job),
    ]
    for cause, number in Counter(cause for _, cause in facts.failures).items():
        found.append(sample("holdfast_checkpoint_failures_total", number, job, cause))
    if facts.running_ms is not None:
        found.append(sample("holdfast_uptime_seconds", (now_ms - facts.running_ms) / 1000, job))
    if facts.recovering_since_ms is not None:
        found.append(sample("holdfast_recovery_seconds", (now_ms - facts.recovering_since_ms) / 1000, job))
    elif facts.recovery_ms is not None:
        found.append(sample("holdfast_recovery_seconds", facts.recovery_ms / 1000, job))
    return [*found, *_savepoints(facts, now_ms)]


def _savepoints(facts: JobFacts, now_ms: int) -> list[Sample]:
    found = []
    for query, taken in facts.savepoints.items():
        labels = (facts.name, query)
        since_ms = facts.started_ms if taken is None else taken.at_ms
        if since_ms is not None:
            found.append(sample("holdfast_savepoint_age_seconds", (now_ms - since_ms) / 1000, *labels))
        if taken is not None and taken.took_ms is not None:
            found.append(sample("holdfast_savepoint_duration_seconds", taken.took_ms / 1000, *labels))
        if taken is not None and taken.size_bytes is not None:
            found.append(sample("holdfast_savepoint_bytes", taken.size_bytes, *labels))
    for query, took_ms in facts.drills_ms.items():
        found.append(sample("holdfast_drill_seconds", took_ms / 1000, facts.name, query))
    return found
