"""The facts of a task, and the memory of its process."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa


def prepare() -> None:
    """Let Arrow's memory come from the system's allocator.

    The one it has by default keeps what is freed, which after large batches is more than all that is in use.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def give_back(limit_bytes: int) -> None:
    """Return freed memory to the system where the process holds more than half of what it may use.

    Below that it would only be asked for again by the next batch.
    """
    if own_bytes() > limit_bytes // 2:
        with suppress(OSError, AttributeError):  # it is there with the GNU C library only
            ctypes.CDLL(None).malloc_trim(0)


def own_bytes() -> int:
    """The memory in use that is the process's own and no file's; 0 where the system does not say."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def partition_id() -> int | None:
    """The number of the partition that this task works on, where it is a task of Spark's."""
    context = _context()
    return None if context is None else int(context.partitionId())


def local_property(name: str) -> str | None:
    """A property that the query's driver hands on to its tasks."""
    context = _context()
    value: str | None = None if context is None else context.getLocalProperty(name)
    return value


def batch_number() -> int | None:
    """Spark's number of the batch that this task belongs to, where it is one of a stream's."""
    number = local_property("streaming.sql.batchId")
    return None if number is None else int(number)


def _context() -> Any:
    try:
        from pyspark import TaskContext
    except ImportError:
        return None  # a test without Spark
    return TaskContext.get()
