"""The list of all metrics, and the type of their measured values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json_as

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
_UNITS: Final = ("seconds", "bytes", "rows", "ratio")

# The labels that all metrics of a job have. Prometheus reserves `job`, so the label with the name is
# `job_name`.
JOB: Final = ("job_name",)
QUERY: Final = (*JOB, "query")
OPERATOR: Final = (*QUERY, "operator")
STORE: Final = (*OPERATOR, "store")
KEYED_STATE: Final = (*OPERATOR, "state")
PARTITION: Final = (*STORE, "partition")
SOURCE: Final = (*QUERY, "source", "topic", "partition")

# The time range of metrics that cover a recent period.
LATELY_MS: Final = 600_000
# The minimum size of a store for a meaningful distribution.
SKEW_FROM_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Metric(JsonShape):
    """A metric.

    Attributes:
        name: The name in Prometheus and JSON, which ends in the unit, or in `_total` for a counter.
        kind: `gauge` or `counter`, from the name.
        unit: `seconds`, `bytes`, `rows` or `ratio`, from the name; empty for a count.
        labels: The labels of the series.
        meaning: The description, as a sentence.
        source: The source of the values.
    """

    name: str
    kind: str = field(init=False)
    unit: str = field(init=False)
    labels: tuple[str, ...]
    meaning: str
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", COUNTER if self.name.endswith("_total") else GAUGE)
        unit = next((word for word in reversed(self.name.split("_")) if word in _UNITS), "")
        object.__setattr__(self, "unit", unit)


_BATCH = "progress of the newest batch"
_ALL = "progress of all batches, continued over restarts"
_LAG = "source offsets when the last batches were planned"
_STORE = "the store's own counters of the newest batch"
_KEYED = "counters of the tasks of keyed operators in the newest batch"
_FILES = "the files of the checkpoint, checked periodically"
_ATTEMPTS = "the attempts of the job"
_SIZING = "the last fifty batches with rows, and the times of their tasks"

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "holdfast_up",
        JOB,
        "1 while a process supervises or watches the job, otherwise 0.",
        "the supervisor's lock",
    ),
    Metric("holdfast_job_failed", JOB, "1 if the job has failed permanently, otherwise 0.", "the registry"),
    Metric("holdfast_uptime_seconds", JOB, "Time since the current driver started.", _ATTEMPTS),
    Metric("holdfast_restarts_total", JOB, "Drivers that were started after a failure.", _ATTEMPTS),
    Metric(
        "holdfast_checkpoint_failures_total",
        (*JOB, "cause"),
        "Batches that failed before they were committed, by cause.",
        _ATTEMPTS,
    ),
    Metric(
        "holdfast_checkpoint_failures_lately",
        JOB,
        "Batches that failed in the last ten minutes, all causes together.",
        _ATTEMPTS,
    ),
    Metric(
        "holdfast_recovery_seconds",
        JOB,
        "Time from a failure to the next commit, over all attempts; during a recovery, the time so far."
        " Excludes waiting for rows once the queries run again.",
        _ATTEMPTS,
    ),
    Metric(
        "holdfast_recovery_lately_seconds",
        JOB,
        "Duration of a recovery that is running or that ended in the last ten minutes.",
        _ATTEMPTS,
    ),
    Metric("holdfast_batch_id", QUERY, "The newest committed batch.", _BATCH),
    Metric("holdfast_batches_total", QUERY, "Committed batches.", _ALL),
    Metric("holdfast_last_commit_timestamp_seconds", QUERY, "When the newest batch was committed.", _BATCH),
    Metric("holdfast_input_rows_total", QUERY, "Rows read from the sources.", _ALL),
    Metric("holdfast_input_rows_per_second", QUERY, "Input rows per second, as reported by Spark.", _BATCH),
    Metric(
        "holdfast_processed_rows_per_second",
        QUERY,
        "Processed rows per second, as reported by Spark.",
        _BATCH,
    ),
    Metric(
        "holdfast_checkpoint_duration_seconds",
        QUERY,
        "Duration of the newest batch up to its commit; that of the running batch, once it is longer. In"
        " real-time mode without the trigger interval.",
        _BATCH,
    ),
    Metric(
        "holdfast_batch_phase_seconds",
        (*QUERY, "phase"),
        "Duration of each phase of the newest batch, by Spark's phase names.",
        _BATCH,
    ),
    Metric(
        "holdfast_watermark_timestamp_seconds",
        QUERY,
        "The watermark of the newest batch.",
        _BATCH,
    ),
    Metric("holdfast_watermark_lag_seconds", QUERY, "How far the watermark is behind the clock.", _BATCH),
    Metric(
        "holdfast_watermark_stuck_seconds",
        QUERY,
        "How long the watermark has not moved although rows arrived.",
        "progress of the last batches",
    ),
    Metric(
        "holdfast_lag_records",
        QUERY,
        "Unread records when the newest batch was planned; absent if no source reports them.",
        _BATCH,
    ),
    Metric(
        "holdfast_lag_versions",
        QUERY,
        "Unread versions of Delta tables when the newest batch finished.",
        _BATCH,
    ),
    Metric(
        "holdfast_lag_seconds",
        QUERY,
        "How long the oldest unread record or version has waited; a lower bound if it is older than the"
        " known batches.",
        _LAG,
    ),
    Metric(
        "holdfast_lag_growing_seconds",
        QUERY,
        "How long the lag has been growing; 0 while the oldest unread record has waited for less than a"
        " minute.",
        _LAG,
    ),
    Metric(
        "holdfast_source_lag_records",
        SOURCE,
        "Unread records of a topic's partition; `all` for the whole topic, if it has over 200 partitions.",
        _BATCH,
    ),
    Metric(
        "holdfast_source_lag_versions",
        SOURCE,
        "Unread versions of a Delta table, which is the label `topic`.",
        _BATCH,
    ),
    Metric(
        "holdfast_source_lag_seconds",
        SOURCE,
        "How long the oldest unread record or version of the partition has waited.",
        _LAG,
    ),
    Metric("holdfast_late_rows_total", QUERY, "Rows dropped as late.", _ALL),
    Metric(
        "holdfast_late_rows_ratio",
        QUERY,
        "Late rows as a share of all rows of the last ten minutes.",
        "progress of the last batches",
    ),
    Metric(
        "holdfast_state_rows",
        OPERATOR,
        "Rows in the state; for a keyed operator its keys, absent while some of its key groups are not"
        " counted.",
        _BATCH,
    ),
    Metric(
        "holdfast_state_bytes",
        OPERATOR,
        "Size of the store: RocksDB's SST files; its memory before the first file, and on the heap.",
        _STORE,
    ),
    Metric("holdfast_state_memory_bytes", OPERATOR, "Memory of the store.", _BATCH),
    Metric(
        "holdfast_state_rows_updated_total",
        OPERATOR,
        "Rows written to the state; for a keyed operator its keys.",
        _ALL,
    ),
    Metric(
        "holdfast_state_rows_removed_total",
        OPERATOR,
        "Rows removed from the state; for a keyed operator its keys.",
        _ALL,
    ),
    Metric("holdfast_state_timers", OPERATOR, "Registered timers of a keyed operator.", _KEYED),
    Metric(
        "holdfast_state_entries",
        KEYED_STATE,
        "Entries of a keyed operator's state: keys with a value, list elements, map entries.",
        _KEYED,
    ),
    Metric(
        "holdfast_state_entries_bytes",
        KEYED_STATE,
        "Bytes of a keyed operator's state before compression, including old values not yet cleaned up.",
        _KEYED,
    ),
    Metric(
        "holdfast_state_expired_total",
        KEYED_STATE,
        "Values of a keyed operator's state that were removed or replaced after their TTL.",
        "counters of the tasks of keyed operators in all batches",
    ),
    Metric(
        "holdfast_state_uncounted_groups",
        OPERATOR,
        "Key groups of a keyed operator, written by an older Holdfast, that are not yet counted.",
        _KEYED,
    ),
    Metric(
        "holdfast_state_access_seconds",
        OPERATOR,
        "Mean time of one access: a get or put in RocksDB, a request to a database that holds the state, or"
        " a lookup or write of one key in a keyed operator. Spark does not measure it for state on the"
        " heap.",
        _STORE,
    ),
    Metric(
        "holdfast_state_access_quantile_seconds",
        (*OPERATOR, "quantile"),
        "The 0.5, 0.95, 0.99 and 1 quantiles of the time of single accesses, interpolated in a histogram:"
        " requests to a database, from 1 ms to 5 s, or for a keyed operator the reads and writes of its"
        " tasks, from 64 µs to 16.8 s. Absent for Spark's operators on RocksDB and the heap.",
        _STORE,
    ),
    Metric(
        "holdfast_state_access_batches_seconds",
        (*OPERATOR, "quantile"),
        "The 0.5, 0.95, 0.99 and 1 quantiles over the batches of the last ten minutes of each batch's mean:"
        " of holdfast_state_access_seconds, or on the heap of holdfast_state_update_seconds.",
        "the store's own counters of the last batches",
    ),
    Metric(
        "holdfast_state_update_seconds",
        OPERATOR,
        "Mean time of the tasks per row that the operator updated or removed, with the processing of its"
        " input. Absent for keyed operators.",
        _BATCH,
    ),
    Metric(
        "holdfast_state_operations_total",
        (*OPERATOR, "operation"),
        "Gets and puts; for a keyed operator the keys looked up and written; for state in a database its"
        " requests, as operation `request`.",
        "the store's own counters of all batches",
    ),
    Metric(
        "holdfast_state_operations_seconds_total",
        (*OPERATOR, "operation"),
        "Total time of the gets, puts or requests.",
        "the store's own counters of all batches",
    ),
    Metric("holdfast_state_commit_seconds", OPERATOR, "Total time of all tasks to commit state.", _BATCH),
    Metric("holdfast_state_load_seconds", OPERATOR, "Total time of all tasks to load state.", _STORE),
    Metric(
        "holdfast_cache_hit_ratio",
        OPERATOR,
        "Share of reads served from the block cache; on the heap, from loaded versions.",
        _STORE,
    ),
    Metric(
        "holdfast_snapshots_repaired_total",
        OPERATOR,
        "Snapshots that Spark could not read and rebuilt from older ones.",
        "the store's own counters of all batches",
    ),
    Metric(
        "holdfast_snapshots_repaired_lately",
        OPERATOR,
        "Snapshots that Spark rebuilt in the last ten minutes.",
        "the store's own counters of the last batches",
    ),
    Metric(
        "holdfast_state_full_seconds",
        QUERY,
        "Time until the state reaches its size limit at its current growth; absent if it does not grow, or"
        " has reached the limit.",
        "linear trends of the sizes and keys of the last batches",
    ),
    Metric(
        "holdfast_operator_full_seconds",
        OPERATOR,
        "Time until the operator's state reaches its limit, if the other operators keep their size.",
        "linear trends of the sizes and keys of the last batches",
    ),
    Metric(
        "holdfast_provisioning",
        (*QUERY, "state"),
        "1 for the current verdict on the query's resources: `over_provisioned`, `right`, ….",
        _SIZING,
    ),
    Metric(
        "holdfast_allowed_seconds",
        QUERY,
        "Maximum duration of a batch: the trigger interval, or the threshold of `checkpoint_duration`.",
        _SIZING,
    ),
    Metric(
        "holdfast_critical_seconds",
        QUERY,
        "Shortest duration of a batch with any number of cores: the driver's time and the longest tasks.",
        _SIZING,
    ),
    Metric("holdfast_cores", QUERY, "Tasks that can run at the same time.", _SIZING),
    Metric(
        "holdfast_recommended_cores",
        QUERY,
        "Recommended number of cores; absent if it is unknown, or if no number is enough.",
        _SIZING,
    ),
    Metric("holdfast_partitions", QUERY, "Partitions of the state.", _SIZING),
    Metric("holdfast_recommended_partitions", QUERY, "Recommended number of partitions.", _SIZING),
    Metric(
        "holdfast_recommended_memory_bytes",
        QUERY,
        "Recommended memory for the stores of the query's state.",
        _SIZING,
    ),
    Metric(
        "holdfast_key_share_ratio",
        (*QUERY, "name"),
        "Share of the heaviest watched key in all rows.",
        _BATCH,
    ),
    Metric(
        "holdfast_partition_bytes", PARTITION, "Bytes of the partition's state that a restart reads.", _FILES
    ),
    Metric(
        "holdfast_partition_rows",
        PARTITION,
        "Rows in the base of a partition, if RocksDB counts them.",
        _FILES,
    ),
    Metric(
        "holdfast_partition_share_ratio",
        PARTITION,
        "Share of the partition in the bytes of its store.",
        _FILES,
    ),
    Metric(
        "holdfast_skew_ratio",
        STORE,
        "Size of the largest partition relative to the mean; absent below 16 MiB.",
        _FILES,
    ),
    Metric("holdfast_checkpoint_bytes", QUERY, "Bytes of state that a restart of the query reads.", _FILES),
    Metric("holdfast_checkpoint_new_bytes", QUERY, "Bytes that the newest batch added.", _FILES),
    Metric("holdfast_checkpoint_files", QUERY, "Number of state files that a restart reads.", _FILES),
    Metric(
        "holdfast_state_format_version",
        QUERY,
        "State checkpoint format of the newest commit; only for RocksDB.",
        _FILES,
    ),
    Metric(
        "holdfast_savepoint_age_seconds",
        QUERY,
        "Time since the supervisor's newest savepoint; before the first, since the job started.",
        "the registry",
    ),
    Metric(
        "holdfast_savepoint_duration_seconds", QUERY, "Time to take the newest savepoint.", "the registry"
    ),
    Metric("holdfast_savepoint_bytes", QUERY, "Bytes of the newest savepoint's files.", "the registry"),
    Metric(
        "holdfast_mirror_age_seconds",
        QUERY,
        "Time since the mirror had all committed batches: what a loss of the checkpoint would cost now.",
        "`holdfast mirror`",
    ),
    Metric(
        "holdfast_drill_seconds",
        QUERY,
        "Time of the newest drill, from the decision to recover to the first commit.",
        "the drills in the savepoint catalog",
    ),
    Metric(
        "holdfast_alert_threshold",
        (*JOB, "rule"),
        "The threshold of each enabled alert rule of the job.",
        "the job's settings",
    ),
    Metric(
        "holdfast_measured_timestamp_seconds",
        JOB,
        "When the job's metrics were collected.",
        "the clock",
    ),
)

BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class MetricSample(JsonShape):
    """A measured value.

    Attributes:
        metric: The name of the metric.
        labels: The values of the labels, in order.
        value: The measured value.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        query = events.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        with hf.watch(query, name="drinks") as watch:
            query.processAllAvailable()
            query.stop()
            samples: tuple[hf.MetricSample, ...] = watch.metrics()
        assert "holdfast_up" in {sample.metric for sample in samples}
    """

    metric: str
    labels: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    value: float

    @property
    @in_json_as("labels")
    def named(self) -> dict[str, str]:
        """Return the labels by name."""
        return dict(zip(BY_NAME[self.metric].labels, self.labels, strict=True))


def sample(metric: str, value: float, *labels: str) -> MetricSample:
    """Return a sample of a listed metric, with a value for each of its labels."""
    expected = BY_NAME[metric].labels
    if len(labels) != len(expected):
        raise ValueError(f"{metric} has the labels {', '.join(expected)}")
    return MetricSample(metric, labels, float(value))


def samples_of(labels: tuple[str, ...], values: Mapping[str, float | None]) -> list[MetricSample]:
    """Return samples of several metrics with the same labels; unknown values are omitted."""
    return [sample(metric, value, *labels) for metric, value in values.items() if value is not None]


def by_metric(samples: Iterable[MetricSample]) -> dict[str, list[MetricSample]]:
    """Group samples by metric."""
    numbers: dict[str, list[MetricSample]] = {}
    for number in samples:
        numbers.setdefault(number.metric, []).append(number)
    return numbers


def packed(samples: Iterable[MetricSample]) -> list[list[Any]]:
    """Return samples as compact plain values, which `unpacked` reads."""
    return [[number.metric, list(number.labels), number.value] for number in samples]


def unpacked(rows: Iterable[Iterable[Any]]) -> tuple[MetricSample, ...]:
    """Build samples from the result of `packed`; unknown metrics of other versions are omitted."""
    return tuple(
        MetricSample(metric, tuple(labels), float(value))
        for metric, labels, value in rows
        if metric in BY_NAME and len(labels) == len(BY_NAME[metric].labels)
    )
