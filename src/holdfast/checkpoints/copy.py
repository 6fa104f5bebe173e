"""Selection of the files that make up a copy of a checkpoint, and detection of missing state.

A query without state has no `state` directory, and neither has a query whose state was deleted. Under
state-checkpoint format 2, the commit log names every state file. Under format 1, no file of Spark's
distinguishes the two cases: the evidence is an integrity record, the recorded plan of the query, and other
existing operators, because Spark numbers operators from 0.

A checkpoint cannot be copied file by file: the query continues to write, its sources have recorded files that
the copied batch has not read (a restart would skip them permanently), and some files refer to others by
absolute path. A cut is the list of files of a consistent copy at one batch; creating it copies nothing.

Spark repeats a batch that is in the offset log but not in the commit log, with the recorded offsets. Two
checkpoints restored from one savepoint therefore read the same input in the same batches if each batch is
written into the second checkpoint before its query is started. This requires sources that can return the same
range twice: file sources by their own log of files; Kafka, Delta and the rate sources by their offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ListedCheckpoint, Tree, codec_of, read_query_id
from holdfast.checkpoints.logs import (
    Logs,
    OperatorFolder,
    ends_of_named_logs,
    has_unlisted_names,
    log_files,
    operator_folders,
    read_operator,
    readable,
    source_folders,
)
from holdfast.checkpoints.naming import noted_plan
from holdfast.checkpoints.problems import batch_not_kept, file_gone, other_size
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.stores import NO_DAMAGE, DamagedFiles, StoreFolder, partitions_of, store_names
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.external.view import is_external
from holdfast.formats.logs.batch_logs import OffsetLog, log_offset
from holdfast.formats.logs.notes import PLAN_NOTE
from holdfast.formats.logs.operator_metadata import OperatorMetadata, parse_operator, schema_place
from holdfast.formats.logs.table_logs import compact_interval, parse_source
from holdfast.formats.providers import known_provider
from holdfast.layout import FileKind, Log, LogFile, SourceLogFile, StoreFile, StoreId
from holdfast.storage.port import Storage, full

NONE_OR_GONE: Final = "the query keeps no state, or its state is missing"
_UNTOLD: Final = (
    f"{NONE_OR_GONE}: under state-checkpoint format 1 no file shows which; an integrity record, "
    "as `holdfast watch` writes it, would"
)


@dataclass(frozen=True, slots=True)
class StateEvidence:
    """The evidence of a query's stateful operators outside their own files.

    Attributes:
        stateful: Whether the query keeps state; None if unknown.
        lost: The evidence for each operator whose state is missing, by its folder.
    """

    stateful: bool | None
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def untold(self) -> str | None:
        """Return a message if it is unknown whether the query keeps state; otherwise None."""
        return _UNTOLD if self.stateful is None else None


def state_evidence(
    storage: Storage, logs: Logs, present: Collection[int], batch_id: int, record: Record | None = None
) -> StateEvidence:
    """Find operators that must have state at a batch but have none.

    Cost: reads one small file.

    Args:
        storage: The checkpoint.
        logs: The logs of the checkpoint.
        present: The numbers of the operators that have a folder.
        batch_id: A committed batch.
        record: The integrity record.
    """
    lost: dict[int, str] = {}
    commit = readable(lambda: logs.commit(batch_id))
    named = None if commit is None else commit.state_ids
    for operator_id in named or ():
        lost[operator_id] = f"batch {batch_id} committed state for it"
    if record is not None:
        for operator_id, files in _recorded(record).items():
            lost.setdefault(operator_id, f"the integrity record lists {files} of its files")
    if present:
        for operator_id in range(min(max(present), len(present))):
            lost.setdefault(
                operator_id, f"Spark numbers operators from 0, and operator {max(present)} exists"
            )
    elif not lost and _plan_keeps_state(storage, batch_id):
        lost[0] = f"the plan recorded in {layout.OWN}/{PLAN_NOTE} has an operator with state"
    missing = tuple(
        (f"{layout.STATE}/{operator_id}", f"the state of operator {operator_id} is missing, but {why}")
        for operator_id, why in sorted(lost.items())
        if operator_id not in present
    )
    if present or lost:
        return StateEvidence(True, missing)
    recorded = record is not None and record.batch_id is not None
    certain = named is not None or recorded or _plan_keeps_state(storage, batch_id) is not None
    return StateEvidence(False if certain else None)


def require_state(
    storage: Storage, logs: Logs, present: Collection[int], batch_id: int, record: Record | None = None
) -> StateEvidence:
    """Return the evidence of state as `state_evidence` does, after checking that no state is missing.

    Raises:
        Corrupt: An operator has lost its state.
    """
    evidence = state_evidence(storage, logs, present, batch_id, record)
    if evidence.lost:
        path, what = evidence.lost[0]
        raise Corrupt(
            "state files are missing from the checkpoint",
            code="HF-E6005",
            where=full(storage.uri, path),
            found=what,
            hint="restore the checkpoint from a savepoint or a copy; list all damage with "
            f"`holdfast checkpoint verify {place_word(storage.uri)}`",
        )
    return evidence


def lost_notes(
    tree: Tree, folder: OperatorFolder, metadata: OperatorMetadata | None, offsets: OffsetLog | None
) -> Iterator[tuple[str, str]]:
    """Find missing metadata files that Spark must have written for an operator.

    Args:
        tree: The checkpoint's listing.
        folder: The operator.
        metadata: The operator's metadata at the batch; None if missing or unreadable.
        offsets: The offsets of the batch with its pinned settings; Spark before 4.0 records no operators.

    Returns:
        Pairs of the path of a missing file and a description of the problem.
    """
    if folder.metadata_path is None and (
        offsets is None or offsets.notes_operators or has_schemas(tree, folder.operator_id)
    ):
        first = 0 if has_schemas(tree, folder.operator_id) else None
        path = layout.OperatorMetadataFile(folder.operator_id, first).render()
        yield path, f"operator {folder.operator_id} has no metadata"
    for store in () if metadata is None else metadata.stores:
        if metadata is None or metadata.version == 1:
            file = layout.SchemaFile(folder.operator_id, store.name).render()
            if folder.partitions and not tree.has(file):
                yield file, "the schema of the store is missing"
            continue
        for schema in store.schema_paths:
            place = schema_place(schema)
            if place is None or not tree.has(place):
                path = folder.metadata_path or ""
                yield place or path, f"the schema that {path} names is missing"


def has_schemas(tree: Tree, operator_id: int) -> bool:
    """Return whether an operator has the folder of schemas that transformWithState writes."""
    return layout.STATE_SCHEMA in tree.names(f"{layout.STATE}/{operator_id}")


def _recorded(record: Record) -> Counter[int]:
    """Return the number of state files that the record names, by operator."""
    return Counter(
        place.store.operator_id
        for place in map(layout.parse, record.files)
        if isinstance(place, (layout.StoreFile, layout.SharedSstFile))
    )


def _plan_keeps_state(storage: Storage, batch_id: int) -> bool | None:
    """Return whether the plan of a batch keeps state; None if none was recorded."""
    plan = noted_plan(storage, batch_id)
    return None if plan is None else bool(plan.operators) or any(step.stateful for step in plan.steps)


# Usually every tenth entry of a source's log repeats all earlier ones.
_MOST_ENTRIES = 100_000


class How(str, Enum):
    """The method of copying a file."""

    WHOLE = "whole"
    SOURCE_LOG = "source log"
    SCHEMA_PATHS = "schema paths"


@dataclass(frozen=True, slots=True)
class CutFile:
    """One file of the copy.

    Attributes:
        path: The path in the copy.
        how: The method: `WHOLE` copies the file unchanged; `SOURCE_LOG` copies only some entries of the
            origin; `SCHEMA_PATHS` changes the paths in the file to those of the copy.
        origin: The path in the checkpoint.
        first: The first entry of a source's log in the copy.
        last: The last entry of a source's log in the copy.
    """

    path: str
    how: How
    origin: str
    first: int = 0
    last: int = 0

    def content(self, data: bytes, root: str) -> bytes:
        """Return the content of the file in the copy.

        Args:
            data: The content of the origin.
            root: The address of the copy as Hadoop writes it, such as `file:/data/copy`.

        Raises:
            Corrupt: The origin is damaged.
        """
        if self.how is How.SCHEMA_PATHS:
            return parse_operator(data, self.origin).moved_to(root).render()
        if self.how is How.SOURCE_LOG:
            return parse_source(data, self.origin).between(self.first, self.last, self.origin).render()
        return data


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of a consistent copy at a committed batch; the query continues with the next batch.

    Attributes:
        uri: The checkpoint.
        batch_id: The batch.
        query_id: The id of the query; a fork must get a new one, because sinks identify batches by it.
        files: The files, ascending by path. Write `metadata`, which is one of them, last.
        untold: A message if it is unknown whether the query has no state or has lost it; otherwise None.
    """

    uri: str
    batch_id: int
    query_id: str
    files: tuple[CutFile, ...]
    untold: str | None = None


