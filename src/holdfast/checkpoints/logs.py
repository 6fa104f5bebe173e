"""The offset log, the commit log, the operators and the sources of a checkpoint.

The offset log names sources by their position in the plan. Folders are numbered by distinct source: a stream
that is read twice, as in a join with itself, has two positions and one folder. No file records which
positions belong to one source; they have the same offset in every batch and share one folder.

For a file source, the offset log contains numbers of entries in the source's own log under `sources/`, which
lists the files; these entries are not batches. For Kafka and Delta, the offset log itself contains the ranges
that were read; the start of the first batch of a Kafka source is in the source's own log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from holdfast import layout
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.logs.batch_logs import (
    DELTA_VERSION,
    CommitLog,
    OffsetLog,
    is_tick,
    log_offset,
    parse_commit,
    parse_offsets,
)
from holdfast.formats.logs.operator_metadata import OperatorMetadata, parse_operator
from holdfast.formats.logs.table_logs import SeenFile, parse_source
from holdfast.json_shapes import JsonShape, in_json
from holdfast.layout import SourceLogFile
from holdfast.storage.local import file_of
from holdfast.storage.port import Storage

T = TypeVar("T")


class Logs:
    """The offset log and the commit log, listed once.

    Create this object before listing the state, because the batches must not be newer than the listing of the
    state. The commit log is listed before the offset log: Spark writes a batch's offsets before its commit,
    so the offsets of every listed commit are listed too.

    Args:
        storage: The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.committed = tuple(numbers(storage.list(layout.COMMITS).names))
        self.offered = tuple(numbers(storage.list(layout.OFFSETS).names))
        self._known = frozenset(self.committed)
        self._commits: dict[int, CommitLog | None] = {}
        self._offsets: dict[int, OffsetLog | None] = {}

    @property
    def newest(self) -> int | None:
        """The newest committed batch, or None."""
        return self.committed[-1] if self.committed else None

    def commit(self, batch_id: int) -> CommitLog | None:
        """Return a batch's commit, or None if it is missing.

        Raises:
            Corrupt: The file is damaged.
        """
        if batch_id not in self._commits:
            path = layout.LogFile(layout.Log.COMMITS, batch_id).render()
            data = _read(self.storage, path)
            self._commits[batch_id] = None if data is None else parse_commit(data, path)
        return self._commits[batch_id]

    def offsets(self, batch_id: int) -> OffsetLog | None:
        """Return a batch's offsets, or None if they are missing.

        Raises:
            Corrupt: The file is damaged.
        """
        if batch_id not in self._offsets:
            path = layout.LogFile(layout.Log.OFFSETS, batch_id).render()
            data = _read(self.storage, path)
            self._offsets[batch_id] = None if data is None else parse_offsets(data, path)
        return self._offsets[batch_id]

    def offsets_up_to(self, batch_id: int) -> list[OffsetLog]:
        """Return the offsets of all kept batches up to `batch_id`.

        Raises:
            Corrupt: A file is damaged.
        """
        planned = (self.offsets(planned_id) for planned_id in self.offered if planned_id <= batch_id)
        return [offsets for offsets in planned if offsets is not None]

    def unique_id(self, store: layout.StoreId, index: int, version: int) -> str | None:
        """Return the unique id under which a store's version was committed.

        Args:
            store: The store.
            index: The index of the store among its operator's stores.
            version: The version.

        Returns:
            The unique id; None under state-checkpoint format 1, or if the commit log no longer contains it.
        """
        commit = self.commit(version - 1) if version - 1 in self._known else None
        if commit is None or commit.state_ids is None:
            return None
        partitions = commit.state_ids.get(store.operator_id, ())
        stores = partitions[store.partition] if store.partition < len(partitions) else ()
        return stores[index] if index < len(stores) else None


@dataclass(frozen=True, slots=True)
class OperatorFolder:
    """An operator's folder.

    Attributes:
        operator_id: The number of the operator.
        metadata_path: The path of the operator's metadata; None if it has none.
        partitions: The partitions that have a folder, ascending.
    """

    operator_id: int
    metadata_path: str | None
    partitions: tuple[int, ...]


