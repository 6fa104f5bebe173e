"""What is known of a job beside its batches: failures, recoveries, savepoints and drills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.observe.metrics import LATELY_MS, Sample, sample, samples_of


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
    lately = sum(at_ms > now_ms - LATELY_MS for at_ms, _ in facts.failures)
    recovery_ms = facts.recovery_ms
    if facts.recovering_since_ms is not None:
        recovery_ms = now_ms - facts.recovering_since_ms
    numbers = samples_of(
        (facts.name,),
        {
            "holdfast_up": facts.up,
            "holdfast_job_failed": facts.failed,
            "holdfast_restarts_total": facts.restarts,
            "holdfast_checkpoint_failures_lately": lately,
            "holdfast_measured_timestamp_seconds": now_ms / 1000,
            "holdfast_uptime_seconds": _seconds_since(facts.running_ms, now_ms),
            "holdfast_recovery_seconds": _in_seconds(recovery_ms),
        },
    )
    for cause, number in Counter(cause for _, cause in facts.failures).items():
        numbers.append(sample("holdfast_checkpoint_failures_total", number, facts.name, cause))
    for query, taken in facts.savepoints.items():
        numbers += samples_of((facts.name, query), _savepoint(facts, taken, now_ms))
    for query, took_ms in facts.drills_ms.items():
        numbers.append(sample("holdfast_drill_seconds", took_ms / 1000, facts.name, query))
    return numbers


def _savepoint(facts: JobFacts, taken: TakenSavepoint | None, now_ms: int) -> dict[str, float | None]:
    if taken is None:
        return {"holdfast_savepoint_age_seconds": _seconds_since(facts.started_ms, now_ms)}
    return {
        "holdfast_savepoint_age_seconds": _seconds_since(taken.at_ms, now_ms),
        "holdfast_savepoint_duration_seconds": _in_seconds(taken.took_ms),
        "holdfast_savepoint_bytes": taken.size_bytes,
    }


def _seconds_since(moment_ms: int | None, now_ms: int) -> float | None:
    return None if moment_ms is None else (now_ms - moment_ms) / 1000


def _in_seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
