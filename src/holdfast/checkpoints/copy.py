"""Select the files that make up a copy of a checkpoint, and detect state that is missing from it.

A query without state keeps no `state` directory, and neither does one whose state was deleted. Under
state-checkpoint format 2 the commit log names every file of state. Under format 1 no file of Spark's tells
the two apart: what tells is a record of good batches, the note of the query's plan, and other operators that
are still there, since Spark numbers them from 0.

A checkpoint cannot be copied as it is: the query writes on, its sources have noted files that the copied
batch has not seen (a restart would skip them for good), and some files name others by absolute path. A cut
says what a consistent copy at one batch consists of; it copies nothing.

Spark runs a batch again that is in the offset log and not in the commit log, with the offsets that stand
there. So two checkpoints of one savepoint read the same input in the same batches, if the second is given
each batch before it is started. It holds for sources that can give the same range twice: files by the list
that the source keeps of them, Kafka, Delta and the rate sources by their offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ListedCheckpoint, Tree, codec_of, read_query_id
from holdfast.checkpoints.logs import (
    Logs,
    OperatorFolder,
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

NONE_OR_GONE: Final = "it keeps no state, or its state is gone"
_UNTOLD: Final = (
    f"{NONE_OR_GONE}: under state-checkpoint format 1 no file tells; "
    "a record of its good batches, as `holdfast watch` keeps it, would"
)


@dataclass(frozen=True, slots=True)
class StateEvidence:
    """Evidence of a query's stateful operators besides their own files.

    Attributes:
        stateful: Whether the query keeps state; None where nothing tells.
        lost: What is wrong, by the folder of an operator of which nothing is there.
    """

    stateful: bool | None
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def untold(self) -> str | None:
        """The words for what cannot be told; None where it can."""
        return _UNTOLD if self.stateful is None else None


def state_evidence(
    storage: Storage, logs: Logs, present: Collection[int], batch_id: int, record: Record | None = None
) -> StateEvidence:
    """Look for operators that must have state at a batch and have none.

    Cost: one small file.

    Args:
        storage: The checkpoint.
        logs: Its logs.
        present: The operators that have a folder.
        batch_id: A committed batch.
        record: What the files were when their batches were committed.
    """
    lost: dict[int, str] = {}
    commit = readable(lambda: logs.commit(batch_id))
    named = None if commit is None else commit.state_ids
    for operator_id in named or ():
        lost[operator_id] = f"batch {batch_id} committed some"
    if record is not None:
        for operator_id, files in _recorded(record).items():
            lost.setdefault(operator_id, f"the record of good batches names {files} files of it")
    if present:
        for operator_id in range(min(max(present), len(present))):
            lost.setdefault(operator_id, f"Spark numbers operators from 0, and {max(present)} is there")
    elif not lost and _plan_keeps_state(storage, batch_id):
        lost[0] = f"the plan that is noted in {layout.OWN}/{PLAN_NOTE} keeps some"
    missing = tuple(
        (f"{layout.STATE}/{operator_id}", f"the state of operator {operator_id} is not there, and {why}")
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
    """The same, where state that is lost is an error.

    Raises:
        Corrupt: An operator has lost its state.
    """
    evidence = state_evidence(storage, logs, present, batch_id, record)
    if evidence.lost:
        path, what = evidence.lost[0]
        raise Corrupt(
            "the checkpoint has lost state",
            code="HF-E6005",
            where=full(storage.uri, path),
            found=what,
            hint="restore it from a savepoint or another copy; see what else is wrong with "
            f"`holdfast checkpoint verify {place_word(storage.uri)}`",
        )
    return evidence


def lost_notes(
    tree: Tree, folder: OperatorFolder, metadata: OperatorMetadata | None, offsets: OffsetLog | None
) -> Iterator[tuple[str, str]]:
    """Find what Spark must have noted of an operator, and is missing.

    Args:
        tree: The checkpoint's listing.
        folder: The operator.
        metadata: Its metadata at the batch; None where there is none, or where it cannot be read.
        offsets: What the batch was fixed to; Spark before 4.0 notes no operators.

    Returns:
        The path of each lost file, and what is wrong.
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
                yield file, "the schema of the store is not there"
            continue
        for schema in store.schema_paths:
            place = schema_place(schema)
            if place is None or not tree.has(place):
                path = folder.metadata_path or ""
                yield place or path, f"the schema that {path} names is not there"


def has_schemas(tree: Tree, operator_id: int) -> bool:
    """Return whether an operator has the folder of schemas that transformWithState keeps."""
    return layout.STATE_SCHEMA in tree.names(f"{layout.STATE}/{operator_id}")


