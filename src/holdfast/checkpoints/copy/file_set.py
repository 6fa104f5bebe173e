"""Which files make up a copy of a checkpoint that a query can go on from.

A checkpoint cannot be copied as it stands: the query writes on, its sources have noted files that the copied
batch has not seen (a restart would skip them for good), and some files name others by absolute path. A cut
says what a consistent copy at one batch consists of; it copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from holdfast import layout
from holdfast.checkpoints.checkpoint import codec_of, read_query_id
from holdfast.checkpoints.copy.lost_state import StateEvidence, lost_notes, require_state
from holdfast.checkpoints.logs.logs import Logs, OperatorFolder, operator_folders, read_operator, readable
from holdfast.checkpoints.logs.source_folders import log_files, source_folders
from holdfast.checkpoints.problems import batch_not_kept, file_gone, other_size
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.stores import NO_DAMAGE, Damage, StoreFolder, partitions_of, store_names
from holdfast.checkpoints.tree import ListedCheckpoint, Tree
from holdfast.config.locations import place_word
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.external.view import is_external
from holdfast.formats.logs.offset_log import log_offset
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.logs.source_log import compact_interval, parse_source
from holdfast.formats.providers import known_provider
from holdfast.layout import Kind, StoreFile, StoreId
from holdfast.storage.port import Storage, full

# Between two entries of a source's log that repeat all before them lie ten as a rule.
_MOST_ENTRIES = 100_000


class How(str, Enum):
    """How a file gets into the copy."""

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
    """A consistent copy at a committed batch; the query goes on with the batch after it.

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
    damage: Damage = NO_DAMAGE,
) -> FileSet:
    """Work out the files of a copy at a committed batch.

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
    storage: Storage, tree: Tree, logs: Logs, record: Record | None, damage: Damage
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
        self, storage: Storage, tree: Tree, logs: Logs, record: Record | None, damage: Damage
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
        for sums in (layout.HadoopChecksum(path).render(), layout.SparkChecksum(path).render()):
            if self._tree.has(sums) and not self._damage.has(sums):
                yield sums
                beside = layout.HadoopChecksum(sums).render()
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
            if not chain.files or chain.files[0].kind is not Kind.ZIP:
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
            path = layout.SharedFile(folder.store, shared.folder, shared.name).render()
            size = self._tree.size(path)
            if size is None or self._damage.has(path):
                raise file_gone(self._storage, path, batch_id)
            if size != shared.size_bytes:
                raise other_size(full(self._storage.uri, path), size, shared.size_bytes)
            yield _whole(path)


def _whole(path: str) -> CutFile:
    return CutFile(path, How.WHOLE, path)
