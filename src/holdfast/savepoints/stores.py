"""Stores of state: opened to be changed, and written as Spark's providers write them.

No JVM has a part in it. RocksDB itself makes the files; they are brought into the checkpoint one by one,
under names that no other file has, and the zip that names them comes last.
"""

from __future__ import annotations

import io
import re
import shutil
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.state.rocksdb import NO_FAMILIES, Families, database_options, laid_out
from holdfast.checkpoints.state.rows import base_rows, layers
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.files.checksums import spark_checksum
from holdfast.formats.files.compression import compressed
from holdfast.formats.files.records import RecordKind, StateRecord, render_records
from holdfast.formats.files.snapshot import METADATA, SharedFile, SnapshotMetadata, snapshot_metadata
from holdfast.formats.operators import is_internal
from holdfast.formats.rows.row_forms import ValueForm
from holdfast.layout import DEFAULT_STORE, FileKind, StoreFile, StoreId
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

BUFFER_BYTES: Final = 64 << 20
_OPTIONS: Final = re.compile(r"OPTIONS-\d+")
_SST: Final = ".sst"
_TABLE_VERSION: Final = 5


class KeyCounts:
    """The number of keys in a store, for the metadata of its snapshot.

    Args:
        families: Its column families.
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        self._keys = 0
        self._internal = 0

    def add(self, family: str, keys: int) -> None:
        """Take note of keys that were written."""
        if self._families.numbers is not None and is_internal(family):
            self._internal += keys
        else:
            self._keys += keys

    def fields(self) -> dict[str, Any]:
        """Return the fields of a snapshot's metadata with these numbers and the families."""
        numbers = self._families.numbers or {}
        return {
            "numKeys": self._keys,
            "numInternalKeys": self._internal,
            "columnFamilyMapping": numbers,
            "columnFamilyTypeMap": {name: is_internal(name) for name in numbers},
            "maxColumnFamilyId": self._families.most,
        }


