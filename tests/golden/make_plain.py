"""Make golden checkpoints with a PySpark that Holdfast does not run on: `python tests/golden/make_plain.py`.

It needs nothing but that PySpark (3.4 to 4.1), in a virtual environment of its own. Spark 3.4 and 3.5 write
no metadata of their operators.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from golden_queries import STREAMING, aggregate, deduplicated, filtered, joined, pack, settings
from pyspark.sql import DataFrame, SparkSession

# Name, query, provider, output mode.
CHECKPOINTS: dict[str, tuple[Callable[[SparkSession, Path], DataFrame], str, str]] = {
    "aggregate-memory": (aggregate, "memory", "update"),
    "aggregate-rocksdb": (aggregate, "rocksdb", "update"),
    "join-memory": (joined, "memory", "append"),
    "dedupe-changelog": (deduplicated, "changelog", "append"),
    "stateless-memory": (filtered, "memory", "append"),
}


def session(folder: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": folder,
        f"{STREAMING}.stateStore.maintenanceInterval": "300ms",
    }
    builder = SparkSession.builder.master("local[2]").appName("golden")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def make(spark: SparkSession, name: str, target: Path) -> None:
    query, provider, mode = CHECKPOINTS[name]
    for key, value in settings(provider).items():
        spark.conf.set(key, value)
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        checkpoint = folder / "checkpoint"
        writer = query(spark, folder).writeStream.format("noop").outputMode(mode)
        started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        started.awaitTermination()
        pack(checkpoint, target / f"{name}.tar.xz")
    print(target / name)  # noqa: T201 - says what it has made


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="golden-spark-", ignore_cleanup_errors=True) as folder:
        spark = session(folder)
        version = ".".join(spark.version.split(".")[:2])
        has_dedupe = hasattr(DataFrame, "dropDuplicatesWithinWatermark")  # since Spark 3.5
        names = [name for name in CHECKPOINTS if has_dedupe or not name.startswith("dedupe")]
        for name in sys.argv[1:] or names:
            make(spark, name, Path(__file__).parent / version)
        spark.stop()


if __name__ == "__main__":
    main()
