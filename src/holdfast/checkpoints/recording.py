"""Note what the files of a checkpoint are, while its query commits batch after batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs, readable
from holdfast.checkpoints.record import Identity, Noted, Record, RecordFile, identity_of
from holdfast.checkpoints.tree import Tree
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.logs.offset_log import log_offset
from holdfast.json_shapes import JsonShape, json_as
from holdfast.layout import Kind, Place, StoreFile
from holdfast.storage.hashing import hash_file
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class Noting(JsonShape):
    """What one look at a checkpoint has brought.

    Attributes:
        batch_id: The newest committed batch; None before the first.
        batches: How many batches the record has come further.
        files: Files that were noted.
        size_bytes: Their bytes.
        behind: Whether the commit log ends before a batch that was noted. Nothing is noted then, until the
            query commits again.
    """

    batch_id: int | None = field(metadata=json_as(formerly="batch"))
    batches: int = 0
    files: int = 0
    size_bytes: int = field(default=0, metadata=json_as(formerly="bytes"))
    behind: bool = False


class Recorder:
    """Keeps the record of one checkpoint.

    A file is noted once, when the batch that it belongs to is committed, and that stands. Spark never writes
    into such a file again. What it does write a second time are the files of a batch that runs again: of one
    that was never committed, which is not noted before, or of one whose commit was taken away, which is
    noted anew.

    Args:
        storage: The checkpoint.
        file: Its record, locked by the caller.
        spark: The version of Spark that runs the query; None where that is not known.
    """

    def __init__(self, storage: Storage, file: RecordFile, spark: str | None = None) -> None:
        self._storage = storage
        self._file = file
        self._record: Record | None = None
        self.spark = spark

    @property
    def batch_id(self) -> int | None:
        """The newest batch that was noted."""
        return None if self._record is None else self._record.batch_id

    def begin(self, *, anew: bool = False) -> bool:
        """Read what was noted before; whether there is something that counts.

        Args:
            anew: Forget it.

        Raises:
            Unavailable: The storage does not answer, or the record cannot be read or written.
        """
        identity = identity_of(self._storage)
        before = None
        if not anew:
            with suppress(Corrupt):  # a record that nobody can read is of no use
                before = self._file.read()
        if before is not None and before.belongs_to(identity, self._storage):
            self._record = before
            return before.batch_id is not None
        self._record = Record(identity)
        if anew:
            self._file.rewrite(self._record)
        else:
            self._file.forget()
        return False

    def discard(self) -> None:
        """Take a record away of which nothing is to be kept."""
        self._file.delete()
        self._record = None

    def ran_from(self, batch_id: int) -> None:
        """A run of the query has begun with this batch: what was noted of it and of later ones is past."""
        if self._record is None:
            self.begin()
        record = self._record
        if record is not None and record.batch_id is not None and batch_id <= record.batch_id:
            self._file.append(record, [{"from": batch_id}])

    def look(self, *, ended: bool = False) -> Noting:
        """Note every file of a committed batch that is not noted yet.

        Cost: every folder is listed, and what is new is read once.

        Args:
            ended: The query has ended and nobody writes any more: what comes to be after this is foreign.

        Raises:
            Unavailable: The storage does not answer, or the record cannot be written.
        """
        identity = identity_of(self._storage)
        logs = Logs(self._storage)
        newest = logs.newest
        if newest is None:
            return Noting(None)
        record = self._current(identity)
        entries: list[dict[str, Any]] = []
        if record.behind is not None and newest > record.behind:
            self._file.append(record, [{"from": record.behind + 1}])
        elif record.batch_id is not None and newest < record.batch_id:
            if record.behind is None:
                self._file.append(record, [{"behind": newest}])
            return Noting(newest, behind=True)
        before = record.batch_id
        tree = Tree(self._storage)
        found = dict(_Due(self._storage, tree, logs, record).files())
        if found or newest != before:
            spark = {} if self.spark is None else {"spark": self.spark}
            entries.append({"batch": newest, "files": found, **spark})
        if ended and logs.offered and logs.offered[-1] == newest and not (record.sealed and not entries):
            entries.append({"sealed": newest})
        _forget(record, tree, logs.committed[0])
        if entries:
            self._file.append(record, entries)
        return Noting(
            newest,
            batches=newest - before if before is not None else len(logs.committed),
            files=len(found),
            size_bytes=sum(size for size, _ in found.values()),
        )

    def _current(self, identity: Identity) -> Record:
        if self._record is None:
            self.begin()
        record = self._record
        if record is None or (identity != record.identity and not record.belongs_to(identity, self._storage)):
            # Another query has begun at the same place, or a restore was made there.
            record = self._record = Record(identity)
            self._file.rewrite(record)
        elif record.identity.query_id is None and identity.query_id is not None:
            record.identity = replace(record.identity, query_id=identity.query_id)
            self._file.rewrite(record)
        return record


@dataclass(frozen=True, slots=True)
class _Due:
    """The files that one look has to note."""

    storage: Storage
    tree: Tree
    logs: Logs
    record: Record

    def files(self) -> Iterator[tuple[str, Noted]]:
        """Each with its size and hash."""
        newest = self.logs.newest or 0
        ends = self._source_ends(newest)
        for path, place in self.tree.places():
            if not _is_committed(place, newest, ends):
                continue
            if path in self.record.files and not self._may_change(place):
                continue
            noted = self._noted(path)
            if noted is None or self.record.files.get(path) == noted:
                continue
            if isinstance(place, StoreFile) and place.kind is Kind.ZIP:
                shared = self._shared(path, place)
                if shared is None:
                    continue
                yield from shared
            yield path, noted

    def _may_change(self, place: Place) -> bool:
        """Whether Spark may have written it again, though its name is the same.

        A start may bring a schema or an operator's metadata up to date; both are small. A batch that was
        planned and not committed may be planned anew, after its plan was deleted by hand.
        """
        if isinstance(place, layout.LogFile):
            return self.record.batch_id is None or place.batch_id > self.record.batch_id
        return isinstance(place, (layout.SchemaFile, layout.OperatorMetadataFile)) and place.batch_id is None

    def _source_ends(self, newest: int) -> dict[str, int | None]:
        offsets = readable(lambda: self.logs.offsets(newest))
        if offsets is None:
            return {}
        return {source: log_offset(offsets.offsets.get(source)) for source in self.tree.names(layout.SOURCES)}

    def _shared(self, path: str, place: StoreFile) -> list[tuple[str, Noted]] | None:
        """The data files of a new snapshot. They are looked for by what it says, since one that is there may
        still be half uploaded; None for a snapshot that is gone or damaged.
        """
        try:
            snapshot = parse_snapshot(self.storage.read(path), path, whole=False)
        except (NotFound, Corrupt, Unsupported):
            return None
        found = []
        for shared in snapshot.shared:
            file = layout.SharedFile(place.store, shared.folder, shared.name).render()
            if file in self.record.files or self.tree.size(file) != shared.size_bytes:
                continue
            noted = self._noted(file)
            if noted is not None and noted[0] == shared.size_bytes:
                found.append((file, noted))
        return found

    def _noted(self, path: str) -> Noted | None:
        size = self.tree.size(path)
        if size is None:
            return None
        try:
            sha256, found = hash_file(self.storage, path, size)
        except NotFound:
            return None  # cleaned up since it was listed
        return found, sha256


def _is_committed(place: Place, newest: int, ends: dict[str, int | None]) -> bool:
    """Whether a file belongs to a committed batch, or to the plan of the next."""
    if isinstance(place, layout.QueryMetadata):
        return True
    if isinstance(place, layout.LogFile):
        return place.batch_id <= newest + (place.log is layout.Log.OFFSETS)
    if isinstance(place, layout.SourceLogFile):
        end = ends.get(place.source, -1)
        return end is None or place.entry <= end
    if isinstance(place, (layout.SchemaFile, layout.OperatorMetadataFile)):
        return (place.batch_id or 0) <= newest
    return isinstance(place, StoreFile) and place.version <= newest + 1


def _forget(record: Record, tree: Tree, oldest: int) -> None:
    """Drop what the query has cleaned up, so that the record grows no larger than what is kept.

    What is gone and should not be stays: were it put back with other bytes, they would count as new.
    """
    gone = [path for path in record.files if not tree.has(path) and _is_past(layout.parse(path), oldest)]
    for path in gone:
        del record.files[path]


def _is_past(place: Place, oldest: int) -> bool:
    if isinstance(place, StoreFile):
        return place.version <= oldest
    if isinstance(place, layout.LogFile):
        return place.batch_id < oldest
    return not isinstance(place, layout.QueryMetadata)
