"""What each batch did: its offsets, its watermark, and the state files it added."""

from __future__ import annotations

from collections import Counter
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import listed_stores
from holdfast.checkpoints.logs.logs import Logs, written_ms
from holdfast.checkpoints.problems import no_checkpoint
from holdfast.checkpoints.stores import noted_operators
from holdfast.checkpoints.values import Batch, OperatorBatch, ProgressCallback
from holdfast.layout import Log
from holdfast.storage.port import Storage

# What tells how long a batch took: a supervisor, or nothing but the times of the log files.
FROM_REGISTRY: Final = "registry"
FROM_FILES: Final = "files"
# Spark writes a batch's offsets so soon after the time that they bear; later ones are of a copy.
_PLANNING_MS: Final = 60_000


def history(
    storage: Storage, last: int | None = None, tell: ProgressCallback | None = None
) -> tuple[Batch, ...]:
    """The committed batches that the checkpoint still knows, oldest first.

    Spark keeps the newest batches only (`spark.sql.streaming.minBatchesToRetain`, 100 by default), so this is
    no substitute for metrics. A running query may delete a batch's files while they are counted; what is gone
    counts as nothing.

    Cost: one listing of each store's folder, the size of each state file, the logs of each batch, and the
    index of each RocksDB snapshot.

    Args:
        storage: The checkpoint.
        last: Only so many of the newest batches.
        tell: Called with stores done, stores in all, and a note.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    if not logs.offered and not logs.committed and storage.size(layout.METADATA) is None:
        raise no_checkpoint(storage)
    batches = logs.committed if last is None else logs.committed[max(len(logs.committed) - last, 0) :]
    operators = noted_operators(storage, logs.newest)
    total = sum(len(operator.folder.partitions) for operator in operators)
    added: list[dict[int, OperatorBatch]] = []
    done = 0
    for operator in operators:
        files: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for partition in operator.folder.partitions:
            for folder in listed_stores(storage, logs, operator, partition):
                for batch_id in batches:
                    count, size = folder.new_bytes(batch_id + 1)
                    files[batch_id] += count
                    sizes[batch_id] += size
            done += 1
            if tell is not None:
                tell(done, total, "reading partitions")
        name = operator.named
        added.append(
            {
                batch_id: OperatorBatch(name.operator_id, name.spark_name, count, sizes[batch_id], name)
                for batch_id, count in files.items()
            }
        )
    made = (_batch(storage, logs, batch_id, added) for batch_id in batches)
    return tuple(batch for batch in made if batch is not None)


def _batch(
    storage: Storage, logs: Logs, batch_id: int, added: list[dict[int, OperatorBatch]]
) -> Batch | None:
    offsets, commit = logs.offsets(batch_id), logs.commit(batch_id)
    if offsets is None or commit is None:
        return None  # the query has forgotten this batch since the logs were listed
    committed_ms = written_ms(storage, Log.COMMITS, batch_id)
    offered_ms = written_ms(storage, Log.OFFSETS, batch_id)
    duration_ms = None
    if committed_ms is not None and offered_ms is not None:
        # The files of a copy bear the time of the copying.
        if 0 <= offered_ms - offsets.timestamp_ms <= _PLANNING_MS and committed_ms >= offered_ms:
            duration_ms = committed_ms - offered_ms
        else:
            committed_ms = None
    return Batch(
        batch_id=batch_id,
        planned_ms=offsets.timestamp_ms,
        watermark_ms=offsets.watermark_ms or None,
        next_watermark_ms=commit.next_watermark_ms or None,
        offsets=dict(offsets.offsets),
        operators=tuple(counts[batch_id] for counts in added if batch_id in counts),
        committed_ms=committed_ms,
        duration_ms=duration_ms,
        duration_source=None if duration_ms is None else FROM_FILES,
    )