class Scratch:
    """A database of RocksDB in a directory of its own, on its way to become a snapshot.

    Args:
        folder: The directory.
        database: It, open.
        known: The data files that a snapshot has shared, by the name that RocksDB knows them by: they keep
            their names in the checkpoint, and are not written again.
    """

    def __init__(self, folder: Path, database: Any, metadata: SnapshotMetadata | None = None) -> None:
        self.folder = folder
        self.database = database
        self.metadata = metadata
        self._known = {} if metadata is None else {file.local_name: file for file in metadata.shared}
        self._closed = False
        self._batch: Callable[[], Any] = _batches()

    @classmethod
    def new(cls, folder: Path, *, bulk: bool = True, buffer_bytes: int = BUFFER_BYTES) -> Scratch:
        """An empty one.

        Args:
            folder: A directory that does not exist yet.
            bulk: Every key is written once and none is read before all are: quicker, and reading is slow.
            buffer_bytes: How much is held in memory before it goes to the disk.
        """
        from rocksdict import MemtableFactory, Options, Rdict

        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(buffer_bytes)
        if bulk:
            # What is written is sorted when it goes to the disk, and not before.
            options.set_memtable_factory(MemtableFactory.vector())
            options.set_allow_concurrent_memtable_write(False)
        return cls(folder, Rdict(str(folder), options=_readable_by_spark(options)))

    @classmethod
    def of(cls, storage: Storage, file: StoreFile, folder: Path, delimiter: bytes) -> Scratch:
        """One of a snapshot's files, which may be changed.

        Args:
            storage: The checkpoint.
            file: The snapshot's zip.
            folder: A directory that does not exist yet.
            delimiter: What stands between values that RocksDB merges.

        Raises:
            Corrupt: The snapshot is damaged.
            NotFound: One of its files is gone.
        """
        from rocksdict import Rdict

        metadata = laid_out(storage, file, folder)
        beside = folder.with_name(f"{folder.name}-options")
        options, families = database_options(beside, delimiter, len(metadata.shared))
        shutil.rmtree(beside)
        for choices in (options, *families.values()):
            _readable_by_spark(choices)
        database = Rdict(str(folder), options=options, column_families=families)
        return cls(folder, database, metadata)

    def put(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write keys with their values, both as they are stored."""
        batch = self._batch()
        put_one = batch.put
        for key, value in rows:
            put_one(key, value)
        self._write(batch)

    def delete(self, keys: Iterable[bytes]) -> None:
        """Delete keys, as they are stored."""
        batch = self._batch()
        for key in keys:
            batch.delete(key)
        self._write(batch)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, as it is stored; None without it."""
        found = self.database.get(key)
        return None if found is None else bytes(found)

    def all_keys(self) -> Iterator[bytes]:
        """Every key, in order. Cost: about a microsecond each."""
        keys: Iterator[bytes] = self.database.keys()
        return keys

    def rewrite(self, keys: Sequence[bytes]) -> None:
        """Write the data files anew that may hold these keys, so that nothing deleted is left in them.

        Args:
            keys: The keys, ascending.
        """
        from rocksdict import BottommostLevelCompaction, CompactOptions

        self.database.flush()
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        # The end does not belong to the range.
        self.database.compact_range(keys[0], keys[-1] + b"\0", compact_opt=options)

    def settle(self) -> None:
        """Have everything that was written in data files, and no log."""
        self.database.flush()
        self.close()

    def close(self) -> None:
        """Let go of the files; a second time it does nothing."""
        if not self._closed:
            self._closed = True
            self.database.close()

    def bring(
        self, storage: Storage, store: StoreId, counts: Callable[[], KeyCounts], snapshot_version: int
    ) -> bytes:
        """Bring the data files into the checkpoint; the zip that names them is what is returned.

        Each new file gets a name that no other has. They are linked where checkpoint and directory share a
        disk. The store is closed; `counts` is asked for the counts of its keys before. The zip's metadata
        has the version that is given.
        """
        told = counts().fields()
        self.settle()
        shared = []
        for name in self._names(_SST):
            found = self._known.get(name)
            if found is None:
                unique = f"{name.removesuffix(_SST)}-{uuid.uuid4()}{_SST}"
                found = SharedFile(name, layout.SSTS, unique, (self.folder / name).stat().st_size)
            target = layout.SharedSstFile(store, found.folder, found.name).render()
            if storage.size(target) is None:
                self._copy(storage, name, target)
            shared.append(found)
        metadata = snapshot_metadata(snapshot_version, shared, told)
        return self._zip(metadata)

    def _copy(self, storage: Storage, name: str, target: str) -> None:
        place = self.folder / name
        if place.is_symlink():  # a link to it would be one to the link
            storage.write(target, place.read_bytes())
        else:
            storage.copy(name, target, origin=LocalStorage(self.folder))

    def _zip(self, metadata: SnapshotMetadata) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in self._current():
                archive.writestr(_entry(name), (self.folder / name).read_bytes())
            archive.writestr(_entry(METADATA), metadata.render())
        return buffer.getvalue()

    def _current(self) -> list[str]:
        """Return the current file of each small kind; RocksDB may leave older ones."""
        manifest = (self.folder / "CURRENT").read_text().strip()
        options = [name for name in self._names("") if _OPTIONS.fullmatch(name)]
        return [manifest, "CURRENT", max(options)]

    def _names(self, suffix: str) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir() if file.name.endswith(suffix))

    def _write(self, batch: Any) -> None:
        from rocksdict import WriteOptions

        options: Any = WriteOptions()
        options.disable_wal = True
        self.database.write(batch, options)


