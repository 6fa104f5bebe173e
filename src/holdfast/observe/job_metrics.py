"""Metrics of a job and its operators other than those of its batches, and counters kept over restarts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.formats.access_times import keyed_times, request_times
from holdfast.formats.operators import KEYED_WORDS, kind_in_words, short_name
from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.metrics import LATELY_MS, MetricSample, sample, samples_of


@dataclass(frozen=True, slots=True)
class TakenSavepoint:
    """The newest savepoint of a query.

    Attributes:
        at_ms: When it was taken.
        took_ms: The time to take it.
        size_bytes: The bytes of its files.
    """

    at_ms: int
    took_ms: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about a job at one time.

    Attributes:
        name: The job's name.
        up: Whether a process supervises or watches the job.
        failed: Whether the job has failed permanently.
        started_ms: The time when the job was started.
        running_ms: The time when the current driver was started.
        restarts: The number of drivers started after a failure.
        failures: The number of failed batches, by cause.
        failed_ms: The time of the newest failure.
        recovery_ms: The duration of the last recovery.
        recovered_ms: The time when the last recovery ended; None if unknown.
        recovering_since_ms: The time of the failure from which the job is still recovering; None otherwise.
        savepoints: The time of the newest savepoint of each query with savepoints; None before its first.
        drills_ms: The duration of the newest drill of each query.
        mirrored_ms: The time at which the mirror of each mirrored query had all committed batches.
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
    mirrored_ms: Mapping[str, int] = field(default_factory=dict)


def job_samples(facts: JobFacts, now_ms: int, busy_since_ms: int | None = None) -> list[MetricSample]:
    """Return the metrics of a job as a whole.

    Args:
        facts: The facts about the job.
        now_ms: The current time in epoch milliseconds.
        busy_since_ms: The time since which a query has been working; None if all wait for rows.
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
    for query, at_ms in facts.mirrored_ms.items():
        numbers.append(sample("holdfast_mirror_age_seconds", (now_ms - at_ms) / 1000, facts.name, query))
    for query, took_ms in facts.drills_ms.items():
        numbers.append(sample("holdfast_drill_seconds", took_ms / 1000, facts.name, query))
    return numbers


def _recovering_ms(facts: JobFacts, now_ms: int, busy_since_ms: int | None) -> int | None:
    """Return the duration of the current recovery so far, without the time that queries wait for rows."""
    since_ms, running_ms = facts.recovering_since_ms, facts.running_ms
    if since_ms is None:
        return None
    if running_ms is None or running_ms < since_ms:
        return now_ms - since_ms
    at_work_ms = 0 if busy_since_ms is None else now_ms - max(busy_since_ms, running_ms)
    return running_ms - since_ms + max(at_work_ms, 0)


def _lately_ms(facts: JobFacts, now_ms: int, recovering_ms: int | None) -> int | None:
    """Return the duration of the current or the newest recovery since the start of the job."""
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


# The labels of a counter after the name of the job: query, operator and operation, if it has them.
Key = tuple[str, tuple[str, ...]]

_OPERATIONS: Final = (
    ("get", "rocksdbGetCount", "rocksdbGetLatency"),
    ("put", "rocksdbPutCount", "rocksdbPutLatency"),
)


def operator_label(index: int, operator: OperatorProgress) -> str:
    """Return the name of an operator in metrics: its number in the plan and its short name."""
    return f"{index} {shown_name(operator)}"


def shown_name(operator: OperatorProgress) -> str:
    """Return the name of an operator for display."""
    return operator.display_name or short_name(operator.name)


def shown_kind(operator: OperatorProgress) -> str:
    """Return the kind of an operator for display."""
    if operator.operator_kind is not None:
        return operator.operator_kind
    return kind_in_words(operator.name) if operator.keyed is None else KEYED_WORDS


def accesses(operator: OperatorProgress) -> dict[str, tuple[int, float]]:
    """Return the number of accesses to state in a batch, and their total time in seconds, by operation.

    RocksDB reports gets and puts, and a store in a database reports its requests; a store on the heap reports
    nothing. For a keyed operator, the result counts the keys that were looked up and written, because a row
    of its store is the blob of a whole key group.
    """
    keyed = operator.keyed
    if keyed is not None:
        return {"get": (keyed.touched, keyed.read_us / 1e6), "put": (keyed.written, keyed.write_us / 1e6)}
    store = operator.store
    requests = request_times(store)
    if requests is not None:
        return {"request": (requests.count, requests.seconds)}
    return {
        operation: (store[count], store.get(took_ms, 0) / 1000)
        for operation, count, took_ms in _OPERATIONS
        if count in store
    }


def repaired(operator: OperatorProgress) -> int:
    """Return the number of snapshots that Spark repaired in a batch, for any type of store."""
    store = operator.store
    return store.get("rocksdbNumSnapshotsAutoRepaired", 0) + store.get("numSnapshotsAutoRepaired", 0)


