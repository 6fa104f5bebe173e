"""How large the state was after each batch that is still kept."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.checkpoints.checkpoint import listed_stores
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.stores import noted_operators
from holdfast.storage.port import Storage


def state_bytes(
    storage: Storage, batches: Sequence[int], *, only_whole: bool = False
) -> dict[int, dict[int, int]]:
    """The bytes of state that a restart after each of these batches would read, by batch and operator.

    A running query may delete the files of old batches meanwhile; what is gone counts as nothing.

    Cost: one listing of each store's folder, the size of each file, and the index of each RocksDB snapshot.

    Args:
        storage: The checkpoint.
        batches: Committed batches.
        only_whole: Whether batches of which a file is gone are left out.

    Raises:
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    sizes: dict[int, dict[int, int]] = {batch_id: {} for batch_id in batches}
    for operator in noted_operators(storage, logs.newest):
        operator_id = operator.folder.operator_id
        for partition in operator.folder.partitions:
            for folder in listed_stores(storage, logs, operator, partition):
                for batch_id, by_operator in list(sizes.items()):
                    chain = folder.chain(batch_id + 1)
                    if only_whole and chain.missing is not None:
                        del sizes[batch_id]
                        continue
                    size = folder.read_bytes(chain)
                    by_operator[operator_id] = by_operator.get(operator_id, 0) + size
    return sizes
