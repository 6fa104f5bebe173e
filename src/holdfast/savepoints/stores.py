"""Open state stores for changes, and write them as Spark's providers do, without a JVM.

RocksDB itself creates the files. They are copied into the checkpoint one by one under unique names, and the
zip that names them is written last.
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
        families: The column families of the store.
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        self._keys = 0
        self._internal = 0

    def add(self, family: str, keys: int) -> None:
        """Count keys that were written."""
        if self._families.numbers is not None and is_internal(family):
            self._internal += keys
        else:
            self._keys += keys

    def fields(self) -> dict[str, Any]:
        """Return the metadata fields of a snapshot: the key counts and the families."""
        numbers = self._families.numbers or {}
        return {
            "numKeys": self._keys,
            "numInternalKeys": self._internal,
            "columnFamilyMapping": numbers,
            "columnFamilyTypeMap": {name: is_internal(name) for name in numbers},
            "maxColumnFamilyId": self._families.most,
        }


class Scratch:
    """A RocksDB database in a working directory, from which a snapshot is written.

    Args:
        folder: The directory.
        database: The open database.
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
        """Create an empty store.

        Args:
            folder: A directory that does not exist yet.
            bulk: Every key is written once, and none is read before all are written. Writing is faster,
                reading slower.
            buffer_bytes: The bytes held in memory before they are written to disk.
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
        """Open the files of a snapshot for changes.

        Args:
            storage: The checkpoint.
            file: The snapshot's zip.
            folder: A directory that does not exist yet.
            delimiter: The delimiter between merged values in RocksDB.

        Raises:
            Corrupt: The snapshot is damaged.
            NotFound: One of its files is missing.
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
        """Return the stored value of a key; None if it does not exist."""
        found = self.database.get(key)
        return None if found is None else bytes(found)

    def all_keys(self) -> Iterator[bytes]:
        """Yield every key in order. Cost: about a microsecond each."""
        keys: Iterator[bytes] = self.database.keys()
        return keys

    def rewrite(self, keys: Sequence[bytes]) -> None:
        """Rewrite the data files that may contain these keys, so that they contain no deleted values.

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
        """Move all writes from the log to data files."""
        self.database.flush()
        self.close()

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.database.close()

    def bring(
        self, storage: Storage, store: StoreId, counts: Callable[[], KeyCounts], snapshot_version: int
    ) -> bytes:
        """Copy the data files into the checkpoint, and return the zip that names them.

        Each new file gets a unique name, and is linked if checkpoint and directory share a disk. The store is
        closed after `counts` has returned its key counts. The zip's metadata has the given version.
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
    """A store of the memory provider, from which a snapshot is written; has the methods of `Scratch`.

    Args:
        codec: The compression of its files.
        rows: The initial rows.
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
        """See `Scratch`; deleted values leave no traces here."""

    def close(self) -> None:
        """See `Scratch`."""

    def bring(self, storage: Storage, store: StoreId, *_: object) -> bytes:  # noqa: ARG002 - one file that says nothing of itself
        """Return the content of the snapshot."""
        records = [StateRecord(RecordKind.PUT, key, value) for key, value in self._rows.items()]
        return compressed(render_records(records), self._codec)


def _entry(name: str) -> zipfile.ZipInfo:
    """Return a zip entry without a timestamp, so that equal content gives equal bytes."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _batches() -> Callable[[], Any]:
    from rocksdict import WriteBatch

    return lambda: WriteBatch(raw_mode=True)


