"""What a stateful operator counted in a batch, as the numbers of all rooms have it."""

from __future__ import annotations

from typing import Final

from holdfast.formats.request_times import request_times
from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.totals import accesses

# The quantiles of access times that are measured, as a label has them.
QUANTILES: Final = ("0.5", "0.95", "0.99")


def state_bytes(batch: BatchProgress) -> int:
    """What the stores of all operators take."""
    return sum(operator_bytes(operator) for operator in batch.operators)


def operator_bytes(operator: OperatorProgress) -> int:
    """What the store of an operator takes.

    RocksDB has nothing in files before it writes the first; until then its memory is what there is.
    """
    return stored_bytes(operator) or operator.memory_bytes


def access_seconds(operator: OperatorProgress) -> float | None:
    """Return the mean time of one access to state, of any operation, or None where none was measured."""
    by_operation = accesses(operator).values()
    count = sum(number for number, _ in by_operation)
    return sum(seconds for _, seconds in by_operation) / count if count else None


def access_quantiles(operator: OperatorProgress) -> dict[str, float]:
    """Return the quantiles of the times of requests to a database; empty for other stores."""
    requests = request_times(operator.store)
    return {} if requests is None else {name: requests.quantile(float(name)) for name in QUANTILES}


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
