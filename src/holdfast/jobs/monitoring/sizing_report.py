"""Whether the queries of a job have what they need, and how their state grows, by its registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.config.job.alert_settings import Alerts
from holdfast.jobs.monitoring.metrics_snapshot import samples
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import JsonShape, json_spread
from holdfast.observe.alerting import THRESHOLD
from holdfast.observe.growth import Growth, growth, state_limit
from holdfast.observe.sizing import Sizing, batch_limit_ms, sizing


@dataclass(frozen=True, slots=True)
class QuerySizing(JsonShape):
    """What a query has and needs, and how its state grows.

    Attributes:
        query: Its name.
        sizing: What it has, and what would be right.
        growth: How the state of each of its operators grows.
    """

    query: str
    sizing: Sizing = field(metadata=json_spread())
    growth: tuple[Growth, ...]


def sizings(details: JobDetails, home: StateHome, now_ms: int) -> tuple[QuerySizing, ...]:
    """The queries of a job that have committed a batch; of a job that has ended, as it was then.

    Args:
        details: The job, with the batches to tell it from.
        home: The state home, which knows the thresholds of the job's alerts.
        now_ms: The clock.

    Raises:
        Unavailable: What the supervisor wrote down cannot be read.
        Corrupt: It is damaged.
    """
    at_ms = details.judged_ms(now_ms)
    thresholds = _thresholds(home, details.status.job.name, now_ms)
    found = []
    for query in details.queries:
        history = details.batches_of(query.name)
        if history:
            sized = sizing(history, at_ms, batch_limit_ms(thresholds))
            found.append(QuerySizing(query.name, sized, growth(history, state_limit(thresholds))))
    return tuple(found)


def _thresholds(home: StateHome, job: str, now_ms: int) -> Mapping[str, float]:
    """What was measured last of the job's thresholds; the defaults of a job that nobody has watched yet."""
    noted = {
        number.named["rule"]: number.value
        for number in samples(home, now_ms, job)
        if number.metric == THRESHOLD
    }
    return noted or Alerts().thresholds
