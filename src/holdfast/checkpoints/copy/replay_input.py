"""What a checkpoint needs so that its next batch reads exactly what a batch of another checkpoint read.

Spark runs a batch again that is in the offset log and not in the commit log, with the offsets that stand
there. So two checkpoints of one savepoint read the same input in the same batches, if the second is given
each batch before it is started. It holds for sources that can give the same range twice: files by the list
that the source keeps of them, Kafka, Delta and the rate sources by their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.errors import NotFound
from holdfast.formats.logs.offset_log import OffsetLog
from holdfast.layout import Log, LogFile, SourceLogFile
from holdfast.storage.port import Storage, full


def batch_files(original: Storage, other: Storage, batch_id: int) -> tuple[tuple[str, bytes], ...]:
    """The files that make `other` run a batch as `original` ran it; the offset log's comes last.

    Time of processing is the original's too. The watermark is the other's own: it follows from its query.

    Cost: the source logs of both are listed, and what the other lacks is read.

    Args:
        original: A checkpoint that has planned this batch.
        other: A checkpoint whose newest batch is the one before.
        batch_id: The batch.

    Raises:
        NotFound: One of the two is not where it should be.
        Corrupt: A log cannot be read.
    """
    planned = _planned(original, Logs(original), batch_id)
    files = [(path, original.read(path)) for path in _sources(original, other)]
    return (*files, _next(other, Logs(other), planned, batch_id, planned.timestamp_ms))


def empty_batch(checkpoint: Storage, batch_id: int, now_ms: int) -> tuple[str, bytes]:
    """The file that makes a checkpoint run its next batch without any input: the offsets stay where they are.

    Raises:
        NotFound: The batch before is not in the logs.
        Corrupt: A log cannot be read.
    """
    logs = Logs(checkpoint)
    return _next(checkpoint, logs, _planned(checkpoint, logs, batch_id - 1), batch_id, now_ms)


def _planned(checkpoint: Storage, logs: Logs, batch_id: int) -> OffsetLog:
    planned = logs.offsets(batch_id)
    if planned is None:
        raise _missing(checkpoint, LogFile(Log.OFFSETS, batch_id))
    return planned


def _next(
    checkpoint: Storage, logs: Logs, planned: OffsetLog, batch_id: int, timestamp_ms: int
) -> tuple[str, bytes]:
    """The offset log's file of a batch, under the watermark that the checkpoint's own last batch has left."""
    before = logs.commit(batch_id - 1)
    if before is None:
        raise _missing(checkpoint, LogFile(Log.COMMITS, batch_id - 1))
    fields = {
        **(planned.fields or {}),
        "batchWatermarkMs": before.next_watermark_ms,
        "batchTimestampMs": timestamp_ms,
    }
    return LogFile(Log.OFFSETS, batch_id).render(), replace(planned, fields=fields).render()


def _sources(original: Storage, other: Storage) -> Iterator[str]:
    """What sources have noted for themselves, as far as the other does not have it.

    What they have noted of later batches does no harm: a batch that is run again reads what its offsets name.
    """
    for source in original.list(layout.SOURCES).names:
        folder = f"{layout.SOURCES}/{source}"
        present = frozenset(other.list(folder).names)
        for name in sorted(frozenset(original.list(folder).names) - present):
            if isinstance(layout.parse(f"{folder}/{name}"), SourceLogFile):
                yield f"{folder}/{name}"


def _missing(checkpoint: Storage, file: LogFile) -> NotFound:
    return NotFound(
        "a batch cannot be run again",
        where=full(checkpoint.uri, file.render()),
        found="no such file",
        hint="`holdfast checkpoint verify` says what else is missing",
    )
