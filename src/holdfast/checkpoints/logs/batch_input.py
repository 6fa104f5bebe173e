"""What a batch has read from its sources: the files, or the offsets, that held its events.

A file source has numbers in the offset log, and the files behind them in its own log under `sources/`. The
entries of that log are the source's own, and not batches. What Kafka and Delta have read stands in the offset
log itself; where the first batch began is in the source's own log for Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.logs.source_folders import log_files, source_folders
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.logs.offset_log import DELTA_VERSION, OffsetLog, log_offset
from holdfast.formats.logs.source_log import SeenFile, parse_source
from holdfast.json_shapes import JsonShape, in_json
from holdfast.layout import SourceLogFile
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The offsets of a partition of a topic that a batch has read.

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        first: The offset of the first record; null where the partition was new in this batch.
        last: The offset of the last record.
    """

    topic: str
    partition: int
    first: int | None
    last: int


@dataclass(frozen=True, slots=True)
class TablePosition:
    """How far a batch has read a Delta table.

    Attributes:
        version: The version of the table.
        index: The last file of that version that was read, by its index there; -1 and lower for none yet.
    """

    version: int
    index: int


@dataclass(frozen=True, slots=True)
class InputRange(JsonShape):
    """What a batch has read from a source: from behind one offset to the other.

    Attributes:
        source: The source.
        after: The offset behind which it begins.
        upto: The offset up to which it goes.
        files: The files that it read, as Spark has noted their addresses; None where the source is none of
            files, or their names are no longer in the checkpoint.
        topics: The records that it read from Kafka, by topic and partition; None for other sources.
        table_after: The position in a Delta table behind which it begins; None for other sources.
        table_upto: The position in a Delta table up to which it goes; None for other sources.
        why_unknown: Why files or offsets cannot be named, where they should be.
    """

    source: str
    after: Any
    upto: Any
    files: tuple[str, ...] | None = None
    topics: tuple[TopicRange, ...] | None = None
    table_after: TablePosition | None = None
    table_upto: TablePosition | None = None
    why_unknown: str | None = None

    @property
    @in_json
    def file_count(self) -> int | None:
        """How many files it read; None where `files` is."""
        return None if self.files is None else len(self.files)


def batch_input(storage: Storage, logs: Logs, batch_id: int) -> tuple[InputRange, ...]:
    """What a batch has read from each source.

    Cost: for sources of files the listing of their logs, and the entries of the batch; where Spark has
    compacted them, the compacted file, which names all files so far.

    Args:
        storage: The checkpoint or savepoint.
        logs: Its logs.
        batch_id: The batch.

    Raises:
        Corrupt: A log that was read is damaged.
        Unavailable: The storage does not answer.
    """
    offsets = logs.offsets(batch_id)
    if offsets is None:
        return ()
    before = logs.offsets(batch_id - 1) if batch_id else None
    begun = batch_id == 0 or before is not None
    earlier = {} if before is None else before.offsets
    folders = _folders(storage, logs, batch_id, offsets)
    return tuple(
        _read(storage, InputRange(name, earlier.get(name), upto), folders.get(name), begun)
        for name, upto in offsets.offsets.items()
    )


def _folders(storage: Storage, logs: Logs, batch_id: int, offsets: OffsetLog) -> Mapping[str, str]:
    """The folder of each source's own log, by the source's name; a source may stand in the plan twice."""
    names = storage.list(layout.SOURCES).names
    try:
        owners = source_folders(names, offsets, lambda: logs.offsets_up_to(batch_id), storage.uri)
    except Unsupported:
        return {}
    by_end = {offsets.offsets[name]: folder for folder, name in owners.items()}
    own = {name: folder for folder, name in owners.items()}
    return {name: own.get(name) or by_end.get(end, "") for name, end in offsets.offsets.items()}


def _read(storage: Storage, read: InputRange, folder: str | None, begun: bool) -> InputRange:
    """The same with what its offsets stand for, where the source is of a kind that is known.

    Args:
        storage: The checkpoint.
        read: The offsets.
        folder: The folder of the source's own log.
        begun: Whether the offset behind which the batch begins is known.
    """
    upto = _object(read.upto)
    if log_offset(read.upto) is None and not _is_kafka(upto) and DELTA_VERSION not in upto:
        return read
    if not begun:
        why = "the offsets of the batch before are no longer kept, so where this one began is not known"
        return replace(read, why_unknown=why)
    if DELTA_VERSION in upto:
        return replace(read, table_after=_position(_object(read.after)), table_upto=_position(upto))
    if _is_kafka(upto):
        after = _object(read.after) if read.after else _first_offsets(storage, folder)
        return replace(read, topics=tuple(_topics(after, upto)))
    after_entry = log_offset(read.after)
    entries = range(0 if after_entry is None else after_entry + 1, (log_offset(read.upto) or 0) + 1)
    seen = None if not folder else _files(storage, folder, entries)
    if seen is None:
        why = "the entries of the source's own log are not in the checkpoint"
        return replace(read, why_unknown=why)
    return replace(read, files=tuple(file.path for file in seen))


def _files(storage: Storage, folder: str, entries: range) -> list[SeenFile] | None:
    """The files of these entries of a source's log; None where some of the entries are lost."""
    logs = log_files(folder, storage.list(f"{layout.SOURCES}/{folder}").names)
    single = {place.entry: place for place in logs if not place.compact}
    compacted = sorted((place for place in logs if place.compact), key=lambda place: place.entry)
    needed: dict[SourceLogFile, None] = {}
    for entry in entries:
        holder = single.get(entry) or next((log for log in compacted if log.entry >= entry), None)
        if holder is None:
            return None
        needed[holder] = None
    found: list[SeenFile] = []
    for place in needed:
        path = place.render()
        with suppress(NotFound):
            found += (
                file for file in parse_source(storage.read(path), path).seen(path) if file.entry in entries
            )
            continue
        return None  # a query that runs has compacted it meanwhile
    return found


def _is_kafka(offset: Mapping[str, Any]) -> bool:
    """Whether an offset is of the form {"topic": {"0": 12}}."""
    return bool(offset) and all(
        isinstance(partitions, dict) and all(name.isdecimal() for name in partitions)
        for partitions in offset.values()
    )


def _topics(after: Mapping[str, Any], upto: Mapping[str, Any]) -> Iterator[TopicRange]:
    for topic, partitions in sorted(upto.items()):
        known = after.get(topic) or {}
        for name, end in sorted(partitions.items(), key=lambda pair: int(pair[0])):
            begin = known.get(name)
            if isinstance(end, int) and (begin is None or begin < end):
                yield TopicRange(topic, int(name), begin, end - 1)


def _first_offsets(storage: Storage, folder: str | None) -> Mapping[str, Any]:
    """Where a Kafka source began, as it has noted for itself."""
    if not folder:
        return {}
    path = SourceLogFile(folder, 0).render()
    with suppress(NotFound, Corrupt):
        return _object(parse_source(storage.read(path), path).lines[0])
    return {}


def _position(offset: Mapping[str, Any]) -> TablePosition | None:
    version, index = offset.get(DELTA_VERSION), offset.get("index", -1)
    return TablePosition(version, index) if isinstance(version, int) and isinstance(index, int) else None


def _object(offset: str | None) -> Mapping[str, Any]:
    """An offset as JSON has it; empty for one that is no object."""
    value = None if offset is None else json.loads(offset)
    return value if isinstance(value, dict) else {}
