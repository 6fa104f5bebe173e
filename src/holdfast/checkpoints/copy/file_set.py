"""Which files make up a copy of a checkpoint that a query can go on from.

A checkpoint cannot be copied as it stands: the query writes on, its sources have noted files that the copied
batch has not seen (a restart would skip them for good), and some files name others by absolute path. A cut
says what a consistent copy at one batch consists of; it copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from holdfast import layout
from holdfast.checkpoints.checkpoint import codec_of, read_query_id
from holdfast.checkpoints.logs.logs import Logs, OperatorFolder, operator_folders, read_operator
from holdfast.checkpoints.logs.source_folders import log_files, source_folders
from holdfast.checkpoints.problems import batch_not_kept, file_gone, other_size
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.stores import StoreFolder, partitions_of, store_names
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification.lost_state import require_state
from holdfast.config.locations import place_word
from holdfast.errors import Corrupt
from holdfast.formats.logs.offset_log import log_offset
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.logs.source_log import compact_interval, parse_source
from holdfast.formats.providers import known_provider
from holdfast.layout import Kind, StoreId
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


def cut(storage: Storage, batch_id: int | None = None, record: Record | None = None) -> FileSet:
    """Work out the files of a copy at a committed batch.

    The query may run meanwhile. Then a file may be gone before it is copied, and the copy has to be begun
    again with a new cut; hard links or a second listing at the end make that rare.

    Cost: the folders are listed, and the logs of the batch, the operators' metadata and the index of each
    store's base are read.

    Args:
        storage: The checkpoint.
        batch_id: The batch; the newest committed one by default.
        record: What the files were when their batches were committed.

    Raises:
        NotFound: The batch is not committed, or a file that it needs is gone.
        Corrupt: A file that had to be read is damaged, or an operator has lost its state, or all commits
            are lost.
        Unsupported: The state is of a provider that is not known here.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    tree = Tree(storage)
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
    files = [
        *_log_files(storage, logs, wanted),
        *_source_files(storage, tree, logs, wanted),
        *(_whole(path) for path, place in tree.places() if isinstance(place, layout.OwnFile)),
    ]
    folders = operator_folders(storage, wanted)
    evidence = require_state(storage, logs, [folder.operator_id for folder in folders], wanted, record)
    if folders and (offsets := logs.offsets(wanted)) is not None:
        known_provider(offsets.confs, storage.uri)
    for folder in folders:
        files += _operator_files(storage, tree, logs, folder, wanted)
    with_sums = {file.path: file for file in files}
    for file in files:
        for sums in (layout.HadoopChecksum(file.path).render(), layout.SparkChecksum(file.path).render()):
            if file.how is How.WHOLE and tree.has(sums):
                with_sums[sums] = CutFile(sums, How.WHOLE, sums)
                beside = layout.HadoopChecksum(sums).render()
                if tree.has(beside):
                    with_sums[beside] = CutFile(beside, How.WHOLE, beside)
    ordered = tuple(with_sums[path] for path in sorted(with_sums))
    return FileSet(storage.uri, wanted, query_id, ordered, evidence.untold)


def _log_files(storage: Storage, logs: Logs, batch_id: int) -> Iterator[CutFile]:
    yield _whole(layout.METADATA)
    for kept_id in (batch_id - 1, batch_id):
        # A restart asks for the offsets of the batch before; its commit is no more than good to have.
        if kept_id >= 0 and kept_id not in logs.offered:
            raise file_gone(storage, layout.LogFile(layout.Log.OFFSETS, kept_id).render(), batch_id)
        if kept_id >= 0:
            yield _whole(layout.LogFile(layout.Log.OFFSETS, kept_id).render())
        if kept_id in logs.committed:
            yield _whole(layout.LogFile(layout.Log.COMMITS, kept_id).render())


