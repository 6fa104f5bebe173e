"""Apply changed rows to the files of a savepoint's stores."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Corrupt
from holdfast.formats.files.checksums import hadoop_checksum, spark_checksum
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.logs.batch_logs import CommitLog, parse_commit
from holdfast.formats.manifest import Manifest
from holdfast.layout import FileKind, Log, LogFile, StoreFile, StoreId
from holdfast.savepoints.derived import FileChanges
from holdfast.savepoints.stores import OpenStore, StoreForm
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

_TOGETHER: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that is written or deleted.

    Attributes:
        codec: The codec of the row's column family.
        key: The key, as an UnsafeRow.
        rows: The value, or the elements of a list, as UnsafeRows; None to delete the row.
        is_list: True if the value is a list.
    """

    codec: StateCodec
    key: bytes
    rows: tuple[bytes, ...] | None
    is_list: bool = False

    @property
    def family(self) -> str:
        """Return the name of the column family."""
        return self.codec.name.family

    @property
    def stored_key(self) -> bytes:
        """Return the key as stored, without the number of its column family."""
        return self.codec.stored_key(self.key)


StoreChanges = Mapping[StoreId, Sequence[RowChange]]


def put_rows(store: OpenStore, changes: Iterable[RowChange]) -> None:
    """Put and delete rows of one store, each key once; holds some megabytes of rows at a time."""
    waiting: list[RowChange] = []
    size = 0
    for change in changes:
        waiting.append(change)
        size += len(change.key) + sum(map(len, change.rows or ()))
        if size > _TOGETHER:
            _apply_changes(store, waiting)
            waiting, size = [], 0
    _apply_changes(store, waiting)


def _apply_changes(store: OpenStore, changes: Iterable[RowChange]) -> None:
    by_family: dict[str, list[RowChange]] = {}
    for change in changes:
        by_family.setdefault(change.family, []).append(change)
    for family, rows in by_family.items():
        gone = [row.stored_key for row in rows if row.rows is None]
        values = [(row.stored_key, row.rows[0]) for row in rows if row.rows is not None and not row.is_list]
        lists = [(row.stored_key, row.rows) for row in rows if row.rows is not None and row.is_list]
        store.delete(gone, family)
        store.put([key for key, _ in values], [value for _, value in values], family)
        store.put_lists([key for key, _ in lists], [elements for _, elements in lists], family)


_IDS = "stateUniqueIds"


@dataclass(slots=True)
class StoreEdits:
    """A rewriter of the store files of one savepoint.

    Attributes:
        view: The savepoint, read as a checkpoint.
        manifest: The manifest of the savepoint.
        folder: A working directory, on the catalog's disk if that is local.
        now_ms: The time, in epoch milliseconds.
    """

    view: Storage
    manifest: Manifest
    folder: Path
    now_ms: int
    _ids: dict[StoreId, tuple[int, str]] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)
    _removed: set[str] = field(default_factory=set)

    @property
    def new_files(self) -> Storage:
        """Return the storage of the new files."""
        return LocalStorage(self.folder / "made")

    def change(self, operator: OperatorStates, store: StoreId, changes: Iterable[RowChange]) -> None:
        """Write a store with some of its rows changed.

        Args:
            operator: The operator of the store.
            store: The store.
            changes: The rows to put or delete.
        """
        place = self.folder / "stores" / uuid.uuid4().hex
        place.parent.mkdir(parents=True, exist_ok=True)
        with OpenStore(self.view, operator, store, place) as opened:
            put_rows(opened, changes)
            file = self._new_file(operator, store)
            opened.write(self.new_files, file, self.now_ms)
        self.replaced(store, file)

    def _new_file(self, operator: OperatorStates, store: StoreId) -> StoreFile:
        """Return the file for the whole store at the savepoint's batch, with a new id if files have ids."""
        version = self.manifest.batch_id + 1
        files = (layout.parse(file.path) for file in self.manifest.files)
        newest = [
            place
            for place in files
            if isinstance(place, StoreFile) and place.store == store and place.version == version
        ]
        form = StoreForm(operator.values, operator.codec, any(place.unique_id for place in newest))
        file = form.file(store, version)
        if file.unique_id is not None:
            self._ids[store] = (operator.store_names.index(store.name), file.unique_id)
        return file

    def replaced(self, store: StoreId, file: StoreFile) -> None:
        """Record that a new file replaces all earlier files of a store."""
        path = file.render()
        kept = {path}
        if file.kind is FileKind.ZIP:
            shared = parse_snapshot(self.new_files.read(path), path).shared
            kept |= {
                layout.SharedSstFile(store, shared_file.folder, shared_file.name).render()
                for shared_file in shared
            }
        for saved in self.manifest.files:
            owner = layout.state_file(saved.path)
            if owner is not None and owner.store == store and owner.render() not in kept:
                self._removed.add(saved.path)
        had = {saved.path for saved in self.manifest.files}
        sums = layout.SparkChecksumFile(path).render()
        for new_path in (*kept, sums):
            if (new_path not in had or new_path in (path, sums)) and self.new_files.size(
                new_path
            ) is not None:
                self._written.add(new_path)
        # The checksum files of the old file do not match the new one.
        for stale in (
            sums,
            layout.HadoopChecksumFile(path).render(),
            layout.HadoopChecksumFile(sums).render(),
        ):
            if stale in had and stale not in self._written:
                self._removed.add(stale)

    def finish(self) -> FileChanges:
        """Write the files that name the new files, and return the changes."""
        if self._ids:
            self._commit()
        return FileChanges(self.new_files, frozenset(self._written), frozenset(self._removed - self._written))

    def _commit(self) -> None:
        """Write the ids of the new files to the commit log."""
        path = LogFile(Log.COMMITS, self.manifest.batch_id).render()
        commit = parse_commit(self.view.read(path), path)
        given = commit.state_ids
        if given is None:
            raise Corrupt(
                "the commit log does not list the state files of the batch",
                code="HF-E6051",
                where=path,
                hint="list the damage with `holdfast savepoint verify SP`",
            )
        ids = {number: [list(stores) for stores in partitions] for number, partitions in given.items()}
        for store, (index, unique) in self._ids.items():
            ids[store.operator_id][store.partition][index] = unique
        fields = {**commit.fields, _IDS: {str(number): partitions for number, partitions in ids.items()}}
        self.rewrite(path, CommitLog(commit.version, fields, None).render())

    def rewrite(self, path: str, data: bytes) -> None:
        """Replace the content of a small file, and its checksum files if it has any."""
        had = {saved.path for saved in self.manifest.files}
        sums = layout.SparkChecksumFile(path).render()
        new = {path: data}
        if sums in had:
            new[sums] = spark_checksum(data, self.now_ms).render()
        for of, content in list(new.items()):
            beside = layout.HadoopChecksumFile(of).render()
            if beside in had:
                new[beside] = hadoop_checksum(content).render()
        for new_path, content in new.items():
            self.new_files.write(new_path, content)
            self._written.add(new_path)
