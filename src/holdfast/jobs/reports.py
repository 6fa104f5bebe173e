"""Reports on a job from its registry: cost, lag, sizing, skew, and Flink's metrics.

Reports use only the supervisors' records in the registry, not checkpoints or Spark, so an answer takes
milliseconds whatever the jobs do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.advice.cost_api import cost
from holdfast.clock import now_ms
from holdfast.config.alert_settings import Alerts
from holdfast.config.settings import Settings
from holdfast.config.units import Duration
from holdfast.errors import NotFound
from holdfast.jobs.metrics_loop import recoveries
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.jobs.state_home import QueryLock, StateHome, SupervisorLock
from holdfast.json_shapes import JsonShape, json_spread
from holdfast.model import JobState, SkewReport
from holdfast.observe.alerting import THRESHOLD, Alert, AlertStore, NotedEvent
from holdfast.observe.growth import Growth, growth, state_limit
from holdfast.observe.lag import Lag, lags
from holdfast.observe.metrics import BY_NAME, COUNTER, METRICS, MetricSample
from holdfast.observe.prometheus import as_text
from holdfast.observe.sizing import Sizing, batch_limit_ms, sizing

if TYPE_CHECKING:
    from holdfast.advice.cost_report import CostReport
    from holdfast.advice.prices import Prices


def job_cost(
    details: JobDetails,
    checkpoint: str,
    *,
    prices: Prices | str | os.PathLike[str] | None = None,
    interval: Duration | None = None,
    savepoints: Sequence[str] | None = None,
) -> CostReport:
    """Return the report of `hf.cost`, with the newest batch's memory and all savepoint directories.

    Args:
        details: The job.
        checkpoint: The checkpoint of one of its queries.
        prices: As in `hf.cost`.
        interval: As in `hf.cost`.
        savepoints: The savepoint directories; None for those of the job's savepoints and the one next to the
            checkpoint.

    Raises:
        HoldfastError: As in `hf.cost`.
    """
    query = next((query.name for query in details.queries if query.checkpoint == checkpoint), None)
    newest = next((batch for batch in details.newest() if batch.query == query), None)
    memory = (
        None
        if newest is None or not newest.measured
        else {each.display_name or each.name: each.memory_bytes for each in newest.operators}
    )
    catalogs = details.known_catalogs(checkpoint) if savepoints is None else savepoints
    return cost(checkpoint, prices=prices, interval=interval, savepoints=catalogs, memory=memory)


def job_lags(details: JobDetails, now_ms: int) -> tuple[Lag, ...]:
    """Return the lag of each query per source partition; for an ended job as of its end.

    Args:
        details: The job, with its batches.
        now_ms: The current time, in epoch milliseconds.
    """
    at_ms = details.judged_ms(now_ms)
    histories = (details.batches_of(query.name) for query in details.queries)
    return tuple(lag for history in histories if history for lag in lags(history, at_ms))


# A query that is watched without a supervisor is gone when it has not been heard of for so long.
_SILENT_MS: Final = 60_000
# What is still said of a job that nobody runs; its other numbers would be of another time.
_STAYS: Final = frozenset({"holdfast_up", "holdfast_job_failed", "holdfast_alert_threshold"})


def samples(home: StateHome, now_ms: int, job: str | None = None) -> tuple[MetricSample, ...]:
    """Return the newest metrics of all jobs or one; without a supervisor only counters and state.

    Args:
        home: The state home.
        now_ms: The current time, in epoch milliseconds.
        job: The name of a job; one that was never watched has no metrics.

    Raises:
        Unavailable: The supervisors' records cannot be read.
        Corrupt: The registry is damaged.
    """
    records = {record.name: record for record in Registry(home.registry).jobs()}
    listed: list[MetricSample] = []
    for name, (at_ms, measured) in AlertStore(home.path).numbers().items():
        if job not in (None, name):
            continue
        record = records.get(name)
        if record is None:
            alive = _said_up(measured) and now_ms - at_ms < _SILENT_MS
        else:
            alive = (QueryLock if record.kind.is_recorded else SupervisorLock)(home, name).is_held()
        listed += _as_it_is(measured, alive=alive)
    return tuple(listed)


def metrics_text(home: StateHome, now_ms: int) -> str:
    """Return the metrics of all jobs in Prometheus's text format."""
    return as_text(samples(home, now_ms))


def metrics_json(home: StateHome, now_ms: int, job: str | None = None) -> dict[str, Any]:
    """Return metrics as plain values: `at_ms`, `metrics` with descriptions, and `samples`."""
    listed = samples(home, now_ms, job)
    used = {sample.metric for sample in listed}
    return {
        "at_ms": now_ms,
        "metrics": [metric.as_dict() for metric in METRICS if metric.name in used],
        "samples": [sample.as_dict() for sample in listed],
    }


