"""What is known of a job beside its batches: failures, recoveries, savepoints and drills."""

from __future__ import annotations

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
        failures: How many batches have failed, by cause.
        failed_ms: When the newest of them failed.
        recovery_ms: What the last recovery took.
        recovered_ms: When that ended, as far as it is known.
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
    failures: Mapping[str, int] = field(default_factory=dict)
    failed_ms: tuple[int, ...] = ()
    recovery_ms: int | None = None
    recovered_ms: int | None = None
    recovering_since_ms: int | None = None
    savepoints: Mapping[str, TakenSavepoint | None] = field(default_factory=dict)
    drills_ms: Mapping[str, int] = field(default_factory=dict)


def job_samples(facts: JobFacts, now_ms: int, busy_since_ms: int | None = None) -> list[Sample]:
    """The numbers of a job as a whole.

    Args:
        facts: The job.
        now_ms: The clock.
        busy_since_ms: Since when a query of it has been at work; None where all wait for rows.
    """
    lately = sum(at_ms > now_ms - LATELY_MS for at_ms in facts.failed_ms)
    recovering_ms = _recovering_ms(facts, now_ms, busy_since_ms)
    numbers = samples_of(
        (facts.name,),
        {
            "holdfast_up": facts.up,
            "holdfast_job_failed": facts.failed,
            "holdfast_restarts_total": facts.restarts,
            "holdfast_checkpoint_failures_lately": lately,
            "holdfast_measured_timestamp_seconds": now_ms / 1000,
            "holdfast_uptime_seconds": _seconds_since(facts.running_ms, now_ms),
            "holdfast_recovery_seconds": _in_seconds(
                facts.recovery_ms if recovering_ms is None else recovering_ms
            ),
            "holdfast_recovery_lately_seconds": _in_seconds(_lately_ms(facts, now_ms, recovering_ms)),
        },
    )
    for cause, number in facts.failures.items():
        numbers.append(sample("holdfast_checkpoint_failures_total", number, facts.name, cause))
    for query, taken in facts.savepoints.items():
        numbers += samples_of((facts.name, query), _savepoint(facts, taken, now_ms))
    for query, took_ms in facts.drills_ms.items():
        numbers.append(sample("holdfast_drill_seconds", took_ms / 1000, facts.name, query))
    return numbers


def _recovering_ms(facts: JobFacts, now_ms: int, busy_since_ms: int | None) -> int | None:
    """How long a recovery under way has taken. Queries that run again and wait for rows do not count on."""
    since_ms, running_ms = facts.recovering_since_ms, facts.running_ms
    if since_ms is None:
        return None
    if running_ms is None or running_ms < since_ms:
        return now_ms - since_ms
    at_work_ms = 0 if busy_since_ms is None else now_ms - max(busy_since_ms, running_ms)
    return running_ms - since_ms + max(at_work_ms, 0)


def _lately_ms(facts: JobFacts, now_ms: int, recovering_ms: int | None) -> int | None:
    """What a recovery takes that is under way or has ended lately, since the job was started."""
    took = [] if recovering_ms is None else [recovering_ms]
    since_ms = max(now_ms - LATELY_MS, facts.started_ms or 0)
    if facts.recovery_ms is not None and facts.recovered_ms is not None and facts.recovered_ms > since_ms:
        took.append(facts.recovery_ms)
    return max(took, default=None)


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