def _of_today(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the current labels of a counter from an older version, which used Spark's operator names."""
    if len(labels) == 1:
        return labels
    number, _, name = labels[1].partition(" ")
    return labels[0], f"{number} {short_name(name)}", *labels[2:]


class JobTotals:
    """The counters of a job: sums over all of its batches.

    Args:
        former: The earlier sums, as returned by `values`.
    """

    def __init__(self, former: Mapping[Key, float] | None = None) -> None:
        self._sums: dict[Key, float] = defaultdict(float)
        for (metric, labels), value in (former or {}).items():
            self._sums[metric, _of_today(labels)] += value

    @property
    def values(self) -> dict[Key, float]:
        """Return the sums so far."""
        return dict(self._sums)

    def add(self, batch: BatchProgress) -> None:
        """Add a committed batch to the sums, even if it ran again after a failure."""
        query = (batch.query,)
        self._add("holdfast_batches_total", query, 1)
        self._add("holdfast_input_rows_total", query, batch.input_rows)
        self._add("holdfast_late_rows_total", query, batch.late_rows)
        for index, operator in enumerate(batch.operators):
            labels = (batch.query, operator_label(index, operator))
            self._add("holdfast_state_rows_updated_total", labels, operator.updated)
            self._add("holdfast_state_rows_removed_total", labels, operator.removed)
            self._add("holdfast_snapshots_repaired_total", labels, repaired(operator))
            for operation, (count, seconds) in accesses(operator).items():
                self._add("holdfast_state_operations_total", (*labels, operation), count)
                self._add("holdfast_state_operations_seconds_total", (*labels, operation), seconds)
            for state in () if operator.keyed is None else operator.keyed.states:
                self._add("holdfast_state_expired_total", (*labels, state.name), state.expired)

    def samples(self, job: str) -> list[MetricSample]:
        """Return the counters as samples."""
        return [sample(metric, value, job, *labels) for (metric, labels), value in self._sums.items()]

    def _add(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        self._sums[metric, labels] += value


# The size of an operator's files that a restart reads, for a batch known from the checkpoint alone.
CHECKPOINT_FILE_BYTES: Final = "checkpointFileBytes"
# The measured quantiles of access times, as written in labels; the last one is the longest time.
QUANTILES: Final = ("0.5", "0.95", "0.99", "1")


def state_bytes(batch: BatchProgress) -> int:
    """Return the size of all operators' stores."""
    return sum(operator_bytes(operator) for operator in batch.operators)


def operator_bytes(operator: OperatorProgress) -> int:
    """Return the size of an operator's store.

    Until RocksDB has written its first file, the result is the size of its memory.
    """
    return stored_bytes(operator) or operator.memory_bytes


def access_seconds(operator: OperatorProgress) -> float | None:
    """Return the mean time of one access to state in seconds, over all operations; None if not measured."""
    by_operation = accesses(operator).values()
    count = sum(number for number, _ in by_operation)
    return sum(seconds for _, seconds in by_operation) / count if count else None


def access_quantiles(operator: OperatorProgress) -> dict[str, float]:
    """Return the quantiles of the times of single accesses, in seconds; empty if they are not measured.

    Measured are the requests to a database, and the reads and writes by the tasks of a keyed operator.
    """
    keyed = operator.keyed
    times = request_times(operator.store) if keyed is None else keyed_times(keyed.accesses)
    return {} if times is None else {name: times.quantile(float(name)) for name in QUANTILES}


def update_seconds(operator: OperatorProgress) -> float | None:
    """Return the mean time per row that an operator of Spark updated or removed, with its processing.

    The result is None for a keyed operator, and for a batch without such rows.
    """
    rows = operator.updated + operator.removed
    if operator.keyed is not None or operator.update_ms is None or not rows:
        return None
    return operator.update_ms / 1000 / rows


def batch_quantiles(operators: Iterable[OperatorProgress]) -> dict[str, float]:
    """Return the quantiles, over the batches of an operator, of the mean time of an access in each.

    For Spark's operators on the heap, whose accesses are not measured, it is the mean time of an update.
    """
    means = sorted(mean for mean in map(_mean_seconds, operators) if mean is not None)
    return {name: means[math.ceil(float(name) * len(means)) - 1] for name in QUANTILES if means}


def _mean_seconds(operator: OperatorProgress) -> float | None:
    is_on_heap = "stateOnCurrentVersionSizeBytes" in operator.store
    return update_seconds(operator) if is_on_heap else access_seconds(operator)


def cache_hit_ratio(operator: OperatorProgress) -> float | None:
    """Return the share of reads served from the cache, or for the heap, from loaded versions."""
    store = operator.store
    hits = store.get("rocksdbReadBlockCacheHitCount", 0) + store.get("loadedMapCacheHitCount", 0)
    misses = store.get("rocksdbReadBlockCacheMissCount", 0) + store.get("loadedMapCacheMissCount", 0)
    return hits / (hits + misses) if hits + misses else None


def stored_bytes(operator: OperatorProgress) -> int:
    """Return the size of the state without caches and buffers; 0 if it is not in files yet."""
    files = operator.store.get("rocksdbSstFileSize", 0) or operator.store.get(CHECKPOINT_FILE_BYTES, 0)
    return files or operator.store.get("stateOnCurrentVersionSizeBytes", 0)
