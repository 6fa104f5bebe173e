"""The numbers and alerts of all jobs of a state home, for those who ask: REST, the dashboard, the verbs.

Nothing here looks at a checkpoint or at Spark: what the supervisors have written down is put together, so
an answer takes milliseconds whatever the jobs do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.observe.alert_store import AlertStore, NotedEvent
from holdfast.observe.alerting import FIRING, Alert
from holdfast.observe.export.prometheus import as_text
from holdfast.observe.metrics import BY_NAME, COUNTER, METRICS, Sample

# A query that is watched without a supervisor is gone when it has not been heard of for so long.
_SILENT_MS: Final = 60_000
# What is still said of a job that nobody runs; its other numbers would be of another time.
_STAYS: Final = frozenset({"holdfast_up", "holdfast_job_failed", "holdfast_alert_threshold"})


def samples(home: StateHome, now_ms: int, job: str | None = None) -> tuple[Sample, ...]:
    """The newest numbers of all jobs, or of one; of a job that nobody runs, its counters and how it ended.

    Args:
        home: The state home.
        now_ms: The clock.
        job: The name of a job; one that was never watched has no numbers.

    Raises:
        Unavailable: What the supervisors wrote down cannot be read.
        Corrupt: It is damaged.
    """
    supervised = {record.name for record in Registry(home.registry).jobs()}
    listed: list[Sample] = []
    for name, (at_ms, measured) in AlertStore(home.path).numbers().items():
        if job not in (None, name):
            continue
        alive = (
            SupervisorLock(home, name).taken()
            if name in supervised
            else _said_up(measured) and now_ms - at_ms < _SILENT_MS
        )
        listed += _as_it_is(measured, alive=alive)
    return tuple(listed)


def metrics_text(home: StateHome, now_ms: int) -> str:
    """The numbers of all jobs in Prometheus's text format; `observe.prometheus.CONTENT_TYPE` names it."""
    return as_text(samples(home, now_ms))


def metrics_json(home: StateHome, now_ms: int, job: str | None = None) -> dict[str, Any]:
    """The same as plain values: `at_ms`, `metrics` with what each means, and `samples`."""
    listed = samples(home, now_ms, job)
    used = {sample.metric for sample in listed}
    return {
        "at_ms": now_ms,
        "metrics": [metric.as_dict() for metric in METRICS if metric.name in used],
        "samples": [sample.as_dict() for sample in listed],
    }


def alerts(home: StateHome, job: str | None = None) -> tuple[Alert, ...]:
    """The alerts that stand, firing and pending, of all jobs or of one; the firing ones first."""
    standing = AlertStore(home.path).standing(job).values()
    return tuple(sorted(standing, key=lambda alert: (alert.phase != FIRING, alert.since_ms, alert.key)))


def alert_events(home: StateHome, job: str | None = None, last: int = 100) -> list[NotedEvent]:
    """What has happened to alerts, oldest first."""
    return AlertStore(home.path).events(job, last)


def _said_up(measured: Iterable[Sample]) -> bool:
    return any(sample.metric == "holdfast_up" and sample.value for sample in measured)


def _as_it_is(measured: Iterable[Sample], *, alive: bool) -> list[Sample]:
    kept = [
        sample
        for sample in measured
        if alive or sample.metric in _STAYS or BY_NAME[sample.metric].kind == COUNTER
    ]
    return [
        replace(sample, value=float(alive)) if sample.metric == "holdfast_up" else sample for sample in kept
    ]
