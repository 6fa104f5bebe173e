"""The rules of alerts: the one definition that our own engine and Prometheus go by."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.config.units import rounded_duration, rounded_size
from holdfast.json_shapes import JsonShape, in_json
from holdfast.observe.metrics import BY_NAME, JOB, OPERATOR, QUERY, STORE, Sample

WARNING: Final = "warning"
CRITICAL: Final = "critical"
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class AlertRule(JsonShape):
    """An alert rule: a metric is above or below its threshold for long enough.

    The threshold is the job's own, out of `holdfast_alert_threshold`; a job without one has the rule off.

    Attributes:
        name: As settings have it.
        metric: What is looked at.
        by: The labels that tell alerts of the rule apart.
        says: The alert in a sentence, with the labels, `{value}` and `{threshold}`.
        advice: What to do first.
        above: Whether too much is wrong, or too little.
        for_ms: How long it must be wrong before it is told.
        keep_ms: How long it must be right again before that is told.
        severity: `warning` or `critical`.
    """

    name: str
    metric: str
    by: tuple[str, ...]
    says: str
    advice: str
    above: bool = True
    for_ms: int = 0
    keep_ms: int = 0
    severity: str = WARNING

    @property
    @in_json
    def alert(self) -> str:
        """Its name among Prometheus's alerts: `HoldfastStateSize`."""
        return "Holdfast" + string.capwords(self.name, "_").replace("_", "")

    @property
    @in_json
    def unit(self) -> str:
        """The unit of value and threshold."""
        return BY_NAME[self.metric].unit

    def breached(self, value: float, threshold: float) -> bool:
        """Return whether a value violates a threshold."""
        return value > threshold if self.above else value < threshold

    def values(self, samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
        """The value of each series that the rule tells apart: the sum over its other labels."""
        sums: dict[tuple[str, ...], float] = {}
        for number in samples:
            if number.metric == self.metric:
                named = number.named
                key = tuple(named[label] for label in self.by)
                sums[key] = sums.get(key, 0.0) + number.value
        return sums

    def text(self, labels: Mapping[str, str], value: float, threshold: float) -> str:
        """The alert in a sentence."""
        shown = {"value": shown_value(value, self.unit), "threshold": shown_value(threshold, self.unit)}
        return self.says.format(**labels, **shown)


RULES: Final[tuple[AlertRule, ...]] = (
    AlertRule(
        "state_size",
        "holdfast_state_bytes",
        QUERY,
        keep_ms=_MINUTE_MS,
        says="the state of query {query} has grown to {value}, over {threshold}",
        advice="see what grows with `holdfast status`, and give state a TTL or a watermark",
    ),
    AlertRule(
        "checkpoint_duration",
        "holdfast_checkpoint_duration_seconds",
        QUERY,
        keep_ms=_MINUTE_MS,
        says="a batch of query {query} takes {value}, over {threshold}",
        advice="see which phase takes it in `holdfast_batch_phase_seconds`; smaller batches commit sooner",
    ),
    AlertRule(
        "checkpoint_failures",
        "holdfast_checkpoint_failures_lately",
        JOB,
        severity=CRITICAL,
        says="failed batches in the last ten minutes: {value}",
        advice="read why in `holdfast status`; the driver's log has the whole error",
    ),
    AlertRule(
        "access_latency",
        "holdfast_state_access_seconds",
        OPERATOR,
        for_ms=_MINUTE_MS,
        keep_ms=_MINUTE_MS,
        says="an access to the state of operator {operator}, query {query}, takes {value}, over {threshold}",
        advice="for RocksDB, look at the cache hits and the disk below Spark's local directory, and give it"
        " more memory; for a database, look at its load and at the network to it",
    ),
    AlertRule(
        "recovery_time",
        "holdfast_recovery_lately_seconds",
        JOB,
        severity=CRITICAL,
        says="recovery takes {value}, over {threshold}",
        advice="see the attempts in `holdfast status`; `holdfast drill` says where the time goes",
    ),
    AlertRule(
        "full_within",
        "holdfast_state_full_seconds",
        QUERY,
        above=False,
        for_ms=5 * _MINUTE_MS,
        keep_ms=5 * _MINUTE_MS,
        says="the state of query {query} reaches its limit in {value} if it goes on growing",
        advice="see what grows with `holdfast status`, and give state a TTL or a watermark",
    ),
    AlertRule(
        "watermark_stuck",
        "holdfast_watermark_stuck_seconds",
        QUERY,
        says="the watermark of query {query} has not moved for {value} though rows come in",
        advice="an empty source holds all others back; look for one without events, or with old ones",
    ),
    AlertRule(
        "lag",
        "holdfast_lag_seconds",
        QUERY,
        for_ms=5 * _MINUTE_MS,
        keep_ms=_MINUTE_MS,
        says="query {query} is {value} behind its sources, over {threshold}",
        advice="see by how many records in `holdfast status`, and what would be right under SIZING there",
    ),
    AlertRule(
        "lag_growing",
        "holdfast_lag_growing_seconds",
        QUERY,
        keep_ms=_MINUTE_MS,
        says="query {query} has fallen further behind its sources for {value}",
        advice="more comes in than is worked off: see under SIZING in `holdfast status` what would be right",
    ),
    AlertRule(
        "offsets_expiring",
        "holdfast_lag_seconds",
        QUERY,
        severity=CRITICAL,
        says="records that query {query} has not read are {value} old; their topic keeps them for a time",
        advice="let the topic keep records for longer (retention.ms) first: what it drops is lost",
    ),
    AlertRule(
        "late_rows",
        "holdfast_late_rows_ratio",
        QUERY,
        for_ms=_MINUTE_MS,
        keep_ms=5 * _MINUTE_MS,
        says="{value} of the rows of query {query} come late and are dropped, over {threshold}",
        advice="a longer delay of the watermark keeps more of them, and more state",
    ),
    AlertRule(
        "skew",
        "holdfast_skew_ratio",
        STORE,
        for_ms=5 * _MINUTE_MS,
        keep_ms=5 * _MINUTE_MS,
        says="one partition of operator {operator} of query {query} has {value} times the mean",
        advice="see which keys it is with `holdfast skew`; split hot ones, or rescale",
    ),
    AlertRule(
        "savepoint_age",
        "holdfast_savepoint_age_seconds",
        QUERY,
        says="the newest savepoint of query {query} is {value} old, over {threshold}",
        advice="see why none was taken in `holdfast status`",
    ),
    AlertRule(
        "drill_time",
        "holdfast_drill_seconds",
        QUERY,
        says="the last drill of query {query} took {value}, over {threshold}",
        advice="`holdfast drill` says which phase takes it; savepoints of less state recover sooner",
    ),
    AlertRule(
        "snapshots_repaired",
        "holdfast_snapshots_repaired_lately",
        QUERY,
        severity=CRITICAL,
        says="Spark could not read {value} snapshots of query {query} and made them anew from older ones",
        advice="the storage loses or damages files: `holdfast checkpoint verify` names them",
    ),
    AlertRule(
        "format_version",
        "holdfast_state_format_version",
        QUERY,
        above=False,
        says="query {query} writes state-checkpoint format {value}, where a repeated task overwrites files",
        advice="new checkpoints of `hf.configure` and `holdfast run` have format 2; till then, savepoints",
    ),
    AlertRule(
        "job_failed",
        "holdfast_job_failed",
        JOB,
        severity=CRITICAL,
        says="job {job_name} has failed for good",
        advice="read why in `holdfast status`, mend it, and start it again: it goes on where it stopped",
    ),
)

BY_RULE: Final[Mapping[str, AlertRule]] = {rule.name: rule for rule in RULES}


def shown_value(value: float, unit: str) -> str:
    """A measured number as a person reads it."""
    if unit == "bytes":
        return rounded_size(value)
    if unit == "seconds":
        return rounded_duration(value * 1000)
    return f"{value:.1%}" if unit == "ratio" and value <= 1 else f"{value:.4g}"
