"""The state of one store, taken out of its files to be changed, and written anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.checkpoints.state.families import Families
from holdfast.checkpoints.state.rows import base_rows, layers
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Invalid, Unsupported
from holdfast.layout import DEFAULT_STORE, Kind, StoreFile, StoreId
from holdfast.savepoints.rewrite.scratch_store import HeapStore, KeyCounts, Scratch
from holdfast.savepoints.rewrite.store_files import put
from holdfast.storage.port import Storage


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
        folder: A directory that is not there yet, on the disk of the checkpoint if that is local.
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
        elif found.base is None or found.base.kind is not Kind.ZIP:
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
                    where=store.folder,
                    hint="let the query run until Spark has written a snapshot, and take a savepoint then",
                )
            known = {codec.name.family for codec in operator.known() if codec.name.store == store.name}
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
        """Set keys to lists, each given by its rows; at least one, for an empty list is no key."""
        stored = [self._key(key, family) for key in keys]
        self._put(
            stored, [self._form.stored_list(key, rows) for key, rows in zip(stored, lists, strict=True)]
        )

    def delete(self, keys: Sequence[bytes], family: str = DEFAULT_STORE) -> None:
        """Delete keys; one that is not there is no error."""
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
                that have such keys in their range are written anew. Else they stay until Spark compacts.
        """
        if thoroughly and self._touched:
            self._scratch.rewrite(sorted(self._touched))
        data = self._scratch.bring(storage, file.store, self._counted, self._snapshot_version)
        put(storage, file, data, now_ms)
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
                where=self.store.folder,
                found=family,
                expected=", ".join(sorted(self._families.prefixes)),
            )
        return prefix + key