def operator_folders(storage: Storage, newest: int | None) -> list[OperatorFolder]:
    """Return the operators that have a folder, by number. Cost: three listings for each.

    Args:
        storage: The checkpoint.
        newest: The newest batch whose metadata is used; metadata of an uncommitted batch is ignored if older
            metadata exists.
    """
    folders = []
    for operator_id in numbers(storage.list(layout.STATE).names):
        partitions = numbers(storage.list(f"{layout.STATE}/{operator_id}").names)
        path = _metadata_path(storage, operator_id, newest)
        folders.append(OperatorFolder(operator_id, path, tuple(partitions)))
    return folders


def read_operator(storage: Storage, path: str | None) -> OperatorMetadata | None:
    """Return an operator's metadata; None if it has none.

    Raises:
        Corrupt: The file is damaged.
    """
    data = None if path is None else _read(storage, path)
    return None if data is None or path is None else parse_operator(data, path)


def readable(ask: Callable[[], T]) -> T | None:
    """Return the content of a file; None if it is damaged, which verification reports separately."""
    try:
        return ask()
    except (Corrupt, Unsupported, NotFound):
        return None


def numbers(names: Iterable[str]) -> list[int]:
    """Return the names that are numbers as Spark writes them, ascending."""
    found = (layout.number(name) for name in names)
    return sorted(number for number in found if number is not None)


def written_ms(storage: Storage, log: layout.Log, batch_id: int) -> int | None:
    """Return the time when a batch's log file was written; None if it is missing or not on a local disk."""
    file = file_of(storage, layout.LogFile(log, batch_id).render())
    try:
        return None if file is None else file.lstat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def _metadata_path(storage: Storage, operator_id: int, newest: int | None) -> str | None:
    folder = f"{layout.STATE}/{operator_id}/{layout.OPERATOR_METADATA}"
    names = storage.list(folder).names
    if layout.METADATA in names:
        return layout.OperatorMetadataFile(operator_id).render()
    if "v2" not in names:
        return None
    versions = numbers(storage.list(f"{folder}/v2").names)
    usable = [version for version in versions if newest is None or version <= newest] or versions[:1]
    return layout.OperatorMetadataFile(operator_id, usable[-1]).render() if usable else None


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except NotFound:
        return None


def source_folders(
    folders: Collection[str], newest: OffsetLog, kept: Callable[[], Sequence[OffsetLog]], where: str
) -> Mapping[str, str]:
    """Return the source of each folder, by its name in the offset log.

    Args:
        folders: The names of the folders.
        newest: The offsets of the batch to examine.
        kept: A function that returns the offsets of all batches up to it; called only if folders and sources
            do not match by number.
        where: The checkpoint, for messages.

    Returns:
        The source of each folder. A source whose folder is missing does not occur; if no assignment matches
        the folders, each folder is assigned to the source with the same name.

    Raises:
        Unsupported: Several assignments match, and they differ in where a folder's log ends.
    """
    own = {folder: folder for folder in folders if folder in newest.offsets}
    if newest.version != 1 or all(folder in folders for folder in _logged(newest)):
        return own
    names = list(newest.offsets)
    found = [_by_folder(reading, names, folders) for reading in _readings(names, folders, kept())]
    ends = {
        tuple(sorted((folder, newest.offsets[name]) for folder, name in owners.items())) for owners in found
    }
    if len(ends) > 1:
        raise _ambiguous(where, f"{len(names)} sources, {len(folders)} folders with logs")
    return found[0] if found else own


def has_unlisted_names(folders: Collection[str], offsets: OffsetLog) -> bool:
    """Return whether sources have names that the offset log does not contain.

    Spark 4.2 and 4.3 name the folders of named sources, but write the offset log by position unless
    `spark.sql.streaming.offsetLog.formatVersion` is 2.
    """
    return offsets.version == 1 and any(layout.number(folder) is None for folder in folders)


