"""A job's numbers by the names that Flink gives to those of its own jobs."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.jobs.background.job_facts import recoveries
from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState
from holdfast.observe.alert_store import AlertStore
from holdfast.observe.metrics import Sample

# What Flink answers where there is nothing to tell.
UNKNOWN = "-1"


def flink_metrics(home: StateHome, name: str, now_ms: int) -> dict[str, str]:
    """A job's metrics as Flink names them, each value as text.

    A checkpoint is a batch. A job with several queries has the largest duration and the sums of its sizes and
    counts. What a micro-batch has no such thing for is -1, as in Flink where there was none yet.

    Args:
        home: The state home.
        name: The job's name or id.
        now_ms: The clock.

    Raises:
        NotFound: There is no such job.
    """
    registry = Registry(home.registry)
    job = registry.job(name)
    attempts, counts = registry.attempts(job.name), registry.attempt_counts(job.name)
    newest = {batch.query: batch for batch in registry.batches(job.name)}
    _, measured = AlertStore(home.path).numbers().get(job.name, (0, ()))
    failed = sum(counts.causes.values())
    done = _sum(measured, "holdfast_batches_total")
    batch = max(newest.values(), key=lambda progress: progress.committed_ms, default=None)
    ended_ms = job.ended_ms if job.state.terminal and job.ended_ms is not None else now_ms
    return {
        "lastCheckpointDuration": _text(
            max((progress.duration_ms for progress in newest.values()), default=None)
        ),
        "lastCheckpointSize": _text(_sum(measured, "holdfast_checkpoint_new_bytes")),
        "lastCheckpointFullSize": _text(_sum(measured, "holdfast_checkpoint_bytes")),
        "lastCompletedCheckpointId": _text(None if batch is None else batch.batch_id),
        "lastCheckpointExternalPath": job.checkpoint,
        "lastCheckpointRestoreTimestamp": _text(_restored_ms(attempts)),
        "numberOfCompletedCheckpoints": _text(done),
        "numberOfFailedCheckpoints": str(failed),
        "numberOfInProgressCheckpoints": "0",
        "totalNumberOfCheckpoints": UNKNOWN if done is None else _text(done + failed),
        "numRestarts": str(counts.restarts),
        "fullRestarts": str(counts.restarts),
        "uptime": _text(_uptime_ms(attempts, job.state, now_ms)),
        "downtime": _text(_downtime_ms(attempts, job.state, now_ms)),
        "createdTime": str(ended_ms - job.started_ms),
    }


def _sum(samples: Iterable[Sample], metric: str) -> float | None:
    values = [sample.value for sample in samples if sample.metric == metric]
    return sum(values) if values else None


def _restored_ms(attempts: Iterable[Attempt]) -> int | None:
    started = [
        attempt.running_ms for attempt in attempts if attempt.recovers and attempt.running_ms is not None
    ]
    return started[-1] if started else None


def _uptime_ms(attempts: list[Attempt], state: JobState, now_ms: int) -> int | None:
    if state.terminal or not attempts or attempts[-1].ending is not None:
        return None
    running_ms = attempts[-1].running_ms
    return None if running_ms is None else now_ms - running_ms


def _downtime_ms(attempts: list[Attempt], state: JobState, now_ms: int) -> int:
    """Since the failure that the job recovers from; 0 while it runs."""
    since_ms = recoveries(attempts)[1]
    return 0 if state.terminal or since_ms is None else now_ms - since_ms


def _text(value: float | None) -> str:
    return UNKNOWN if value is None else str(int(value))
