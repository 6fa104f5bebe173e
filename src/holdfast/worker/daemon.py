"""The process that Spark forks its Python workers from, with what they need loaded already.

A worker is forked for each task that runs at once, and the first thing it would do is to load Arrow, NumPy
and pandas, which takes more than a second. Here they are loaded once, before the first fork. They are also
put out of the reach of the garbage collector, which Spark runs after each task over all that is loaded.
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
    """Load, then be Spark's daemon."""
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
