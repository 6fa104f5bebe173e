"""The list of alert rules, which Holdfast's own evaluation and Prometheus use."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.json_shapes import JsonShape, in_json
from holdfast.observe.metrics import BY_NAME, JOB, OPERATOR, QUERY, STORE, MetricSample
from holdfast.quantities import rounded_duration, rounded_size

WARNING: Final = "warning"
CRITICAL: Final = "critical"
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class AlertRule(JsonShape):
    """An alert rule: a metric is above or below its threshold for a minimum time.

    Each job exports its threshold as `holdfast_alert_threshold`; without a threshold, the rule is off.

    Attributes:
        name: The name in settings.
        metric: The metric that is compared.
        by: The labels that identify an alert of the rule.
        says: The text of the alert, with the labels, `{value}` and `{threshold}`.
        advice: The first action to take.
        above: Whether values above the threshold violate the rule; if false, values below it do.
        for_ms: The time for which the condition must be true before the alert fires, in milliseconds.
        keep_ms: The time for which the condition must be false before the alert ends, in milliseconds.
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
        """The name of the alert in Prometheus: `HoldfastStateSize`."""
        return "Holdfast" + string.capwords(self.name, "_").replace("_", "")

    @property
    @in_json
    def unit(self) -> str:
        """The unit of value and threshold."""
        return BY_NAME[self.metric].unit

    def breached(self, value: float, threshold: float) -> bool:
        """Return whether a value violates a threshold."""
        return value > threshold if self.above else value < threshold

    def values(self, samples: Iterable[MetricSample]) -> dict[tuple[str, ...], float]:
        """Return the value of each series of the rule: the sum over its other labels."""
        sums: dict[tuple[str, ...], float] = {}
        for number in samples:
            if number.metric == self.metric:
                named = number.named
                key = tuple(named[label] for label in self.by)
                sums[key] = sums.get(key, 0.0) + number.value
        return sums

    def text(self, labels: Mapping[str, str], value: float, threshold: float) -> str:
        """Return the text of the alert."""
        shown = {"value": shown_value(value, self.unit), "threshold": shown_value(threshold, self.unit)}
        return self.says.format(**labels, **shown)


