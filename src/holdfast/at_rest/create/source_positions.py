"""Where a query begins that starts warm: what each of its sources counts as read already.

A source of files keeps a list of what it has seen, every other its offset in the offset log. Both are put
into the checkpoint as if the query had got so far by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.errors import Invalid
from holdfast.formats.logs.offset_log import OffsetLog
from holdfast.formats.logs.source_log import SourceLog
from holdfast.json_shapes import JsonShape, json_as
from holdfast.layout import HadoopChecksum, Log, LogFile, SourceLogFile
from holdfast.savepoints.rewrite.maintenance_commit import no_batch
from holdfast.storage.port import Storage


def _parsed(offset: str | None) -> Any:
    return None if offset is None else json.loads(offset)


def _count(files: tuple[tuple[str, int], ...] | None) -> int | None:
    return None if files is None else len(files)


@dataclass(frozen=True, slots=True)
class Beginning(JsonShape):
    """Where one source begins.

    Attributes:
        offset: The source's own offset, as JSON; None to begin where the query's options say.
        seen: For a source of files, those that it counts as read, with when they were last changed.
    """

    offset: str | None = field(default=None, metadata=json_as(convert=_parsed))
    seen: tuple[tuple[str, int], ...] | None = field(
        default=None,
        metadata=json_as("files_read", _count, "How many files a source of files counts as read."),
    )


def files_read(seen: Iterable[tuple[str, int]]) -> Beginning:
    """A source of files begins behind these."""
    return Beginning(seen=tuple(sorted(set(seen))))


def offset_of(given: Any) -> Beginning:
    """Any other source begins at an offset of its own: JSON, or values that become it.

    Raises:
        Invalid: It is neither.
    """
    if isinstance(given, str):
        try:
            json.loads(given)
        except ValueError as error:
            raise _no_offset(given) from error
        return Beginning(given)
    try:
        return Beginning(json.dumps(given, separators=(",", ":")))
    except TypeError as error:
        raise _no_offset(repr(given)[:200]) from error


def _no_offset(given: str) -> Invalid:
    return Invalid(
        "where a source begins is not JSON",
        found=given,
        expected='its offset, such as {"orders":{"0":1234}} of Kafka',
        hint="`holdfast checkpoint show` shows the offsets of a query that has run",
    )


def after_kafka(last: Iterable[tuple[str, int, int]]) -> Beginning:
    """Kafka begins behind the last row that was read of each partition.

    Args:
        last: Topic, partition, and the largest offset that was read.
    """
    topics: dict[str, dict[str, int]] = {}
    for topic, partition, offset in sorted(last):
        topics.setdefault(topic, {})[str(partition)] = offset + 1
    return offset_of(topics)


def begin_at(checkpoint: Storage, beginnings: Sequence[Beginning]) -> None:
    """Have a checkpoint's sources begin there, in place of where they have come to.

    Args:
        checkpoint: The checkpoint; no query may use it. It is changed.
        beginnings: For each source, in the order of the offset log.

    Raises:
        NotFound: No batch is committed.
        Invalid: There are more or fewer sources.
    """
    logs = Logs(checkpoint)
    newest = logs.newest
    if newest is None:
        raise no_batch(checkpoint)
    for batch_id in (newest, newest - 1):
        offsets = logs.offsets(batch_id) if batch_id >= 0 else None
        if offsets is not None:
            _write(checkpoint, LogFile(Log.OFFSETS, batch_id).render(), _moved(offsets, beginnings).render())
    for source in checkpoint.list(layout.SOURCES).names:
        for name in checkpoint.list(f"{layout.SOURCES}/{source}").names:
            checkpoint.delete(f"{layout.SOURCES}/{source}/{name}")
    for number, beginning in enumerate(beginnings):
        if beginning.seen:
            lines = tuple(_seen(path, changed) for path, changed in beginning.seen)
            checkpoint.write(SourceLogFile(str(number), 0).render(), SourceLog(1, lines).render())


def begin_under(checkpoint: Storage, watermark_ms: int) -> None:
    """Have a checkpoint's next batch run under a watermark.

    Args:
        checkpoint: The checkpoint; no query may use it. It is changed.
        watermark_ms: The watermark in epoch milliseconds.

    Raises:
        NotFound: No batch is committed.
    """
    logs = Logs(checkpoint)
    newest = logs.newest
    offsets = None if newest is None else logs.offsets(newest)
    commit = None if newest is None else logs.commit(newest)
    if newest is None or offsets is None or commit is None:
        raise no_batch(checkpoint)
    fields = {**(offsets.fields or {}), "batchWatermarkMs": watermark_ms}
    planned = OffsetLog(offsets.version, fields, offsets.offsets)
    _write(checkpoint, LogFile(Log.OFFSETS, newest).render(), planned.render())
    noted = replace(commit, fields={**commit.fields, "nextBatchWatermarkMs": watermark_ms})
    _write(checkpoint, LogFile(Log.COMMITS, newest).render(), noted.render())


def _moved(offsets: OffsetLog, beginnings: Sequence[Beginning]) -> OffsetLog:
    if len(offsets.offsets) != len(beginnings):
        raise Invalid(
            "the query has another number of sources",
            found=str(len(beginnings)),
            expected=str(len(offsets.offsets)),
            hint="say for each of its sources where it begins",
        )
    moved: Mapping[str, str | None] = {
        name: _offset(beginning) for name, beginning in zip(offsets.offsets, beginnings, strict=True)
    }
    return OffsetLog(offsets.version, offsets.fields, moved)


def _offset(beginning: Beginning) -> str | None:
    if beginning.seen is None:
        return beginning.offset
    # The list is the first entry of the source's log. Without one it begins as on its first day.
    return json.dumps({"logOffset": 0}, separators=(",", ":")) if beginning.seen else None


def _seen(path: str, changed_ms: int) -> str:
    return json.dumps({"path": path, "timestamp": changed_ms, "batchId": 0}, separators=(",", ":"))


def _write(checkpoint: Storage, path: str, data: bytes) -> None:
    checkpoint.delete(HadoopChecksum(path).render())
    checkpoint.write(path, data, replace=True)
