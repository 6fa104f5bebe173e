"""How large the state was after each batch that is still kept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast import layout
from holdfast.checkpoints.checkpoint import codec_of, store_names
from holdfast.checkpoints.logs.logs import Logs, operator_folders, read_operator
from holdfast.checkpoints.stores import StoreFolder
from holdfast.errors import NotFound
from holdfast.layout import Kind, StoreId
from holdfast.storage.port import Storage


def state_bytes(storage: Storage, batches: Sequence[int]) -> dict[int, dict[int, int]]:
    """The bytes of state that a restart after each of these batches would read, by batch and operator.

    A running query may delete the files of old batches meanwhile; what is gone counts as nothing.

    Cost: one listing of each store's folder, the size of each file, and the index of each RocksDB snapshot.

    Args:
        storage: The checkpoint.
        batches: Committed batches.

    Raises:
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    codec = codec_of(None if logs.newest is None else logs.offsets(logs.newest))
    sizes: dict[int, dict[int, int]] = {batch_id: {} for batch_id in batches}
    for operator in operator_folders(storage, logs.newest):
        metadata = read_operator(storage, operator.metadata_path)
        first = storage.list(f"{layout.STATE}/{operator.operator_id}/0").names if metadata is None else ()
        for partition in operator.partitions:
            for index, name in enumerate(store_names(metadata, first)):
                store = StoreId(operator.operator_id, partition, name)
                for batch_id, size in _of_store(storage, logs, store, index, codec, batches).items():
                    found = sizes[batch_id]
                    found[operator.operator_id] = found.get(operator.operator_id, 0) + size
    return sizes


def _of_store(
    storage: Storage, logs: Logs, store: StoreId, index: int, codec: str, batches: Sequence[int]
) -> dict[int, int]:
    listing = storage.list(store.folder)
    folder = StoreFolder(storage, store, listing, codec, frozenset(listing.names))

    def unique_id(version: int) -> str | None:
        return logs.unique_id(store, index, version)

    sizes = {}
    for batch_id in batches:
        files = folder.chain(batch_id + 1, unique_id).files
        size = sum(folder.size(file) for file in files)
        if files and files[0].kind is Kind.ZIP:
            with suppress(NotFound):  # the query has gone on since, and what it no longer needs is deleted
                size += folder.snapshot(files[0]).size_bytes
        sizes[batch_id] = size
    return sizes
