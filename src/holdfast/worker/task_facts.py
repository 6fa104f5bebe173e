"""What Spark tells a task of itself: its partition, its batch, and the properties of its query."""

from __future__ import annotations

from typing import Any


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