def ends_of_named_logs(newest: Mapping[str, int], offsets: OffsetLog, where: str) -> dict[str, int]:
    """Return the entry at which a batch ends in the log of each file source, if only positions are known.

    A log ends with the batch, or one entry later if the next batch is planned.

    Args:
        newest: The newest entry of each log, by folder.
        offsets: The offsets of the batch.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: Sources of the query end at both entries.
    """
    ends = [log_offset(offsets.offsets[name]) or 0 for name in _logged(offsets)]
    if len(ends) == len(newest) and sum(ends) == sum(newest.values()):
        return dict(newest)  # no log is longer than its offset
    found = {}
    for folder, entry in newest.items():
        fits = {entry, entry - 1} & set(ends)
        if len(fits) != 1:
            raise Unsupported(
                "the logs in `sources/` cannot be assigned to the sources",
                code="HF-E7034",
                where=where,
                found=f"the named source {folder}, and an offset log that lacks the names",
                expected="a query without a planned batch, or an offset log with names",
                hint="stop the query between two batches, and set"
                " spark.sql.streaming.offsetLog.formatVersion to 2 for new queries",
            )
        [found[folder]] = fits
    return found


def source_readings(folders: Collection[str], batches: Sequence[OffsetLog]) -> Iterator[tuple[int, ...]]:
    """Yield every possible assignment of positions to sources, as the number of the source per position.

    Args:
        folders: The names of the folders.
        batches: The offsets of all kept batches up to the batch to examine, by position.
    """
    return _readings(list(batches[-1].offsets), folders, batches)


def log_files(source: str, names: Iterable[str]) -> list[SourceLogFile]:
    """Return the entries of a source's log, from the names in its folder."""
    places = (layout.parse(f"{layout.SOURCES}/{source}/{name}") for name in names)
    return [place for place in places if isinstance(place, SourceLogFile)]


def read_twice(folders: Collection[str], batches: Sequence[OffsetLog]) -> list[str]:
    """Return the sources that lack a required log and always have the same offset as an earlier source."""
    newest = batches[-1]
    if newest.version != 1:
        return []
    names = list(newest.offsets)
    return [
        name
        for name in _logged(newest)
        if name not in folders and any(_alike(name, other, batches) for other in names[: names.index(name)])
    ]


def read_again(
    name: str,
    owners: Collection[str],
    newest: OffsetLog,
    kept: Callable[[], Sequence[OffsetLog]],
    where: str,
) -> tuple[str, ...]:
    """Return the sources without their own log that read the same source as this one.

    Args:
        name: The source.
        owners: The sources that have a log.
        newest: The offsets of the batch to examine.
        kept: A function that returns all batches up to it; called only if a source has no log of its own.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: A source without a log may belong to a different source.
    """
    others = [other for other in _logged(newest) if other not in owners]
    if newest.version != 1 or not others:
        return ()
    batches = kept()
    found = tuple(other for other in others if _alike(name, other, batches))
    like = [owner for owner in owners if _alike(name, owner, batches)]
    if found and len(like) > 1:
        raise _ambiguous(where, f"source {found[0]} has the offsets of each of {', '.join(sorted(like))}")
    return found


def _ambiguous(where: str, found: str) -> Unsupported:
    return Unsupported(
        "the logs in `sources/` cannot be assigned to the sources",
        code="HF-E7034",
        where=where,
        found=found,
        expected="sources with different offsets, apart from a stream that is read twice",
        hint="load the stream once for each use in the query, so that each use has its own log",
    )


def _logged(offsets: OffsetLog) -> list[str]:
    """Return the sources that have their own log and have read data."""
    ends = ((name, log_offset(offset)) for name, offset in offsets.offsets.items())
    return [name for name, end in ends if end is not None and end >= 0]


def _alike(one: str, other: str, batches: Sequence[OffsetLog]) -> bool:
    return all(batch.offsets.get(one) == batch.offsets.get(other) for batch in batches)