def _source_files(storage: Storage, tree: Tree, logs: Logs, batch_id: int) -> Iterator[CutFile]:
    folders = sorted(tree.names(layout.SOURCES))
    newest = logs.offsets(batch_id)
    if newest is None:
        raise file_gone(storage, layout.LogFile(layout.Log.OFFSETS, batch_id).render(), batch_id)
    sources = source_folders(folders, newest, lambda: logs.offsets_up_to(batch_id), storage.uri)
    for source in folders:
        last = log_offset(newest.offsets.get(sources.get(source, "")))
        places = log_files(source, tree.names(f"{layout.SOURCES}/{source}"))
        if last is None:
            # Kafka and others note where they began, which holds for every batch.
            yield from (_whole(place.render()) for place in places)
        else:
            yield from _entries(storage, places, source, last, batch_id)


def _entries(
    storage: Storage, places: list[layout.SourceLogFile], source: str, last: int, batch_id: int
) -> Iterator[CutFile]:
    """The entries of a file source's log up to one: from the compacted one before it on.

    Where entries were deleted since a later one repeats them, they are taken from that.
    """
    plain = {place.entry for place in places if not place.compact}
    compact = {place.entry for place in places if place.compact}
    interval = compact_interval(compact)
    base = (last + 1) // interval * interval - 1
    if last - base > _MOST_ENTRIES:
        raise Corrupt(
            "a source's log cannot be as long as it says",
            where=full(storage.uri, f"{layout.SOURCES}/{source}"),
            found=f"entry {last:,}, {last - base:,} after the one that repeats all before it",
            hint=f"see what else is wrong with `holdfast checkpoint verify {place_word(storage.uri)}`",
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
            raise file_gone(storage, place.render(), batch_id)


def _operator_files(
    storage: Storage, tree: Tree, logs: Logs, folder: OperatorFolder, batch_id: int
) -> Iterator[CutFile]:
    root = f"{layout.STATE}/{folder.operator_id}"
    metadata = read_operator(storage, folder.metadata_path)
    for path, place in tree.places():
        if not path.startswith(f"{root}/"):
            continue
        if isinstance(place, layout.SchemaFile) and (place.batch_id or 0) <= batch_id:
            yield _whole(path)
        elif isinstance(place, layout.OperatorMetadataFile) and (place.batch_id or 0) <= batch_id:
            how = How.SCHEMA_PATHS if metadata is not None and metadata.version > 1 else How.WHOLE
            yield CutFile(path, how, path)
    names = store_names(metadata, tree.names(f"{root}/0"))
    partitions = partitions_of(storage, folder, metadata, logs.offsets(batch_id), batch_id)
    for partition in range(partitions.count):
        for index, name in enumerate(names):
            yield from _store_files(
                storage, tree, logs, StoreId(folder.operator_id, partition, name), index, batch_id
            )


def _store_files(
    storage: Storage, tree: Tree, logs: Logs, store: StoreId, index: int, batch_id: int
) -> Iterator[CutFile]:
    listing = tree.listing(store.folder)
    if listing is None:
        raise file_gone(storage, store.folder, batch_id)
    codec, unique_id = codec_of(logs.offsets(batch_id)), partial(logs.unique_id, store, index)
    folder = StoreFolder(storage, store, listing, codec, unique_id, tree.names(store.folder))
    chain = folder.chain(batch_id + 1)
    if chain.missing is not None:
        raise file_gone(storage, chain.missing, batch_id)
    for file in chain.files:
        yield _whole(file.render())
        if file.kind is Kind.ZIP:
            for shared in folder.snapshot(file).shared:
                path = layout.SharedFile(store, shared.folder, shared.name).render()
                size = tree.size(path)
                if size is None:
                    raise file_gone(storage, path, batch_id)
                if size != shared.size_bytes:
                    raise other_size(full(storage.uri, path), size, shared.size_bytes)
                yield _whole(path)


def _whole(path: str) -> CutFile:
    return CutFile(path, How.WHOLE, path)