def cut(
    storage: Storage,
    batch_id: int | None = None,
    record: Record | None = None,
    damage: DamagedFiles = NO_DAMAGE,
) -> FileSet:
    """Return the files of a copy at a committed batch.

    The query may be running. A file may then be deleted before it is copied, and the copy must start again
    with a new cut; hard links or a second listing at the end make this rare.

    Cost: lists the folders, and reads the logs of the batch, the operators' metadata and the index of each
    store's base.

    Args:
        storage: The checkpoint.
        batch_id: The batch; the newest committed one by default.
        record: The integrity record.
        damage: Damaged files, which the copy must not use.

    Raises:
        NotFound: The batch is not committed, or a file that the batch needs is missing or damaged.
        Corrupt: A file that was read is damaged, an operator has lost its state, or all commits are lost.
        Unsupported: The state's provider is not supported.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    return _Cut(storage, Tree(storage), logs, record, damage).at(batch_id)


def restorable_batches(
    storage: Storage, tree: Tree, logs: Logs, record: Record | None, damage: DamagedFiles
) -> tuple[int, ...]:
    """Return the committed batches that `cut` can copy, ascending.

    Cost: reads the logs and the metadata of operators once, and checks each name in a store's folder once; no
    folder is listed.

    Args:
        storage: The checkpoint.
        tree: The listing of the checkpoint.
        logs: The logs of the checkpoint.
        record: The integrity record.
        damage: The damaged files, including each RocksDB snapshot that has lost a data file.
    """
    listed = storage if is_external(storage) else ListedCheckpoint(storage, tree)
    checkpoint = _Cut(listed, tree, logs, record, damage)
    return tuple(batch_id for batch_id in logs.committed if checkpoint.has(batch_id))


class _Cut:
    """A selector of the files for copies of one checkpoint.

    Args:
        storage: The checkpoint.
        tree: The listing of the checkpoint.
        logs: The logs of the checkpoint.
        record: The integrity record.
        damage: Damaged files.
    """

    def __init__(
        self, storage: Storage, tree: Tree, logs: Logs, record: Record | None, damage: DamagedFiles
    ) -> None:
        self._storage = storage
        self._tree = tree
        self._logs = logs
        self._record = record
        self._damage = damage
        self._good: dict[StoreId, frozenset[int]] = {}
        # The files that hold no state, in one look at the listing for all batches.
        self._own_files: list[str] = []
        self._note_files: dict[int, list[tuple[str, layout.SchemaFile | layout.OperatorMetadataFile]]] = {}
        for path, place in tree.places():
            if isinstance(place, layout.OwnFile):
                self._own_files.append(path)
            elif isinstance(place, (layout.SchemaFile, layout.OperatorMetadataFile)):
                self._note_files.setdefault(place.operator_id, []).append((path, place))

    def at(self, batch_id: int | None) -> FileSet:
        """Return the files of the copy at a batch, as `cut` does."""
        storage, logs = self._storage, self._logs
        query_id = read_query_id(storage, logs)
        wanted = logs.newest if batch_id is None else batch_id
        if not logs.committed and logs.offered and logs.offered[-1] > 0 and not Logs(storage).committed:
            raise Corrupt(
                f"the commit log of the checkpoint is missing, but batch {logs.offered[-1]} was planned",
                code="HF-E6006",
                where=full(storage.uri, layout.COMMITS),
                found="no commits",
                expected=f"the commits of all batches before batch {logs.offered[-1]}",
                hint=f"list all damage with `holdfast checkpoint verify {place_word(storage.uri)}`",
            )
        if wanted is None or wanted not in logs.committed:
            raise batch_not_kept(storage, logs.committed, wanted)
        files = [*self._beside_state(wanted)]
        folders = operator_folders(storage, wanted)
        evidence = self._require_state(folders, wanted)
        if folders and (offsets := logs.offsets(wanted)) is not None:
            known_provider(offsets.confs, storage.uri)
        for folder in folders:
            files += self._notes(folder, wanted)
            for store, index in self._stores(folder, wanted):
                files += self._store_files(store, index, wanted)
        self._require_undamaged(files, wanted)
        with_sums = {file.path: file for file in files}
        for file in files:
            if file.how is How.WHOLE:
                with_sums |= {sums: _whole(sums) for sums in self._sums(file.path)}
        ordered = tuple(with_sums[path] for path in sorted(with_sums))
        return FileSet(storage.uri, wanted, query_id, ordered, evidence.untold)

    def has(self, batch_id: int) -> bool:
        """Return whether a batch can be copied: its files exist, are undamaged and have a supported format.

        Each store is checked only once, for all its versions.
        """
        try:
            read_query_id(self._storage, self._logs)
            files = [*self._beside_state(batch_id)]
            folders = operator_folders(self._storage, batch_id)
            self._require_state(folders, batch_id)
            for folder in folders:
                files += self._notes(folder, batch_id)
            self._require_undamaged(files, batch_id)
            return all(
                batch_id + 1 in self._good_versions(store, index)
                for folder in folders
                for store, index in self._stores(folder, batch_id)
            )
        except (NotFound, Corrupt, Unsupported):
            return False

    def _beside_state(self, batch_id: int) -> Iterator[CutFile]:
        """Yield the files outside the folders of operators."""
        yield from self._log_files(batch_id)
        yield from self._source_files(batch_id)
        yield from map(_whole, self._own_files)

    def _require_state(self, folders: Sequence[OperatorFolder], batch_id: int) -> StateEvidence:
        present = [folder.operator_id for folder in folders]
        return require_state(self._storage, self._logs, present, batch_id, self._record)

    def _require_undamaged(self, files: Iterable[CutFile], batch_id: int) -> None:
        for file in files:
            if self._damage.has(file.origin):
                raise file_gone(self._storage, file.origin, batch_id)

    def _sums(self, path: str) -> Iterator[str]:
        """Yield the checksum files of a file, except unreadable ones, which Hadoop and Spark do not need."""
        for sums in (layout.HadoopChecksumFile(path).render(), layout.SparkChecksumFile(path).render()):
            if self._tree.has(sums) and not self._damage.has(sums):
                yield sums
                beside = layout.HadoopChecksumFile(sums).render()
                if self._tree.has(beside) and not self._damage.has(beside):
                    yield beside

    def _log_files(self, batch_id: int) -> Iterator[CutFile]:
        self._logs.commit(batch_id)  # raises an error if it is damaged: its ids name the state files
        yield _whole(layout.METADATA)
        for kept_id in (batch_id - 1, batch_id):
            # A restart needs the offsets of the previous batch; its commit is only useful.
            if kept_id >= 0 and kept_id not in self._logs.offered:
                path = layout.LogFile(layout.Log.OFFSETS, kept_id).render()
                raise file_gone(self._storage, path, batch_id)
            if kept_id >= 0:
                yield _whole(layout.LogFile(layout.Log.OFFSETS, kept_id).render())
            commit = layout.LogFile(layout.Log.COMMITS, kept_id).render()
            spare = kept_id < batch_id and self._damage.has(commit)
            if kept_id in self._logs.committed and not spare:
                yield _whole(commit)

    def _source_files(self, batch_id: int) -> Iterator[CutFile]:
        logs, names = self._logs, self._tree.names
        folders = sorted(names(layout.SOURCES))
        newest = logs.offsets(batch_id)
        if newest is None:
            path = layout.LogFile(layout.Log.OFFSETS, batch_id).render()
            raise file_gone(self._storage, path, batch_id)
        sources = source_folders(folders, newest, lambda: logs.offsets_up_to(batch_id), self._storage.uri)
        logged = {source: log_files(source, names(f"{layout.SOURCES}/{source}")) for source in folders}
        ends: Mapping[str, int] = {}
        if has_unlisted_names(folders, newest):
            files = {source: places for source, places in logged.items() if self._lists_files(places)}
            entries = {source: max(place.entry for place in places) for source, places in files.items()}
            ends = ends_of_named_logs(entries, newest, self._storage.uri)
        for source, places in logged.items():
            last = ends.get(source, log_offset(newest.offsets.get(sources.get(source, ""))))
            if last is None:
                # Kafka and other sources record their first offsets, which apply to all batches.
                yield from (_whole(place.render()) for place in places)
            else:
                yield from self._entries(places, source, last, batch_id)

    def _lists_files(self, places: list[layout.SourceLogFile]) -> bool:
        """Return whether a log is that of a file source."""
        path = max(places, key=lambda place: place.entry).render() if places else None
        return path is not None and bool(parse_source(self._storage.read(path), path).list_files(path))

    def _entries(
        self, places: list[layout.SourceLogFile], source: str, last: int, batch_id: int
    ) -> Iterator[CutFile]:
        """Yield the entries of a file source's log up to `last`, from the compacted entry before it.

        If an entry was deleted or cannot be read, a later compacted entry that repeats it is used.
        """
        compact = {place.entry for place in places if place.compact}
        interval = compact_interval(compact)
        read = {place for place in places if place.render() not in self._damage.unreadable}
        plain = {place.entry for place in read if not place.compact}
        compact = {place.entry for place in read if place.compact}
        base = (last + 1) // interval * interval - 1
        if last - base > _MOST_ENTRIES:
            raise Corrupt(
                "the log of a source has implausibly many entries after its last compacted entry",
                code="HF-E6007",
                where=full(self._storage.uri, f"{layout.SOURCES}/{source}"),
                found=f"{last - base:,} entries, up to entry {last:,}",
                hint=f"list all damage with `holdfast checkpoint verify {place_word(self._storage.uri)}`",
            )
        later = min((entry for entry in compact if entry >= last), default=None)
        for entry in range(max(base, 0), last + 1):
            compacted = entry == base
            place = layout.SourceLogFile(source, entry, compacted)
            if entry in (compact if compacted else plain):
                yield _whole(place.render())
            elif later is not None:
                origin = layout.SourceLogFile(source, later, True).render()
                yield CutFile(place.render(), How.SOURCE_LOG, origin, 0 if compacted else entry, entry)
            else:
                raise file_gone(self._storage, place.render(), batch_id)

    def _notes(self, folder: OperatorFolder, batch_id: int) -> Iterator[CutFile]:
        """Yield the schemas and the metadata of an operator."""
        metadata = read_operator(self._storage, folder.metadata_path)
        for path, _ in lost_notes(self._tree, folder, metadata, self._logs.offsets(batch_id)):
            raise file_gone(self._storage, path, batch_id)
        how = How.SCHEMA_PATHS if metadata is not None and metadata.version > 1 else How.WHOLE
        for path, place in self._note_files.get(folder.operator_id, ()):
            if (place.batch_id or 0) > batch_id:
                continue
            yield _whole(path) if isinstance(place, layout.SchemaFile) else CutFile(path, how, path)

    def _stores(self, folder: OperatorFolder, batch_id: int) -> Iterator[tuple[StoreId, int]]:
        """Yield the stores that an operator has at a batch, each with its index in its partition."""
        metadata = read_operator(self._storage, folder.metadata_path)
        names = store_names(metadata, self._tree.names(f"{layout.STATE}/{folder.operator_id}/0"))
        offsets = self._logs.offsets(batch_id)
        partitions = partitions_of(self._storage, folder, metadata, offsets, batch_id)
        for partition in range(partitions.count):
            for index, name in enumerate(names):
                yield StoreId(folder.operator_id, partition, name), index

    def _folder(self, store: StoreId, index: int, batch_id: int) -> StoreFolder:
        listing = self._tree.listing(store.folder)
        if listing is None:
            raise file_gone(self._storage, store.folder, batch_id)
        codec, unique_id = codec_of(self._logs.offsets(batch_id)), partial(self._unique_id, store, index)
        return StoreFolder(self._storage, store, listing, codec, unique_id, self._tree.names(store.folder))

    def _unique_id(self, store: StoreId, index: int, version: int) -> str | None:
        """Return the unique id of a version from the commit log; None if the commit cannot be read."""
        return readable(lambda: self._logs.unique_id(store, index, version))

    def _good_versions(self, store: StoreId, index: int) -> frozenset[int]:
        if store not in self._good:
            newest = self._logs.committed[-1]
            folder = self._folder(store, index, newest)
            self._good[store] = folder.whole(newest + 1, self._damage)
        return self._good[store]

    def _store_files(self, store: StoreId, index: int, batch_id: int) -> Iterator[CutFile]:
        """Yield the files of one store, avoiding a snapshot that has lost a data file if possible."""
        folder = self._folder(store, index, batch_id)
        damage, broken = self._damage, None
        while True:
            chain = folder.chain(batch_id + 1, damage)
            if chain.missing is not None:
                raise broken or file_gone(self._storage, chain.missing, batch_id)
            if not chain.files or chain.files[0].kind is not FileKind.ZIP:
                break
            try:
                yield from [*self._data_files(folder, chain.files[0], batch_id)]
                break
            except (NotFound, Corrupt) as error:
                broken = broken or error
                damage = replace(damage, unreadable=damage.unreadable | {chain.files[0].render()})
        yield from (_whole(file.render()) for file in chain.files)

    def _data_files(self, folder: StoreFolder, snapshot: StoreFile, batch_id: int) -> Iterator[CutFile]:
        for shared in folder.snapshot(snapshot).shared:
            path = layout.SharedSstFile(folder.store, shared.folder, shared.name).render()
            size = self._tree.size(path)
            if size is None or self._damage.has(path):
                raise file_gone(self._storage, path, batch_id)
            if size != shared.size_bytes:
                raise other_size(full(self._storage.uri, path), size, shared.size_bytes)
            yield _whole(path)


def _whole(path: str) -> CutFile:
    return CutFile(path, How.WHOLE, path)


def batch_files(original: Storage, other: Storage, batch_id: int) -> tuple[tuple[str, bytes], ...]:
    """Return the files with which `other` runs a batch as `original` did; the offset log's file is last.

    The processing time is also that of `original`. The watermark is that of `other`, because it depends on
    its query.

    Cost: lists the source logs of both, and reads the files that `other` lacks.

    Args:
        original: A checkpoint that has planned this batch.
        other: A checkpoint whose newest batch is the previous one.
        batch_id: The batch.

    Raises:
        NotFound: A log file of either checkpoint is missing.
        Corrupt: A log cannot be read.
    """
    planned = _planned(original, Logs(original), batch_id)
    files = [(path, original.read(path)) for path in _sources(original, other)]
    return (*files, _next(other, Logs(other), planned, batch_id, planned.timestamp_ms))


def empty_batch(checkpoint: Storage, batch_id: int, now_ms: int) -> tuple[str, bytes]:
    """Return the file with which a checkpoint runs its next batch without input, at unchanged offsets.

    Raises:
        NotFound: The previous batch is not in the logs.
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
    """Return the offset log's file of a batch, with the watermark of the checkpoint's own last batch."""
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
    """Yield the files of source logs that the other checkpoint lacks.

    Entries of later batches are harmless, because a repeated batch reads only the range of its offsets.
    """
    for source in original.list(layout.SOURCES).names:
        folder = f"{layout.SOURCES}/{source}"
        present = frozenset(other.list(folder).names)
        for name in sorted(frozenset(original.list(folder).names) - present):
            if isinstance(layout.parse(f"{folder}/{name}"), SourceLogFile):
                yield f"{folder}/{name}"


def _missing(checkpoint: Storage, file: LogFile) -> NotFound:
    return NotFound(
        "a batch cannot be run again, because a log file is missing",
        code="HF-E3016",
        where=full(checkpoint.uri, file.render()),
        hint="list all missing files with `holdfast checkpoint verify CHECKPOINT`",
    )
