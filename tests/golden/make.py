"""Make the golden checkpoints anew: `python tests/golden/make.py [NAME …]`, once with each Spark.

Each is a small real checkpoint, packed into `tests/golden/<Spark>/<name>.tar.xz`. They stay as they are when
Spark or Holdfast change: what was written once must stay readable. Make one anew only if a test needs
something else to be in it, and look at what its expectations say then.

What plain PySpark can run is in `golden_queries`; `make_plain` runs it with a Spark that Holdfast is not for.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golden_queries import (
    STREAMING,
    aggregate,
    deduplicated,
    events,
    everything,
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

import holdfast as hf

HERE = Path(__file__).parent


class Visits(hf.Keyed):
    """How often each customer came, and what he spent."""

    visits = hf.value("long", default=0)
    spend = hf.reducing("long", hf.add)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.visits += 1
        state.spend.add(event.amount)
        yield {"customer": event.customer, "visits": state.visits}


def keyed(spark: SparkSession, folder: Path) -> DataFrame:
    seen = events(spark, folder / "in")
    return hf.keyed(seen, by="customer", key_groups=4).process(
        Visits(), output="customer string, visits long", name="visits"
    )


Query = Callable[[SparkSession, Path], DataFrame]

# Name, query, provider, output mode.
CHECKPOINTS: dict[str, tuple[Query, str, str]] = {
    "aggregate-memory": (aggregate, "memory", "update"),
    "aggregate-rocksdb": (aggregate, "rocksdb", "update"),
    "aggregate-changelog": (aggregate, "changelog", "update"),
    "aggregate-format2": (aggregate, "format2", "update"),
    "aggregate-repartitioned": (aggregate, "changelog", "update"),
    "global-changelog": (everything, "changelog", "update"),
    "limit-memory": (limited, "memory", "append"),
    "windowed-memory": (windowed, "memory", "append"),
    "join-memory": (joined, "memory", "append"),
    "join-format2": (joined, "format2", "append"),
    "dedupe-changelog": (deduplicated, "changelog", "append"),
    "session-rocksdb": (sessions, "rocksdb", "append"),
    "state-format2": (with_state, "format2", "update"),
    "keyed-format2": (keyed, "format2", "append"),
    "spread-format2": (keyed, "format2", "append"),
}
# With each key group under its own number, as was done before they were spread evenly.
PLAIN = ("keyed-format2",)
# Brought into so many partitions at the end, by Spark itself.
REPARTITIONED = {"aggregate-repartitioned": 3}
# With other Sparks: enough to meet each kind of file.
ELSEWHERE = ("aggregate-memory", "aggregate-format2", "join-format2", "state-format2")


def make(spark: SparkSession, name: str, target: Path) -> None:
    query, provider, mode = CHECKPOINTS[name]
    for key, value in settings(provider).items():
        spark.conf.set(key, value)
    spark.conf.set("spark.holdfast.keyGroups.spread", str(name not in PLAIN).lower())
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        checkpoint = folder / "checkpoint"
        write_input(folder)
        writer = query(spark, folder).writeStream.format("noop").outputMode(mode)
        started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        started.awaitTermination()
        if name in REPARTITIONED:
            manager: Any = spark._streamingCheckpointManager
            manager.repartition(str(checkpoint), REPARTITIONED[name])
        pack(checkpoint, target / f"{name}.tar.xz")
    print(target / name)  # noqa: T201 - says what it has made


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="golden-spark-"))
    spark = hf.session(
        "golden",
        master="local[2]",
        home=place,
        conf={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            f"{STREAMING}.stateStore.maintenanceInterval": "300ms",
            f"{STREAMING}.stateStore.rowChecksum.enabled": "true",
        },
    )
    version = ".".join(spark.version.split(".")[:2])
    names = sys.argv[1:] or (CHECKPOINTS if version == "4.2" else ELSEWHERE)
    for name in names:
        make(spark, name, HERE / version)
    spark.stop()
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
