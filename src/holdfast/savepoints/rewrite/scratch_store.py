"""A database of RocksDB in a directory of its own, on its way to become a snapshot in a checkpoint.

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
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.state.families import Families
from holdfast.checkpoints.state.rocksdb import database_options, laid_out
from holdfast.formats.files.compression import compressed
from holdfast.formats.files.records import Change, Record, render_records
from holdfast.formats.files.snapshot import METADATA, SharedFile, SnapshotMetadata, snapshot_metadata
from holdfast.formats.operators import is_internal
from holdfast.layout import StoreFile, StoreId
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

BUFFER_BYTES: Final = 64 << 20
_OPTIONS: Final = re.compile(r"OPTIONS-\d+")
_SST: Final = ".sst"
_TABLE_VERSION: Final = 5


class KeyCounts:
    """How many keys a store has, as the metadata of its snapshot says it.

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
        """What the metadata of a snapshot says of them and of the families."""
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
            folder: A directory that is not there yet.
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
            folder: A directory that is not there yet.
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
            target = layout.SharedFile(store, found.folder, found.name).render()
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
        """Of each kind of small file the one that counts: RocksDB may leave older ones."""
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
        records = [Record(Change.PUT, key, value) for key, value in self._rows.items()]
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