RULES: Final[tuple[AlertRule, ...]] = (
    AlertRule(
        "state_size",
        "holdfast_state_bytes",
        QUERY,
        keep_ms=_MINUTE_MS,
        says="the state of query {query} has grown to {value}, over {threshold}",
        advice="see which operator grows in `holdfast status`, and bound the state with a TTL or a watermark",
    ),
    AlertRule(
        "checkpoint_duration",
        "holdfast_checkpoint_duration_seconds",
        QUERY,
        keep_ms=_MINUTE_MS,
        says="a batch of query {query} takes {value}, over {threshold}",
        advice=(
            "see which phase takes the time in `holdfast_batch_phase_seconds`; smaller batches commit sooner"
        ),
    ),
    AlertRule(
        "checkpoint_failures",
        "holdfast_checkpoint_failures_lately",
        JOB,
        severity=CRITICAL,
        says="failed batches in the last ten minutes: {value}",
        advice="see the cause in `holdfast status`; the driver's log has the full error",
    ),
    AlertRule(
        "access_latency",
        "holdfast_state_access_seconds",
        OPERATOR,
        for_ms=_MINUTE_MS,
        keep_ms=_MINUTE_MS,
        says=(
            "one access to the state of operator {operator} of query {query} takes {value}, over {threshold}"
        ),
        advice="for RocksDB, check the cache hits and the disk of Spark's local directory, and give it"
        " more memory; for a database, check its load and the network",
    ),
    AlertRule(
        "recovery_time",
        "holdfast_recovery_lately_seconds",
        JOB,
        severity=CRITICAL,
        says="recovery takes {value}, over {threshold}",
        advice="see the attempts in `holdfast status`; `holdfast drill` shows how long each phase takes",
    ),
    AlertRule(
        "full_within",
        "holdfast_state_full_seconds",
        QUERY,
        above=False,
        for_ms=5 * _MINUTE_MS,
        keep_ms=5 * _MINUTE_MS,
        says="the state of query {query} reaches its limit in {value} at its current growth",
        advice="see which operator grows in `holdfast status`, and bound the state with a TTL or a watermark",
    ),
    AlertRule(
        "watermark_stuck",
        "holdfast_watermark_stuck_seconds",
        QUERY,
        says="the watermark of query {query} has not moved for {value} although rows arrive",
        advice="check for a source without events or with old ones: it holds back all other sources",
    ),
    AlertRule(
        "lag",
        "holdfast_lag_seconds",
        QUERY,
        for_ms=5 * _MINUTE_MS,
        keep_ms=_MINUTE_MS,
        says="query {query} is {value} behind its sources, over {threshold}",
        advice="see the number of records and the recommendation under SIZING in `holdfast status`",
    ),
    AlertRule(
        "lag_growing",
        "holdfast_lag_growing_seconds",
        QUERY,
        keep_ms=_MINUTE_MS,
        says="the lag of query {query} has been growing for {value}",
        advice=(
            "more rows arrive than are processed; see the recommendation under SIZING in `holdfast status`"
        ),
    ),
    AlertRule(
        "offsets_expiring",
        "holdfast_lag_seconds",
        QUERY,
        severity=CRITICAL,
        says="unread records of query {query} are {value} old, and their topic deletes old records",
        advice="first raise the topic's retention.ms: deleted records are lost",
    ),
    AlertRule(
        "late_rows",
        "holdfast_late_rows_ratio",
        QUERY,
        for_ms=_MINUTE_MS,
        keep_ms=5 * _MINUTE_MS,
        says="{value} of the rows of query {query} are dropped as late, over {threshold}",
        advice="raise the watermark's delay to keep more of them, at the price of more state",
    ),
    AlertRule(
        "skew",
        "holdfast_skew_ratio",
        STORE,
        for_ms=5 * _MINUTE_MS,
        keep_ms=5 * _MINUTE_MS,
        says="one partition of operator {operator} of query {query} is {value} times as large as the mean",
        advice="list the largest keys with `holdfast skew`; split hot keys, or rescale",
    ),
    AlertRule(
        "savepoint_age",
        "holdfast_savepoint_age_seconds",
        QUERY,
        says="the newest savepoint of query {query} is {value} old, over {threshold}",
        advice="see in `holdfast status` why no savepoint was taken",
    ),
    AlertRule(
        "mirror_age",
        "holdfast_mirror_age_seconds",
        QUERY,
        severity=CRITICAL,
        says="the mirror of query {query} is {value} behind, over {threshold}",
        advice="the output of `holdfast mirror` shows why nothing was copied",
    ),
    AlertRule(
        "drill_time",
        "holdfast_drill_seconds",
        QUERY,
        says="the last drill of query {query} took {value}, over {threshold}",
        advice="`holdfast drill` shows which phase takes the time; savepoints with less state recover faster",
    ),
    AlertRule(
        "snapshots_repaired",
        "holdfast_snapshots_repaired_lately",
        QUERY,
        severity=CRITICAL,
        says="Spark could not read {value} snapshots of query {query} and rebuilt them from older ones",
        advice="the storage loses or damages files; list them with `holdfast checkpoint verify`",
    ),
    AlertRule(
        "format_version",
        "holdfast_state_format_version",
        QUERY,
        above=False,
        says=(
            "query {query} writes state checkpoint format {value}, in which a repeated task overwrites files"
        ),
        advice=(
            "new checkpoints of `hf.configure` and `holdfast run` use format 2; until then, take savepoints"
        ),
    ),
    AlertRule(
        "job_failed",
        "holdfast_job_failed",
        JOB,
        severity=CRITICAL,
        says="job {job_name} has failed permanently",
        advice=(
            "see the cause in `holdfast status`, fix it, and start the job again; it resumes from its"
            " checkpoint"
        ),
    ),
)

BY_RULE: Final[Mapping[str, AlertRule]] = {rule.name: rule for rule in RULES}


def shown_value(value: float, unit: str) -> str:
    """Format a measured value for a message."""
    if unit == "bytes":
        return rounded_size(value)
    if unit == "seconds":
        return rounded_duration(value * 1000)
    return f"{value:.1%}" if unit == "ratio" and value <= 1 else f"{value:.4g}"
