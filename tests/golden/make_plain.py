"""Make golden checkpoints with a PySpark that Holdfast does not run on: `python tests/golden/make_plain.py`.

It needs nothing but that PySpark (3.4 to 4.1), in a virtual environment of its own. Spark 3.4 and 3.5 write
no metadata of their operators.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from golden_queries import (
    PROVIDERS,
    STREAMING,
    aggregate,
    deduplicated,
    distinct,
    everything,
    filtered,
    grouped,
    joined,
    limited,
    pack,
    sessions,
    settings,
    windowed,
    with_state,
    write_input,
)
from pyspark.sql import DataFrame, SparkSession

# Name, query, output mode.
QUERIES: dict[str, tuple[Callable[[SparkSession, Path], DataFrame], str]] = {
    "aggregate": (aggregate, "update"),
    "windowed": (windowed, "append"),
    "global": (everything, "update"),
    "join": (joined, "append"),
    "distinct": (distinct, "append"),
    "dedupe": (deduplicated, "append"),
    "session": (sessions, "append"),
    "limit": (limited, "append"),
    "groups": (grouped, "update"),
    "state": (with_state, "update"),
    "stateless": (filtered, "append"),
}
# Since which Spark there is a query or a way to keep state; all others there are in each.
SINCE = {"dedupe": (3, 5), "changelog": (3, 5), "state": (4, 0), "format2": (4, 0)}


def names_for(version: tuple[int, ...]) -> list[str]:
    """A checkpoint for each operator and each way to keep its state that a Spark has."""
    return [
        f"{query}-{provider}"
        for query in QUERIES
        for provider in PROVIDERS
        if all(version >= SINCE.get(part, version) for part in (query, provider))
        # transformWithState runs on RocksDB alone; without state there is nothing to keep.
        and not (query == "state" and provider == "memory")
        and not (query == "stateless" and provider != "memory")
        # Spark fails at these: it counts the state ids of one partition, and the shuffle partitions.
        and not (query in ("global", "limit") and provider == "format2")
    ]


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
    called, provider = name.split("-")
    query, mode = QUERIES[called]
    for key, value in settings(provider).items():
        spark.conf.set(key, value)
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        checkpoint = folder / "checkpoint"
        write_input(folder)
        writer = query(spark, folder).writeStream.format("noop").outputMode(mode)
        started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        started.awaitTermination()
        pack(checkpoint, target / f"{name}.tar.xz")
    print(target / name)  # noqa: T201 - says what it has made


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="golden-spark-", ignore_cleanup_errors=True) as folder:
        spark = session(folder)
        version = spark.version.split(".")[:2]
        for name in sys.argv[1:] or names_for(tuple(map(int, version))):
            make(spark, name, Path(__file__).parent / ".".join(version))
        spark.stop()


if __name__ == "__main__":
    main()