class HeapStore:
    """A store of the memory provider's, on its way to become a snapshot: it does what `Scratch` does.

    Args:
        codec: The compression of its files.
        rows: What it has to begin with.
    """

    def __init__(self, codec: str, rows: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._codec = codec
        self._rows = dict(rows)

    def put(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """See `Scratch`."""
        self._rows.update(rows)

    def delete(self, keys: Iterable[bytes]) -> None:
        """See `Scratch`."""
        for key in keys:
            self._rows.pop(key, None)

    def all_keys(self) -> Iterator[bytes]:
        """See `Scratch`."""
        return iter(self._rows)

    def rewrite(self, keys: Sequence[bytes]) -> None:
        """See `Scratch`; nothing is left of what was deleted anyhow."""

    def close(self) -> None:
        """See `Scratch`."""

    def bring(self, storage: Storage, store: StoreId, *_: object) -> bytes:  # noqa: ARG002 - one file that says nothing of itself
        """The content of the snapshot."""
        records = [StateRecord(RecordKind.PUT, key, value) for key, value in self._rows.items()]
        return compressed(render_records(records), self._codec)


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry that is the same each time."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _batches() -> Callable[[], Any]:
    from rocksdict import WriteBatch

    return lambda: WriteBatch(raw_mode=True)


def _readable_by_spark(options: Any) -> Any:
    """Tables of the version that Spark fixes, compressed as it does: any RocksDB since 6.6 reads them."""
    from rocksdict import BlockBasedOptions, DBCompressionType

    table = BlockBasedOptions()
    table.set_format_version(_TABLE_VERSION)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    return options


@dataclass(frozen=True, slots=True)
class StoreForm:
    """The file layout of a checkpoint's stores.

    Attributes:
        values: How values are put into bytes; says also which provider it is.
        codec: The compression of the memory provider's files.
        unique_ids: Whether files have unique names, as under state-checkpoint format 2.
        snapshot_version: That of the metadata in RocksDB's snapshots.
    """

    values: ValueForm
    codec: str
    unique_ids: bool
    snapshot_version: int = 1

    def file(self, store: StoreId, version: int) -> StoreFile:
        """The file of a whole store; under format 2 with a new id."""
        kind = FileKind.ZIP if self.values.rocksdb else FileKind.SNAPSHOT
        return StoreFile(store, version, kind, str(uuid.uuid4()) if self.unique_ids else None)


class StoreWriter:
    """Writes one store, whole: every row once, then `finish`.

    Nothing is in the checkpoint before `finish`; leaving the block without it leaves nothing behind. Keys are
    given as they are stored, without the number of their column family, values as rows: what is around them
    is put there. Rows may come in any order, and no key may come twice.

    Cost: RocksDB 300,000 rows a second and more, and the disk's room of the store in `folder`. The memory
    provider's store is held in memory, as Spark does.

    Args:
        storage: The checkpoint. No query may use it.
        file: The file to make, as `StoreForm.file` gives it.
        form: How the checkpoint keeps its state.
        folder: A directory to work in that does not exist yet, on the disk of the checkpoint if that is
            local.
        families: Its column families.
        now_ms: The time, in epoch milliseconds, for Spark's checksums.
        buffer_bytes: How much of a store of RocksDB's is held in memory before it goes to the disk.
    """

    def __init__(
        self,
        storage: Storage,
        file: StoreFile,
        form: StoreForm,
        folder: Path,
        *,
        families: Families = NO_FAMILIES,
        now_ms: int,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        if families.numbers is not None and not form.values.rocksdb:
            raise Unsupported(
                "the memory provider has no column families",
                code="HF-E7098",
                where=file.store.folder,
                found=", ".join(sorted(families.numbers)),
                expected="a store of RocksDB's",
                hint="leave the state on rocksdb",
            )
        self._storage = storage
        self._file = file
        self._form = form
        self._now_ms = now_ms
        self._prefixes = families.prefixes
        self._counts = KeyCounts(families)
        self._scratch: Scratch | HeapStore = (
            Scratch.new(folder, buffer_bytes=buffer_bytes) if form.values.rocksdb else HeapStore(form.codec)
        )

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    def add(self, keys: Sequence[bytes], rows: Sequence[bytes], family: str = DEFAULT_STORE) -> None:
        """Write keys with single values.

        Args:
            keys: The keys as they are stored, without the number of the family.
            rows: The row of each key's value, as `ValueForm.rows` gives it.
            family: Their column family.
        """
        stored = self._stored(keys, family)
        self._put(stored, self._form.values.stored(stored, rows), family)

    def add_lists(
        self, keys: Sequence[bytes], lists: Sequence[Sequence[bytes]], family: str = DEFAULT_STORE
    ) -> None:
        """Write keys whose values are lists: the rows of each, at least one."""
        stored = self._stored(keys, family)
        values = [self._form.values.stored_list(key, rows) for key, rows in zip(stored, lists, strict=True)]
        self._put(stored, values, family)

    def add_stored(self, pairs: Sequence[tuple[bytes, bytes]], family: str = DEFAULT_STORE) -> None:
        """Write rows as they are stored in a store of the same form, where the family has the same number."""
        self._put(self._stored([key for key, _ in pairs], family), [value for _, value in pairs], family)

    def finish(self) -> StoreFile:
        """Bring the store into the checkpoint: its data files, then the file that names them."""
        data = self._scratch.bring(
            self._storage, self._file.store, lambda: self._counts, self._form.snapshot_version
        )
        write_file(self._storage, self._file, data, self._now_ms)
        return self._file

    def _stored(self, keys: Sequence[bytes], family: str) -> Sequence[bytes]:
        prefix = self._prefixes[family]
        return [prefix + key for key in keys] if prefix else keys

    def _put(self, keys: Sequence[bytes], values: Sequence[bytes], family: str) -> None:
        self._counts.add(family, len(keys))
        self._scratch.put(zip(keys, values, strict=True))


def write_file(storage: Storage, file: StoreFile, data: bytes, now_ms: int) -> None:
    """Write a file of a store, after its checksum where Spark keeps one: under format 2."""
    path = file.render()
    if file.unique_id is not None:
        beside = layout.SparkChecksumFile(path).render()
        storage.write(beside, spark_checksum(data, now_ms).render())
    storage.write(path, data)


class OpenStore:
    """One store at a committed batch: looked up, changed, and written as the whole store of a later version.

    The checkpoint is only read until `write`. Keys are given as they are stored, without the number of their
    column family, as `state_chunks` has them; `StateCodec.stored_key` makes them of rows. Who changes one
    family of several that belong together changes the others too: nothing here knows of it.

    Cost: to open, RocksDB 30 milliseconds and the changes since its snapshot; its data files are linked
    where the disk is the same. The memory provider's store is held in memory. To write, what was changed,
    and a look at every key to count them; data files that did not change keep their names, so that
    savepoints share them.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operator: The store's operator at the batch.
        store: The store.
        folder: A directory that does not exist yet, on the disk of the checkpoint if that is local.
    """

    def __init__(self, storage: Storage, operator: OperatorStates, store: StoreId, folder: Path) -> None:
        self._form = operator.values
        self.store = store
        found = layers(storage, operator, store)
        self._scratch: Scratch | HeapStore
        named = None
        if not self._form.rocksdb:
            base = () if found.base is None else base_rows(storage, operator, found.base)
            self._scratch = HeapStore(operator.codec, found.changes.over(base))
        elif found.base is None or found.base.kind is not FileKind.ZIP:
            self._scratch = Scratch.new(folder, bulk=False)
            self._scratch.put(found.changes.over(()))
        else:
            self._scratch = snapshot = Scratch.of(storage, found.base, folder, self._form.delimiter)
            named = snapshot.metadata
            changed = list(found.changes.changed(snapshot.get))
            snapshot.put((key, value) for key, value in changed if value is not None)
            snapshot.delete(key for key, value in changed if value is None)
        families = Families.of(operator, store.name, named, marked=found.marked)
        if families.numbers is not None:
            if not families.numbers and any(True for _ in self._scratch.all_keys()):
                # Spark writes a snapshot with the batch that makes a family, so one must be there.
                raise Unsupported(
                    "column families have no names, since there is no snapshot that names them",
                    code="HF-E7099",
                    where=store.folder,
                    hint="let the query run until Spark has written a snapshot, and take a savepoint then",
                )
            known = {
                codec.name.family for codec in operator.declared_codecs() if codec.name.store == store.name
            }
            families = families.with_names(known)
        self._families = families
        self._snapshot_version = operator.snapshot_version(storage) if named is None else named.version
        self._touched: list[bytes] = []

    def __enter__(self) -> OpenStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    def put(self, keys: Sequence[bytes], rows: Sequence[bytes], family: str = DEFAULT_STORE) -> None:
        """Set keys to single values, each given by its row."""
        stored = [self._key(key, family) for key in keys]
        self._put(stored, self._form.stored(stored, rows))

    def put_lists(
        self, keys: Sequence[bytes], lists: Sequence[Sequence[bytes]], family: str = DEFAULT_STORE
    ) -> None:
        """Set keys to lists, each given by its rows; at least one, for an empty list is not a key."""
        stored = [self._key(key, family) for key in keys]
        self._put(
            stored, [self._form.stored_list(key, rows) for key, rows in zip(stored, lists, strict=True)]
        )

    def delete(self, keys: Sequence[bytes], family: str = DEFAULT_STORE) -> None:
        """Delete keys; one that is missing is not an error."""
        stored = [self._key(key, family) for key in keys]
        self._touched += stored
        self._scratch.delete(stored)

    def write(self, storage: Storage, file: StoreFile, now_ms: int, *, thoroughly: bool = False) -> StoreFile:
        """Write the store whole, and close it.

        Args:
            storage: The checkpoint to write to. No query may use it.
            file: The file to make, as `StoreForm.file` gives it; of the same store.
            now_ms: The time, in epoch milliseconds.
            thoroughly: Leave the bytes of what was deleted or replaced in no file: data files of RocksDB's
                that have such keys in their range are rewritten. Else they stay until Spark compacts.
        """
        if thoroughly and self._touched:
            self._scratch.rewrite(sorted(self._touched))
        data = self._scratch.bring(storage, file.store, self._counted, self._snapshot_version)
        write_file(storage, file, data, now_ms)
        return file

    def _put(self, stored: Sequence[bytes], values: Sequence[bytes]) -> None:
        self._touched += stored
        self._scratch.put(zip(stored, values, strict=True))

    def _counted(self) -> KeyCounts:
        counts = KeyCounts(self._families)
        for prefix, keys in self._families.counted(self._scratch.all_keys()).items():
            counts.add(self._families.names.get(prefix, DEFAULT_STORE), keys)
        return counts

    def _key(self, key: bytes, family: str) -> bytes:
        prefix = self._families.prefixes.get(family)
        if prefix is None:
            raise Invalid(
                "the store has no such column family",
                code="HF-E2255",
                where=self.store.folder,
                found=family,
                expected=", ".join(sorted(self._families.prefixes)),
            )
        return prefix + key
