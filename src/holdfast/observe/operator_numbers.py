"""What a stateful operator counted in a batch, as the numbers of all rooms have it."""

from __future__ import annotations

from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.totals import accesses


def state_bytes(batch: BatchProgress) -> int:
    """What the stores of all operators take."""
    return sum(operator_bytes(operator) for operator in batch.operators)


def operator_bytes(operator: OperatorProgress) -> int:
    """What the store of an operator takes.

    RocksDB has nothing in files before it writes the first; until then its memory is what there is.
    """
    return stored_bytes(operator) or operator.memory_bytes


def access_seconds(operator: OperatorProgress) -> float | None:
    """What one get or put took on average; of a keyed operator, to look up or to write one key."""
    kinds = accesses(operator).values()
    count = sum(number for number, _ in kinds)
    return sum(seconds for _, seconds in kinds) / count if count else None


def cache_hit_ratio(operator: OperatorProgress) -> float | None:
    """Which part of its reads found their block, or their version on the heap, in memory."""
    store = operator.store
    hits = store.get("rocksdbReadBlockCacheHitCount", 0) + store.get("loadedMapCacheHitCount", 0)
    misses = store.get("rocksdbReadBlockCacheMissCount", 0) + store.get("loadedMapCacheMissCount", 0)
    return hits / (hits + misses) if hits + misses else None


def stored_bytes(operator: OperatorProgress) -> int:
    """The state alone, without caches and buffers; 0 where it is in no file yet."""
    files = operator.store.get("rocksdbSstFileSize", 0)
    return files or operator.store.get("stateOnCurrentVersionSizeBytes", 0)
