"""Make golden checkpoints of every built-in operator: `python tests/golden/make_plain.py [NAME …]`.

It needs nothing but a PySpark (3.4 to 4.3), in a virtual environment of its own. Spark 3.4 and 3.5 write
no metadata of their operators. Those that are there are left as they are, unless they are named.
"""

from __future__ import annotations

import os
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
    joined_by_minute,
    limited,
    pack,
    sessions,
    settings,
    windowed,
    with_sink_name,
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
    "join3": (joined, "append"),
    "join4": (joined, "append"),
    "joinlists": (joined_by_minute, "append"),
    "distinct": (distinct, "append"),
    "dedupe": (deduplicated, "append"),
    "session": (sessions, "append"),
    "limit": (limited, "append"),
    "groups": (grouped, "update"),
    "state": (with_state, "update"),
    "stateless": (filtered, "append"),
}
# Since which Spark there is a query or a way to keep state; all others there are in each.
SINCE = {
    "dedupe": (3, 5),
    "changelog": (3, 5),
    "state": (4, 0),
    "format2": (4, 0),
    "join3": (4, 1),
    "join4": (4, 3),
    "joinlists": (4, 3),
    "named": (4, 2),
}


def names_for(version: tuple[int, ...]) -> list[str]:
    """A checkpoint for each operator and each way to keep its state that a Spark has."""
    return [
        f"{query}-{provider}"
        for query in QUERIES
        for provider in PROVIDERS
        if all(version >= SINCE.get(part, version) for part in (query, provider))
        # These keep their state in RocksDB alone; without state there is nothing to keep.
        and not (query in ("state", "join3", "join4") and provider == "memory")
        and not (query == "joinlists" and provider != "format2")
        and not (query == "stateless" and provider not in ("memory", "named"))
        # Spark fails at these: it counts the state ids of one partition, and the shuffle partitions.
        and not (query in ("global", "limit") and provider in ("format2", "named") and version < (4, 2))
    ]


def session(folder: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
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
    for key, value in settings(provider, called).items():
        spark.conf.set(key, value)
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        checkpoint = folder / "checkpoint"
        write_input(folder)
        writer = query(spark, folder).writeStream.format("noop").outputMode(mode)
        writer = with_sink_name(spark, writer.option("checkpointLocation", str(checkpoint)))
        started = writer.trigger(availableNow=True).start()
        started.awaitTermination()
        pack(checkpoint, target / f"{name}.tar.xz")
    print(target / name)  # noqa: T201 - says what it has made


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="golden-spark-", ignore_cleanup_errors=True) as folder:
        spark = session(folder)
        version = spark.version.split(".")[:2]
        target = Path(__file__).parent / ".".join(version)
        for name in sys.argv[1:] or names_for(tuple(map(int, version))):
            if sys.argv[1:] or not (target / f"{name}.tar.xz").exists():
                make(spark, name, target)
        spark.stop()


if __name__ == "__main__":
    main()