def alerts(home: StateHome, job: str | None = None) -> tuple[Alert, ...]:
    """Return the firing and pending alerts of all jobs or of one, firing ones first."""
    standing = AlertStore(home.path).standing(job).values()
    return tuple(sorted(standing, key=lambda alert: (not alert.firing, alert.since_ms, alert.key)))


def alert_events(home: StateHome, job: str | None = None, last: int = 100) -> list[NotedEvent]:
    """Return the events of alerts, oldest first."""
    return AlertStore(home.path).events(job, last)


def _said_up(measured: Iterable[MetricSample]) -> bool:
    return any(sample.metric == "holdfast_up" and sample.value for sample in measured)


def _as_it_is(measured: Iterable[MetricSample], *, alive: bool) -> list[MetricSample]:
    kept = [
        sample
        for sample in measured
        if alive or sample.metric in _STAYS or BY_NAME[sample.metric].kind == COUNTER
    ]
    return [
        replace(sample, value=float(alive)) if sample.metric == "holdfast_up" else sample for sample in kept
    ]


@dataclass(frozen=True, slots=True)
class QuerySizing(JsonShape):
    """The resources of a query, its needs, and the growth of its state.

    Attributes:
        query: The query's name.
        sizing: The resources that it has and needs.
        growth: The growth of each operator's state.
    """

    query: str
    sizing: Sizing = field(metadata=json_spread())
    growth: tuple[Growth, ...]


def sizings(details: JobDetails, home: StateHome, now_ms: int) -> tuple[QuerySizing, ...]:
    """Return the sizing of a job's queries with a committed batch; for an ended job as of its end.

    Args:
        details: The job, with its batches.
        home: The state home, which has the thresholds of the job's alerts.
        now_ms: The current time, in epoch milliseconds.

    Raises:
        Unavailable: The supervisor's records cannot be read.
        Corrupt: The registry is damaged.
    """
    at_ms = details.judged_ms(now_ms)
    thresholds = job_thresholds(home, details.status.job.name, now_ms)
    found = []
    for query in details.queries:
        history = details.measured_of(query.name)
        if history:
            sized = sizing(history, at_ms, batch_limit_ms(thresholds))
            found.append(QuerySizing(query.name, sized, growth(history, state_limit(thresholds))))
    return tuple(found)


def job_thresholds(home: StateHome, job: str, now_ms: int) -> Mapping[str, float]:
    """Return the newest alert thresholds of a job by rule; the defaults if it has never been watched.

    Args:
        home: The state home.
        job: The job's name.
        now_ms: The current time, in epoch milliseconds.

    Raises:
        Unavailable: The supervisor's records cannot be read.
        Corrupt: The registry is damaged.
    """
    noted = {
        number.named["rule"]: number.value
        for number in samples(home, now_ms, job)
        if number.metric == THRESHOLD
    }
    return noted or Alerts().thresholds


# What Flink answers where there is nothing to tell.
UNKNOWN = "-1"


def flink_metrics(home: StateHome, name: str, now_ms: int) -> dict[str, str]:
    """Return a job's metrics under Flink's names, each value as text.

    A checkpoint is a batch. A job with several queries has the largest duration and the sums of its sizes and
    counts. Metrics that do not exist for micro-batches are -1, as in Flink before the first checkpoint.

    Args:
        home: The state home.
        name: The job's name or id.
        now_ms: The current time, in epoch milliseconds.

    Raises:
        NotFound: The job does not exist.
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


def _sum(samples: Iterable[MetricSample], metric: str) -> float | None:
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
    """Return the time since the failure that the job recovers from; 0 while it runs."""
    since_ms = recoveries(attempts)[1]
    return 0 if state.terminal or since_ms is None else now_ms - since_ms


def _text(value: float | None) -> str:
    return UNKNOWN if value is None else str(int(value))


def report_job(name: str, home: str | Path | None = None) -> tuple[SkewReport, ...]:
    """Return the newest skew report of each watched name of a job.

    Args:
        name: The job's name or id.
        home: The state home; None for the one in use.

    Raises:
        NotFound: The job does not exist, or none of its batches has watched keys.
    """
    details = Control(StateHome(Settings.here(home).real_home), now_ms).details(name)
    return tuple(report for _, report in newest_skew(details))


def newest_skew(details: JobDetails) -> list[tuple[str, SkewReport]]:
    """Return for each query and watched name the report of the newest batch with rows.

    Raises:
        NotFound: There is no report.
    """
    reports: dict[tuple[str, str], SkewReport] = {}
    for batch in details.batches:
        for report in batch.skew:
            reports[batch.query, report.name] = report
    if not reports:
        job = details.status.job.name
        raise NotFound(
            f"no batch of job {job!r} has recorded the skew of keys",
            code="HF-E3049",
            where=job,
            found=f"{len(details.batches)} batches without hf.skew.watch",
            hint="add hf.skew.watch(df, by=…, name=…) to the query; for the skew of stored state use"
            " `holdfast skew CHECKPOINT`",
        )
    return [(query, report) for (query, _), report in sorted(reports.items())]