def _readable_by_spark(options: Any) -> Any:
    """Set the table version and compression that Spark uses, which any RocksDB since 6.6 can read."""
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
        values: The encoding of values, which also identifies the provider.
        codec: The compression of the memory provider's files.
        unique_ids: Whether files have unique names, as under state-checkpoint format 2.
        snapshot_version: The version of the metadata in RocksDB's snapshots.
    """

    values: ValueForm
    codec: str
    unique_ids: bool
    snapshot_version: int = 1

    def file(self, store: StoreId, version: int) -> StoreFile:
        """Return the file of a complete store; in format 2 with a new id."""
        kind = FileKind.ZIP if self.values.rocksdb else FileKind.SNAPSHOT
        return StoreFile(store, version, kind, str(uuid.uuid4()) if self.unique_ids else None)


class StoreWriter:
    """A writer of one complete store: every row once, then `finish`.

    Nothing is written to the checkpoint before `finish`, or if the block is left without it. Keys are passed
    as stored, without the number of their column family, and values as rows; the writer adds the rest. Rows
    may come in any order, and each key at most once.

    Cost: RocksDB at least 300,000 rows per second, and disk space for the store in `folder`. The memory
    provider's store is held in memory, as in Spark.

    Args:
        storage: The checkpoint. No query may use it.
        file: The file to write, from `StoreForm.file`.
        form: The state format of the checkpoint.
        folder: A new working directory, on the disk of the checkpoint if that is local.
        families: The column families.
        now_ms: The time, in epoch milliseconds, for Spark's checksums.
        buffer_bytes: Memory for a RocksDB store before it is written to disk, in bytes.
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
                "the memory backend does not support column families",
                code="HF-E7098",
                where=file.store.folder,
                found=", ".join(sorted(families.numbers)),
                expected="a RocksDB store",
                hint="keep the state in RocksDB",
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
            rows: The row of each key's value, as `ValueForm.rows` returns it.
            family: The column family of the keys.
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
        """Write stored rows of a store with the same form and the same number of the family."""
        self._put(self._stored([key for key, _ in pairs], family), [value for _, value in pairs], family)

    def finish(self) -> StoreFile:
        """Write the store to the checkpoint: its data files, then the file that names them."""
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
    """Write a file of a store; in state-checkpoint format 2, write its checksum file first."""
    path = file.render()
    if file.unique_id is not None:
        beside = layout.SparkChecksumFile(path).render()
        storage.write(beside, spark_checksum(data, now_ms).render())
    storage.write(path, data)


class OpenStore:
    """A store at a committed batch, which can be read, changed, and written as a later version.

    The checkpoint is only read until `write`. Keys are passed as stored, without the number of their column
    family, as in `state_chunks`; `StateCodec.stored_key` creates them from rows. A caller that changes one of
    several related families must also change the others.

    Cost: to open, RocksDB 30 milliseconds and the changes since its snapshot; its data files are linked on
    the same disk. The memory provider's store is held in memory. To write, the changes, and a pass over every
    key to count them; unchanged data files keep their names, so that savepoints share them.

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
                    "the store has no snapshot, so the names of the column families are unknown",
                    code="HF-E7099",
                    where=store.folder,
                    hint="let the query run until Spark writes a snapshot, then take a savepoint",
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
        """Set keys to single values, each in its row form."""
        stored = [self._key(key, family) for key in keys]
        self._put(stored, self._form.stored(stored, rows))

    def put_lists(
        self, keys: Sequence[bytes], lists: Sequence[Sequence[bytes]], family: str = DEFAULT_STORE
    ) -> None:
        """Set keys to lists of at least one row; a key cannot have an empty list."""
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
        """Write the complete store, and close it.

        Args:
            storage: The checkpoint to write to. No query may use it.
            file: The file to write, from `StoreForm.file`, of the same store.
            now_ms: The time, in epoch milliseconds.
            thoroughly: Rewrite the RocksDB data files whose key range contains deleted or replaced keys, so
                that no file contains their old values. Otherwise they stay until Spark compacts.
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
                "unknown column family of the store",
                code="HF-E2255",
                where=self.store.folder,
                found=family,
                expected=", ".join(sorted(self._families.prefixes)),
                hint="list the states with `holdfast state list SP`",
            )
        return prefix + key
