"""The cores and the memory of a query, derived from its settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from holdfast.config.spark_defaults import BOUNDED_MEMORY_KEY, PROVIDER_KEY, ROCKSDB, ROCKSDB_PROVIDER

# Returns the value of a setting; None if it is not set, or unknown.
Setting = Callable[[str], str | None]

# Tasks wait for each other with at least this many partitions and more than this many per core.
_MANY_PARTITIONS: Final = 32
_MOST_A_CORE: Final = 8
_LOCAL: Final = re.compile(r"local\[(\d+|\*)(?:, *\d+)?\]")
_SIZE: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_IN_MB: Final = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_BUDGET_MB: Final = 500
# Spark's default memory overhead.
_LEAST_ROOM_MB: Final = 384
_ROOM_SHARE: Final = 0.1


def cores_of(master: str | None, setting: Setting) -> int | None:
    """Return the number of parallel tasks; None if not declared."""
    where = master or setting("spark.master") or ""
    local = _LOCAL.fullmatch(where)
    if local is not None:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
    if where == "local":
        return 1
    executors, each = (setting(f"spark.executor.{name}") or "" for name in ("instances", "cores"))
    return int(executors) * int(each) if executors.isdecimal() and each.isdecimal() else None


def too_many(partitions: int, cores: int) -> bool:
    """Return whether there are so many partitions that tasks wait for free cores."""
    return partitions >= _MANY_PARTITIONS and partitions > _MOST_A_CORE * cores


def rocksdb_budget_mb(setting: Setting) -> int | None:
    """Return the memory limit of all stores of an executor; None without a limit."""
    if setting(BOUNDED_MEMORY_KEY) != "true" or setting(PROVIDER_KEY) != ROCKSDB_PROVIDER:
        return None
    given = setting(f"{ROCKSDB}.maxMemoryUsageMB")
    if given is None:
        return _BUDGET_MB
    return int(given) if given.isdecimal() else None


def room_beside_heap_mb(master: str | None, setting: Setting) -> int | None:
    """Return the memory of an executor's container outside its heap; None if not declared."""
    if (master or "").startswith("local"):
        return None
    given = setting("spark.executor.memoryOverhead")
    if given is not None:
        return _size_mb(given)
    heap = _size_mb(setting("spark.executor.memory") or "")
    if (
        heap is None
        or setting("spark.executor.memoryOverheadFactor") is not None
        or (master or "").startswith("k8s")
    ):
        return None  # Kubernetes uses a different share for Python
    return max(_LEAST_ROOM_MB, int(heap * _ROOM_SHARE))


def _size_mb(text: str) -> int | None:
    size = _SIZE.fullmatch(text.strip())
    return None if size is None else int(int(size[1]) * _IN_MB[size[2].lower() or "m"])
