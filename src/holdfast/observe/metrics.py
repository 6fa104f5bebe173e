"""The list of metrics, and the values that measurements are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json_as

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
_UNITS: Final = ("seconds", "bytes", "rows", "ratio")

# What every number of a job carries. Prometheus keeps `job` for itself, so the job's name is `job_name`.
JOB: Final = ("job_name",)
QUERY: Final = (*JOB, "query")
OPERATOR: Final = (*QUERY, "operator")
STORE: Final = (*OPERATOR, "store")
KEYED_STATE: Final = (*OPERATOR, "state")
PARTITION: Final = (*STORE, "partition")
SOURCE: Final = (*QUERY, "source", "topic", "partition")

# How far back "lately" goes, in the metrics that say so.
LATELY_MS: Final = 600_000
# Of a smaller store it says nothing how its bytes are spread.
SKEW_FROM_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Metric(JsonShape):
    """Something that is measured.

    Attributes:
        name: As Prometheus and JSON have it; the unit stands last, a counter ends in `_total`.
        kind: `gauge` or `counter`; the name says which.
        unit: `seconds`, `bytes`, `rows` or `ratio`, as the name has it; empty where it is a number of things.
        labels: What tells its series apart.
        meaning: In a sentence.
        source: Where it comes from.
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
_ALL = "progress of all batches, counted on over restarts"
_LAG = "what the sources had when the last batches were planned"
_STORE = "the store's own counters of the newest batch"
_KEYED = "what the tasks of keyed operators counted in the newest batch"
_FILES = "the files of the checkpoint, looked at now and then"
_ATTEMPTS = "the attempts of the job"
_SIZING = "the last fifty batches with rows, and the times of their tasks"

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "holdfast_up", JOB, "1 while somebody supervises or watches the job, else 0.", "the supervisor's lock"
    ),
    Metric("holdfast_job_failed", JOB, "1 where the job has failed for good, else 0.", "the registry"),
    Metric("holdfast_uptime_seconds", JOB, "Since the driver that runs started.", _ATTEMPTS),
    Metric("holdfast_restarts_total", JOB, "Drivers that followed a failed one.", _ATTEMPTS),
    Metric(
        "holdfast_checkpoint_failures_total",
        (*JOB, "cause"),
        "Batches that ended in a failure and not in a checkpoint, by whose it is to mend.",
        _ATTEMPTS,
    ),
    Metric(
        "holdfast_checkpoint_failures_lately",
        JOB,
        "The same, of the last ten minutes, all causes together.",
        _ATTEMPTS,
    ),
    Metric(
        "holdfast_recovery_seconds",
        JOB,
        "From a failure to the next commit, however many drivers that takes; while it lasts, until now."
        " Without the wait for rows once the queries run again.",
        _ATTEMPTS,
    ),
    Metric(
        "holdfast_recovery_lately_seconds",
        JOB,
        "The same, of a recovery that is under way or has ended in the last ten minutes.",
        _ATTEMPTS,
    ),
    Metric("holdfast_batch_id", QUERY, "The newest committed batch.", _BATCH),
    Metric("holdfast_batches_total", QUERY, "Committed batches.", _ALL),
    Metric("holdfast_last_commit_timestamp_seconds", QUERY, "When it was committed.", _BATCH),
    Metric("holdfast_input_rows_total", QUERY, "Rows read from the sources.", _ALL),
    Metric("holdfast_input_rows_per_second", QUERY, "Rows that came in, as Spark has it.", _BATCH),
    Metric(
        "holdfast_processed_rows_per_second", QUERY, "Rows that were worked off, as Spark has it.", _BATCH
    ),
    Metric(
        "holdfast_checkpoint_duration_seconds",
        QUERY,
        "What the newest batch took to its commit; that of the batch which runs, once it takes longer. In"
        " real-time mode without the interval of the trigger.",
        _BATCH,
    ),
    Metric(
        "holdfast_batch_phase_seconds",
        (*QUERY, "phase"),
        "What it spent its time with, by Spark's names of the phases.",
        _BATCH,
    ),
    Metric(
        "holdfast_watermark_timestamp_seconds",
        QUERY,
        "The watermark that the newest batch ran under.",
        _BATCH,
    ),
    Metric("holdfast_watermark_lag_seconds", QUERY, "How far it lies behind the clock.", _BATCH),
    Metric(
        "holdfast_watermark_stuck_seconds",
        QUERY,
        "For how long it has not moved though rows came in.",
        "progress of the last batches",
    ),
    Metric(
        "holdfast_lag_records",
        QUERY,
        "Records that were left to be read when the newest batch was planned; absent where no source tells.",
        _BATCH,
    ),
    Metric(
        "holdfast_lag_versions",
        QUERY,
        "Versions of Delta tables that were left to be read when the newest batch was done.",
        _BATCH,
    ),
    Metric(
        "holdfast_lag_seconds",
        QUERY,
        "How long the oldest of them has waited; at least so long, where no batch before it is known.",
        _LAG,
    ),
    Metric(
        "holdfast_lag_growing_seconds",
        QUERY,
        "For how long fewer were left than now; 0 while the oldest has waited for less than a minute.",
        _LAG,
    ),
    Metric(
        "holdfast_source_lag_records",
        SOURCE,
        "The same of a partition of a topic; `all` stands for those of a topic, where there are over 200.",
        _BATCH,
    ),
    Metric("holdfast_source_lag_versions", SOURCE, "Those of one table, which is the `topic`.", _BATCH),
    Metric("holdfast_source_lag_seconds", SOURCE, "How long the oldest of them has waited.", _LAG),
    Metric("holdfast_late_rows_total", QUERY, "Rows dropped as late.", _ALL),
    Metric(
        "holdfast_late_rows_ratio",
        QUERY,
        "Their part of all rows of the last ten minutes.",
        "progress of the last batches",
    ),
    Metric(
        "holdfast_state_rows",
        OPERATOR,
        "Rows in state: keys of a keyed operator; absent while some of its key groups are not counted.",
        _BATCH,
    ),
    Metric(
        "holdfast_state_bytes",
        OPERATOR,
        "What the store takes: SST files of RocksDB; its memory before the first, and on the heap.",
        _STORE,
    ),
    Metric("holdfast_state_memory_bytes", OPERATOR, "Memory of the store.", _BATCH),
    Metric(
        "holdfast_state_rows_updated_total",
        OPERATOR,
        "Rows written to state: keys of a keyed operator.",
        _ALL,
    ),
    Metric(
        "holdfast_state_rows_removed_total", OPERATOR, "Rows taken out of it: keys of a keyed operator.", _ALL
    ),
    Metric("holdfast_state_timers", OPERATOR, "Timers of a keyed operator that are registered.", _KEYED),
    Metric(
        "holdfast_state_entries",
        KEYED_STATE,
        "Of a state of a keyed operator: keys with a value, elements of its lists, entries of its maps.",
        _KEYED,
    ),
    Metric(
        "holdfast_state_entries_bytes",
        KEYED_STATE,
        "Their bytes before compression, with former values that are not cleaned up yet.",
        _KEYED,
    ),
    Metric(
        "holdfast_state_expired_total",
        KEYED_STATE,
        "Values of a state of a keyed operator that were removed or replaced after their time had run out.",
        "what the tasks of keyed operators counted in all batches",
    ),
    Metric(
        "holdfast_state_uncounted_groups",
        OPERATOR,
        "Key groups of a keyed operator that an older Holdfast wrote and that are not counted yet.",
        _KEYED,
    ),
    Metric(
        "holdfast_state_access_seconds",
        OPERATOR,
        "The mean time of an access: a get or put in RocksDB, a request to a database that holds the state,"
        " or looking up or writing one key in a keyed operator. Spark measures none on the heap.",
        _STORE,
    ),
    Metric(
        "holdfast_state_access_quantile_seconds",
        (*OPERATOR, "quantile"),
        "The time that 0.5, 0.95 and 0.99 of the requests to a database took at most, interpolated between"
        " the limits of a histogram from 1 ms to 5 s. Absent for RocksDB and the heap.",
        _STORE,
    ),
    Metric(
        "holdfast_state_operations_total",
        (*OPERATOR, "operation"),
        "Gets and puts: keys that a keyed operator has looked up and written. Of state in a database its"
        " requests, with the operation `request`.",
        "the store's own counters of all batches",
    ),
    Metric(
        "holdfast_state_operations_seconds_total",
        (*OPERATOR, "operation"),
        "What they took together.",
        "the store's own counters of all batches",
    ),
    Metric(
        "holdfast_state_commit_seconds", OPERATOR, "What all tasks took together to commit state.", _BATCH
    ),
    Metric("holdfast_state_load_seconds", OPERATOR, "What all tasks took together to load state.", _STORE),
    Metric(
        "holdfast_cache_hit_ratio",
        OPERATOR,
        "Reads that the block cache answered; on the heap, versions that were still loaded.",
        _STORE,
    ),
    Metric(
        "holdfast_snapshots_repaired_total",
        OPERATOR,
        "Snapshots that Spark could not read and made anew from older ones.",
        "the store's own counters of all batches",
    ),
    Metric(
        "holdfast_snapshots_repaired_lately",
        OPERATOR,
        "The same, of the last ten minutes.",
        "the store's own counters of the last batches",
    ),
    Metric(
        "holdfast_state_full_seconds",
        QUERY,
        "How long until state is as large as it may be, if it grows on; absent if not, and once it is.",
        "lines through the sizes and the keys of the last batches",
    ),
    Metric(
        "holdfast_operator_full_seconds",
        OPERATOR,
        "The same of one operator, beside the others as they are now.",
        "lines through the sizes and the keys of the last batches",
    ),
    Metric(
        "holdfast_provisioning",
        (*QUERY, "state"),
        "1 for how what the query has compares with what it needs: `over_provisioned`, `right`, ….",
        _SIZING,
    ),
    Metric(
        "holdfast_allowed_seconds",
        QUERY,
        "How long a batch may take: the trigger's interval, else the threshold of `checkpoint_duration`.",
        _SIZING,
    ),
    Metric(
        "holdfast_critical_seconds",
        QUERY,
        "What a batch would take at least with any number of cores: the driver's time and the longest tasks.",
        _SIZING,
    ),
    Metric("holdfast_cores", QUERY, "Tasks that can run at once.", _SIZING),
    Metric(
        "holdfast_recommended_cores",
        QUERY,
        "How many would be right; absent where that is not known, and where no number would do.",
        _SIZING,
    ),
    Metric("holdfast_partitions", QUERY, "Partitions of the state.", _SIZING),
    Metric("holdfast_recommended_partitions", QUERY, "How many would be right.", _SIZING),
    Metric(
        "holdfast_recommended_memory_bytes",
        QUERY,
        "The memory that would be right for the stores of its state.",
        _SIZING,
    ),
    Metric(
        "holdfast_key_share_ratio",
        (*QUERY, "name"),
        "The part that the heaviest watched key has of all rows.",
        _BATCH,
    ),
    Metric("holdfast_partition_bytes", PARTITION, "State that a restart reads.", _FILES),
    Metric(
        "holdfast_partition_rows",
        PARTITION,
        "Rows in the base of a partition, where RocksDB counts them.",
        _FILES,
    ),
    Metric("holdfast_partition_share_ratio", PARTITION, "Its part of the bytes of the store.", _FILES),
    Metric(
        "holdfast_skew_ratio",
        STORE,
        "How many times the mean the largest partition has; absent below 16 MiB.",
        _FILES,
    ),
    Metric("holdfast_checkpoint_bytes", QUERY, "State that a restart of the query reads.", _FILES),
    Metric("holdfast_checkpoint_new_bytes", QUERY, "What the newest batch added.", _FILES),
    Metric("holdfast_checkpoint_files", QUERY, "State files that a restart reads.", _FILES),
    Metric(
        "holdfast_state_format_version",
        QUERY,
        "The state-checkpoint format of the newest commit; of RocksDB alone.",
        _FILES,
    ),
    Metric(
        "holdfast_savepoint_age_seconds",
        QUERY,
        "Since the newest savepoint that the supervisor took; before the first, since the job started.",
        "the registry",
    ),
    Metric("holdfast_savepoint_duration_seconds", QUERY, "What it took.", "the registry"),
    Metric("holdfast_savepoint_bytes", QUERY, "The bytes of its files.", "the registry"),
    Metric(
        "holdfast_drill_seconds",
        QUERY,
        "What the newest drill took from the decision to recover to the first commit.",
        "the drills of the savepoint catalog",
    ),
    Metric(
        "holdfast_alert_threshold",
        (*JOB, "rule"),
        "The threshold of each rule of the job that is on.",
        "the job's settings",
    ),
    Metric(
        "holdfast_measured_timestamp_seconds",
        JOB,
        "When the numbers of the job were put together.",
        "the clock",
    ),
)

BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Sample(JsonShape):
    """One number.

    Attributes:
        metric: The metric's name.
        labels: The values of its labels, in their order.
        value: The number.
    """

    metric: str
    labels: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    value: float

    @property
    @in_json_as("labels")
    def named(self) -> dict[str, str]:
        """The labels with their names."""
        return dict(zip(BY_NAME[self.metric].labels, self.labels, strict=True))


def sample(metric: str, value: float, *labels: str) -> Sample:
    """A number of a metric that is in the list, with a value for each of its labels."""
    expected = BY_NAME[metric].labels
    if len(labels) != len(expected):
        raise ValueError(f"{metric} has the labels {', '.join(expected)}")
    return Sample(metric, labels, float(value))


def samples_of(labels: tuple[str, ...], values: Mapping[str, float | None]) -> list[Sample]:
    """Numbers of several metrics with the same labels; one that is not known is left out."""
    return [sample(metric, value, *labels) for metric, value in values.items() if value is not None]


def by_metric(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Numbers by the name of their metric."""
    numbers: dict[str, list[Sample]] = {}
    for number in samples:
        numbers.setdefault(number.metric, []).append(number)
    return numbers


def packed(samples: Iterable[Sample]) -> list[list[Any]]:
    """Samples as short plain values; `unpacked` reads them back."""
    return [[number.metric, list(number.labels), number.value] for number in samples]


def unpacked(rows: Iterable[Iterable[Any]]) -> tuple[Sample, ...]:
    """Read what `packed` wrote; metrics of other versions are left out."""
    return tuple(
        Sample(metric, tuple(labels), float(value))
        for metric, labels, value in rows
        if metric in BY_NAME and len(labels) == len(BY_NAME[metric].labels)
    )
