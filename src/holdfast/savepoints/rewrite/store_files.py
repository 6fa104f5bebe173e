"""Whole stores, written as Spark's providers write them: snapshots of RocksDB, and of the heap's store."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import layout
from holdfast.checkpoints.state.families import NO_FAMILIES, Families
from holdfast.errors import Unsupported
from holdfast.formats.files.checksums import spark_checksum
from holdfast.formats.rows.row_forms import ValueForm
from holdfast.layout import DEFAULT_STORE, Kind, StoreFile, StoreId
from holdfast.savepoints.rewrite.scratch_store import BUFFER_BYTES, HeapStore, KeyCounts, Scratch
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class StoreForm:
    """How the stores of a checkpoint are put into files.

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
        kind = Kind.ZIP if self.values.rocksdb else Kind.SNAPSHOT
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
        folder: A directory to work in that is not there yet, on the disk of the checkpoint if that is local.
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
        put(self._storage, self._file, data, self._now_ms)
        return self._file

    def _stored(self, keys: Sequence[bytes], family: str) -> Sequence[bytes]:
        prefix = self._prefixes[family]
        return [prefix + key for key in keys] if prefix else keys

    def _put(self, keys: Sequence[bytes], values: Sequence[bytes], family: str) -> None:
        self._counts.add(family, len(keys))
        self._scratch.put(zip(keys, values, strict=True))


def put(storage: Storage, file: StoreFile, data: bytes, now_ms: int) -> None:
    """Write a file of a store, after its checksum where Spark keeps one: under format 2."""
    path = file.render()
    if file.unique_id is not None:
        beside = layout.SparkChecksum(path).render()
        storage.write(beside, spark_checksum(data, now_ms).render())
    storage.write(path, data)
