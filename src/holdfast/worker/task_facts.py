"""The partition, batch and local properties of a Spark task, and the memory of its process."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa


def prepare() -> None:
    """Set Arrow's allocator to that of the system.

    Arrow's default allocator keeps freed memory, which after large batches exceeds the memory in use.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def give_back(limit_bytes: int) -> None:
    """Return freed memory to the system if the process holds more than half of its limit.

    With less memory in use, the next batch would only allocate it again.
    """
    if own_bytes() > limit_bytes // 2:
        with suppress(OSError, AttributeError):  # only the GNU C library has this function
            ctypes.CDLL(None).malloc_trim(0)


def own_bytes() -> int:
    """Return the private memory of the process in bytes; 0 if the system does not report it."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def partition_id() -> int | None:
    """Return the partition number of this task, or None outside Spark."""
    context = _context()
    return None if context is None else int(context.partitionId())


def local_property(name: str) -> str | None:
    """Return a local property set by the driver for its tasks, or None."""
    context = _context()
    value: str | None = None if context is None else context.getLocalProperty(name)
    return value


def batch_number() -> int | None:
    """Return the id of this task's batch, or None outside a streaming query."""
    number = local_property("streaming.sql.batchId")
    return None if number is None else int(number)


def _context() -> Any:
    try:
        from pyspark import TaskContext
    except ImportError:
        return None  # a test without Spark
    return TaskContext.get()