def _recorded(record: Record) -> Counter[int]:
    """Return the number of state files that the record names, by operator."""
    return Counter(
        place.store.operator_id
        for place in map(layout.parse, record.files)
        if isinstance(place, (layout.StoreFile, layout.SharedSstFile))
    )


def _plan_keeps_state(storage: Storage, batch_id: int) -> bool | None:
    """Return whether the plan of a batch keeps state; None if none was noted."""
    plan = noted_plan(storage, batch_id)
    return None if plan is None else bool(plan.operators) or any(step.stateful for step in plan.steps)


# Between two entries of a source's log that repeat all before them lie ten as a rule.
_MOST_ENTRIES = 100_000


class How(str, Enum):
    """The way in which a file is put into the copy."""

    WHOLE = "whole"
    SOURCE_LOG = "source log"
    SCHEMA_PATHS = "schema paths"


@dataclass(frozen=True, slots=True)
class CutFile:
    """One file of the copy.

    Attributes:
        path: Where it is in the copy.
        how: `WHOLE` is copied as it is; `SOURCE_LOG` holds only some entries of its origin; `SCHEMA_PATHS` is
            copied with its paths led into the copy.
        origin: Where it comes from in the checkpoint.
        first: The first entry of a source's log that it holds.
        last: The last one.
    """

    path: str
    how: How
    origin: str
    first: int = 0
    last: int = 0

    def content(self, data: bytes, root: str) -> bytes:
        """The bytes in the copy.

        Args:
            data: The bytes of the origin.
            root: The copy's address as Hadoop writes it, such as `file:/data/copy`.

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
    """A consistent copy at a committed batch; the query continues with the batch after it.

    Attributes:
        uri: The checkpoint.
        batch_id: The batch.
        query_id: The query's id; a fork must get a new one, since sinks tell batches apart by it.
        files: The files, ascending by path. `metadata` is among them and should be written last.
        untold: The words for a query that keeps no state or has lost it; None where that can be told.
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
    """Compute the files of a copy at a committed batch.

    The query may run meanwhile. Then a file may be gone before it is copied, and the copy has to be begun
    again with a new cut; hard links or a second listing at the end make that rare.

    Cost: the folders are listed, and the logs of the batch, the operators' metadata and the index of each
    store's base are read.

    Args:
        storage: The checkpoint.
        batch_id: The batch; the newest committed one by default.
        record: What the files were when their batches were committed.
        damage: Damaged files, which the copy has to do without.

    Raises:
        NotFound: The batch is not committed, or a file that it needs is gone or damaged.
        Corrupt: A file that had to be read is damaged, or an operator has lost its state, or all commits
            are lost.
        Unsupported: The state is of a provider that is not known here.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    return _Cut(storage, Tree(storage), logs, record, damage).at(batch_id)


def restorable_batches(
    storage: Storage, tree: Tree, logs: Logs, record: Record | None, damage: DamagedFiles
) -> tuple[int, ...]:
    """Return the committed batches that `cut` makes a copy of, ascending.

    Cost: no folder is listed; the logs and the notes of operators are read once, and each name in a store's
    folder is looked at once.

    Args:
        storage: The checkpoint.
        tree: Its listing.
        logs: Its logs.
        record: What the files were when their batches were committed.
        damage: The damaged files, among them each snapshot of RocksDB that has lost a data file.
    """
    listed = storage if is_external(storage) else ListedCheckpoint(storage, tree)
    checkpoint = _Cut(listed, tree, logs, record, damage)
    return tuple(batch_id for batch_id in logs.committed if checkpoint.has(batch_id))


class _Cut:
    """The files of copies of one checkpoint.

    Args:
        storage: The checkpoint.
        tree: Its listing.
        logs: Its logs.
        record: What the files were when their batches were committed.
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

    def at(self, batch_id: int | None) -> FileSet:
        """Return the files of the copy at a batch, as `cut` does."""
        storage, logs = self._storage, self._logs
        query_id = read_query_id(storage, logs)
        wanted = logs.newest if batch_id is None else batch_id
        if not logs.committed and logs.offered and logs.offered[-1] > 0 and not Logs(storage).committed:
            raise Corrupt(
                "the checkpoint has lost its commit log",
                code="HF-E6006",
                where=full(storage.uri, layout.COMMITS),
                found=f"no commit, though batch {logs.offered[-1]} was planned",
                expected="the commit of every batch before it",
                hint=f"see what else is wrong with `holdfast checkpoint verify {place_word(storage.uri)}`",
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
        """Return whether `at` finds all files of a batch; every version of a store is looked at once."""
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
        """The files that are in no operator's folder."""
        yield from self._log_files(batch_id)
        yield from self._source_files(batch_id)
        yield from (_whole(path) for path, place in self._tree.places() if isinstance(place, layout.OwnFile))

    def _require_state(self, folders: Sequence[OperatorFolder], batch_id: int) -> StateEvidence:
        present = [folder.operator_id for folder in folders]
        return require_state(self._storage, self._logs, present, batch_id, self._record)

    def _require_undamaged(self, files: Iterable[CutFile], batch_id: int) -> None:
        for file in files:
            if self._damage.has(file.origin):
                raise file_gone(self._storage, file.origin, batch_id)

    def _sums(self, path: str) -> Iterator[str]:
        """The checksums of a file. One that cannot be read is left out: Hadoop and Spark do without."""
        for sums in (layout.HadoopChecksumFile(path).render(), layout.SparkChecksumFile(path).render()):
            if self._tree.has(sums) and not self._damage.has(sums):
                yield sums
                beside = layout.HadoopChecksumFile(sums).render()
                if self._tree.has(beside) and not self._damage.has(beside):
                    yield beside

    def _log_files(self, batch_id: int) -> Iterator[CutFile]:
        self._logs.commit(batch_id)  # raises if it is damaged: its ids name the state files
        yield _whole(layout.METADATA)
        for kept_id in (batch_id - 1, batch_id):
            # A restart asks for the offsets of the batch before; its commit is no more than good to have.
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
        for source in folders:
            last = log_offset(newest.offsets.get(sources.get(source, "")))
            places = log_files(source, names(f"{layout.SOURCES}/{source}"))
            if last is None:
                # Kafka and others note where they began, which holds for every batch.
                yield from (_whole(place.render()) for place in places)
            else:
                yield from self._entries(places, source, last, batch_id)

    def _entries(
        self, places: list[layout.SourceLogFile], source: str, last: int, batch_id: int
    ) -> Iterator[CutFile]:
        """The entries of a file source's log up to one: from the compacted one before it on.

        Where entries were deleted since a later one repeats them, or cannot be read, that one has them.
        """
        compact = {place.entry for place in places if place.compact}
        interval = compact_interval(compact)
        read = {place for place in places if place.render() not in self._damage.unreadable}
        plain = {place.entry for place in read if not place.compact}
        compact = {place.entry for place in read if place.compact}
        base = (last + 1) // interval * interval - 1
        if last - base > _MOST_ENTRIES:
            raise Corrupt(
                "a source's log cannot be as long as it says",
                code="HF-E6007",
                where=full(self._storage.uri, f"{layout.SOURCES}/{source}"),
                found=f"entry {last:,}, {last - base:,} after the one that repeats all before it",
                hint="see what else is wrong with"
                f" `holdfast checkpoint verify {place_word(self._storage.uri)}`",
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
        """The schemas and the metadata of an operator."""
        metadata = read_operator(self._storage, folder.metadata_path)
        for path, _ in lost_notes(self._tree, folder, metadata, self._logs.offsets(batch_id)):
            raise file_gone(self._storage, path, batch_id)
        how = How.SCHEMA_PATHS if metadata is not None and metadata.version > 1 else How.WHOLE
        for path, place in self._tree.places():
            if not path.startswith(f"{layout.STATE}/{folder.operator_id}/"):
                continue
            if isinstance(place, layout.SchemaFile) and (place.batch_id or 0) <= batch_id:
                yield _whole(path)
            elif isinstance(place, layout.OperatorMetadataFile) and (place.batch_id or 0) <= batch_id:
                yield CutFile(path, how, path)

    def _stores(self, folder: OperatorFolder, batch_id: int) -> Iterator[tuple[StoreId, int]]:
        """The stores that an operator has at a batch, each with its place among those of its partition."""
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
        """The id of a version by the commit log; a commit that cannot be read tells as little as none."""
        return readable(lambda: self._logs.unique_id(store, index, version))

    def _good_versions(self, store: StoreId, index: int) -> frozenset[int]:
        if store not in self._good:
            newest = self._logs.committed[-1]
            folder = self._folder(store, index, newest)
            self._good[store] = folder.whole(newest + 1, self._damage)
        return self._good[store]

    def _store_files(self, store: StoreId, index: int, batch_id: int) -> Iterator[CutFile]:
        """The files of one store; a snapshot that has lost a data file is left out where that is possible."""
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
    """Return the sources' own logs, as far as the other checkpoint lacks them.

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
        code="HF-E3016",
        where=full(checkpoint.uri, file.render()),
        found="no such file",
        hint="`holdfast checkpoint verify` says what else is missing",
    )
