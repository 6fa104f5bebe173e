"""What Spark's Python workers must know of the driver's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship_by_value(module: ModuleType) -> None:
    """Send a job file's own functions to the workers whole, since they cannot import the file."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # it carries no types


def send_file(spark: SparkSession, name: str, write: Callable[[str], None]) -> None:
    """Have a file at hand in every task from now on, as `SparkFiles.get(name)`.

    Workers fetch it from the driver when they first run a task, so it stays where it is for as long as the
    session does.

    Args:
        spark: The session.
        name: The file's name, which no other file of the session has.
        write: Writes the file to a path of this machine.
    """
    context: Any = spark.sparkContext
    path = str(Path(context._temp_dir) / name)
    write(path)
    context.addFile(path)
