"""The metrics of a checkpoint's files, which Spark does not report: partitions, format, bytes to read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from holdfast.checkpoints.checkpoint import CheckpointReport, batch_times, read
from holdfast.checkpoints.state.contents import shares
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.formats.providers import PROVIDERS
from holdfast.json_shapes import JsonShape
from holdfast.observe.batch_numbers import watermark_numbers
from holdfast.observe.metrics import SKEW_FROM_BYTES, MetricSample, sample, samples_of
from holdfast.storage.port import Storage

ROCKSDB: Final = PROVIDERS[ROCKSDB_PROVIDER]


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The sizes of one store of one operator.

    Attributes:
        operator: The name of the operator in metrics.
        store: The store's name.
        bytes: The bytes of each partition, in order.
        rows: The rows of each partition, if counted.
    """

    operator: str
    store: str
    bytes: tuple[int, ...]
    rows: tuple[int | None, ...]

    @property
    def skew(self) -> float | None:
        """Return the ratio of the largest partition to the mean; None for a store too small to judge."""
        total = sum(self.bytes)
        if total < SKEW_FROM_BYTES or len(self.bytes) < 2:
            return None
        return max(self.bytes) * len(self.bytes) / total


@dataclass(frozen=True, slots=True)
class FileFacts(JsonShape):
    """The facts about a checkpoint's files at one time.

    Attributes:
        at_ms: The time when the files were read.
        batch_id: The newest committed batch; None before the first.
        watermark_ms: The watermark of the next batch.
        format_version: The state checkpoint format; None without state, and for state on the heap, which
            always uses 1.
        files: The number of state files that a restart reads.
        new_bytes: The number of bytes that the newest batch added.
        stores: The sizes of the stores of all operators.
        committed_ms: The commit time of that batch, in epoch milliseconds; None if unknown.
        duration_ms: The time from the end of that batch's planning to its commit; None if unknown.
    """

    at_ms: int
    batch_id: int | None
    watermark_ms: int | None
    format_version: int | None
    files: int
    new_bytes: int
    stores: tuple[StoreFiles, ...]
    committed_ms: int | None = None
    duration_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of state that a restart reads."""
        return sum(sum(store.bytes) for store in self.stores)


def look(storage: Storage, now_ms: int) -> FileFacts:
    """Read the facts of a checkpoint's files, whether or not its query is running.

    Cost: lists each store's directory and reads a few small files; the state itself is not read.

    Raises:
        NotFound: The checkpoint does not exist yet.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    checkpoint = read(storage)
    operators = checkpoint.operators
    versions = [operator.format_version for operator in operators if checkpoint.provider == ROCKSDB]
    committed_ms = duration_ms = None
    if checkpoint.batch_id is not None and checkpoint.planned_ms is not None:
        committed_ms, duration_ms = batch_times(storage, checkpoint.batch_id, checkpoint.planned_ms)
    return FileFacts(
        at_ms=now_ms,
        batch_id=checkpoint.batch_id,
        watermark_ms=checkpoint.watermark_ms,
        format_version=min(versions, default=None),
        files=sum(len(store.files) for operator in operators for store in operator.stores),
        new_bytes=checkpoint.new_bytes,
        stores=_stores(checkpoint),
        committed_ms=committed_ms,
        duration_ms=duration_ms,
    )


def file_samples(job: str, query: str, facts: FileFacts) -> list[MetricSample]:
    """Return the metrics of a checkpoint's files."""
    numbers = samples_of(
        (job, query),
        {
            "holdfast_checkpoint_bytes": facts.size_bytes,
            "holdfast_checkpoint_new_bytes": facts.new_bytes,
            "holdfast_checkpoint_files": facts.files,
            "holdfast_state_format_version": facts.format_version,
        },
    )
    for store in facts.stores:
        numbers += _store_samples((job, query, store.operator, store.store), store)
    return numbers


def alone_samples(job: str, query: str, facts: FileFacts, now_ms: int) -> list[MetricSample]:
    """Return the metrics that files alone provide, for a query whose progress is not received."""
    sizes: Counter[str] = Counter()
    for store in facts.stores:
        sizes[store.operator] += sum(store.bytes)
    known = {
        "holdfast_batch_id": facts.batch_id,
        "holdfast_last_commit_timestamp_seconds": _in_seconds(facts.committed_ms),
        "holdfast_checkpoint_duration_seconds": _in_seconds(facts.duration_ms),
        **watermark_numbers(facts.watermark_ms, now_ms),
    }
    return [
        *file_samples(job, query, facts),
        *samples_of((job, query), known),
        *(sample("holdfast_state_bytes", size, job, query, operator) for operator, size in sizes.items()),
    ]


def _in_seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _stores(checkpoint: CheckpointReport) -> tuple[StoreFiles, ...]:
    return tuple(
        StoreFiles(
            store.named.label,
            store.store,
            tuple(partition.bytes for partition in store.partitions),
            tuple(partition.rows for partition in store.partitions),
        )
        for store in shares(checkpoint)
    )


def _store_samples(labels: tuple[str, ...], store: StoreFiles) -> list[MetricSample]:
    numbers = samples_of(labels, {"holdfast_skew_ratio": store.skew})
    total = max(sum(store.bytes), 1)
    for partition, (size, rows) in enumerate(zip(store.bytes, store.rows, strict=True)):
        counted = {
            "holdfast_partition_bytes": size,
            "holdfast_partition_share_ratio": size / total,
            "holdfast_partition_rows": rows,
        }
        numbers += samples_of((*labels, str(partition)), counted)
    return numbers
