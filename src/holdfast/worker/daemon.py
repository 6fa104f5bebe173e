"""The process from which Spark forks its Python workers, with their modules loaded in advance.

Loading Arrow, NumPy and pandas takes more than a second per worker. The daemon loads them once, before the
first fork, and excludes them from garbage collection, which Spark runs after each task.
"""

from __future__ import annotations

import gc
import importlib

_LOADED = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.worker",
    "holdfast.worker.build",
    "holdfast.worker.state.spark_store",
)


def main() -> None:
    """Load the modules, then run Spark's daemon."""
    from pyspark.daemon import manager

    for name in _LOADED:
        try:
            importlib.import_module(name)
        except ImportError:  # noqa: PERF203 - another Spark may have it elsewhere; a worker loads what it needs
            continue
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