def _readings(
    names: Sequence[str], folders: Collection[str], batches: Sequence[OffsetLog]
) -> Iterator[tuple[int, ...]]:
    """Yield every possible assignment of positions to sources, as the number of the source per position."""
    logged = set(_logged(batches[-1]))
    ticks = {name for name in names if is_tick(batches[-1].offsets.get(name))}
    numbered = {int(folder) for folder in folders if folder.isascii() and folder.isdigit()}

    def more(reading: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        at = len(reading)
        fresh = max(reading, default=-1) + 1
        if at == len(names):
            if not numbered or max(numbered) < fresh:
                yield reading
            return
        for number in range(fresh):
            if _alike(names[at], names[reading.index(number)], batches):
                yield from more((*reading, number))
        fits = fresh not in numbered if names[at] in ticks else names[at] not in logged or fresh in numbered
        if fits:
            yield from more((*reading, fresh))

    return more(())


def _by_folder(reading: Sequence[int], names: Sequence[str], folders: Collection[str]) -> dict[str, str]:
    """Return the first position of each folder's source."""
    return {
        folder: names[reading.index(int(folder))]
        for folder in folders
        if folder.isascii() and folder.isdigit() and int(folder) in reading
    }


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The offsets of a partition of a topic that a batch has read.

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        first: The offset of the first record; None if the partition was new in this batch.
        last: The offset of the last record.
    """

    topic: str
    partition: int
    first: int | None
    last: int


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The position of a batch in a Delta table.

    Attributes:
        version: The version of the table.
        index: The index of the last file of that version that was read; negative if none was read yet.
    """

    version: int
    index: int


@dataclass(frozen=True, slots=True)
class InputRange(JsonShape):
    """The input of a batch from a source: the range between two offsets.

    Attributes:
        source: The number or name of the source.
        after: The offset after which the range starts.
        upto: The offset at which the range ends.
        files: The addresses of the files read, as recorded by Spark; None if the source does not read files,
            or if the names are no longer in the checkpoint.
        topics: The ranges of records read from Kafka, by topic and partition; None for other sources.
        table_after: The position in a Delta table after which the range starts; None for other sources.
        table_upto: The position in a Delta table at which the range ends; None for other sources.
        why_unknown: The reason why files or offsets are unknown although the type of source is supported;
            None otherwise.
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
        """The number of files read; None if `files` is None."""
        return None if self.files is None else len(self.files)


def batch_input(storage: Storage, logs: Logs, batch_id: int) -> tuple[InputRange, ...]:
    """Return the input of a batch from each source.

    Cost: for file sources, lists their logs and reads the entries of the batch; if Spark has compacted these,
    reads the compacted file, which lists all files so far.

    Args:
        storage: The checkpoint or savepoint.
        logs: The logs of the checkpoint.
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
        _read_of(storage, InputRange(name, earlier.get(name), upto), folders.get(name), begun)
        for name, upto in offsets.offsets.items()
    )


def _folders(storage: Storage, logs: Logs, batch_id: int, offsets: OffsetLog) -> Mapping[str, str]:
    """Return the folder of each source's log, by the source's name; sources may share a folder."""
    names = storage.list(layout.SOURCES).names
    try:
        owners = source_folders(names, offsets, lambda: logs.offsets_up_to(batch_id), storage.uri)
    except Unsupported:
        return {}
    by_end = {offsets.offsets[name]: folder for folder, name in owners.items()}
    own = {name: folder for folder, name in owners.items()}
    return {name: own.get(name) or by_end.get(end, "") for name, end in offsets.offsets.items()}


def _read_of(storage: Storage, read: InputRange, folder: str | None, begun: bool) -> InputRange:
    """Return an input with the files or records of its offsets, if the type of source is supported.

    Args:
        storage: The checkpoint.
        read: The range of offsets.
        folder: The folder of the source's own log.
        begun: Whether the offset after which the batch begins is known.
    """
    upto = _object(read.upto)
    if log_offset(read.upto) is None and not _is_kafka(upto) and DELTA_VERSION not in upto:
        return read
    if not begun:
        why = "the offsets of the batch before are no longer kept, so the start of this one is unknown"
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
    """Return the files in a range of entries of a source's log; None if some entries are missing."""
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
                file
                for file in parse_source(storage.read(path), path).list_files(path)
                if file.entry in entries
            )
            continue
        return None  # a running query has compacted the entry
    return found


def _is_kafka(offset: Mapping[str, Any]) -> bool:
    """Return whether an offset has the form {"topic": {"0": 12}}."""
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
    """Return the first offsets of a Kafka source, from its own log."""
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
    """Return an offset as a JSON object; empty if it is not an object."""
    value = None if offset is None else json.loads(offset)
    return value if isinstance(value, dict) else {}
