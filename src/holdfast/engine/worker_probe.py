"""A task that reports the Python of an executor without needing this package there.

This module is sent by value, so it imports nothing of Holdfast.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "protobuf")
OWN: Final = "holdfast"

Seen = dict[str, Any]


def look_at_workers(spark: SparkSession, slots: int) -> list[Seen]:
    """Run a task in every slot in parallel, and return one report per executor.

    If a task cannot start, Spark's error is raised unchanged.
    """
    from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    module = sys.modules[__name__]
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # it carries no types
    try:
        numbers: Any = spark.sparkContext.parallelize(range(slots), slots)
        found = numbers.barrier().mapPartitions(_probe_task).collect()
    finally:
        unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return list({(entry["host"], entry["folder"]): entry for entry in found}.values())


def _probe_task(_numbers: Iterable[int]) -> Iterator[Seen]:
    """Yield a report on the environment of a task."""
    import importlib
    import os
    import platform
    import socket
    from importlib import metadata

    def version_of(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    try:
        place = str(importlib.import_module(OWN).__file__)
    except ImportError:
        place = ""
    yield {
        "host": socket.gethostname(),
        "folder": os.getcwd(),  # noqa: PTH109 - sent by value, and small
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: version_of(name) for name in (*PACKAGES, OWN)},
        "place": place,
    }
