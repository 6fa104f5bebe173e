"""What Spark's Python workers must know of the driver's code."""

from __future__ import annotations

from types import ModuleType


def ship_by_value(module: ModuleType) -> None:
    """Send a job file's own functions to the workers whole, since they cannot import the file."""
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415 - needs Spark

    register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # it carries no types
