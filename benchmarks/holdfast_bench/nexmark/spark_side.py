"""One query in Spark on two cores: with Holdfast, or in plain PySpark with Spark's own defaults."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_bench.keyed.keyed_process import local_session
from holdfast_bench.measure import processor_time
from holdfast_bench.nexmark.holdfast_queries import HOLDFAST, QUERIES, Query
from holdfast_bench.nexmark.plain_queries import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# What Spark's guide advises for state: RocksDB with a changelog; and as many partitions as cores.
_PLAIN: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
_UTC: Final = {"spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True)
class Task:
    """One run of a query.

    Args:
        side: "holdfast", "pyspark" or "flink".
        query: The name of the query.
        events: The folder with the events.
        warm_up: The number of batches that are not counted.
        counted: The number of events in the other batches, of the streams that the query reads.
        folder: An empty folder for checkpoints and output.
    """

    side: str
    query: str
    events: str
    warm_up: int
    counted: int
    folder: str


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run.

    Attributes:
        events: The counted events, of the streams that the query reads.
        seconds: The time of the counted batches.
        processor: Seconds of processors in that time, of all processes.
    """

    events: int
    seconds: float
    processor: float


def measure(spark: SparkSession, task: Task) -> Run:
    """Run a query over all events; each file is a batch."""
    query = QUERIES[task.query]
    running = started(query, task.side, Streams(spark, Path(task.events)), Path(task.folder))
    before = processor_time()
    while not running.awaitTermination(0.05):  # type: ignore[arg-type] # Spark takes fractions of a second
        last = running.lastProgress
        if last is None or last["batchId"] < task.warm_up - 1:
            before = processor_time()
    processor = processor_time() - before
    counted: list[Any] = [each for each in running.recentProgress if each["batchId"] >= task.warm_up]
    return Run(
        task.counted, sum(each["durationMs"]["triggerExecution"] for each in counted) / 1000, processor
    )


def started(query: Query, side: str, streams: Streams, folder: Path) -> StreamingQuery:
    """Start a query over all files; its rows are discarded, except those of `q10`, which are written."""
    rows = query.build(side, streams).writeStream.outputMode(query.mode(side))
    writer = rows.option("checkpointLocation", str(folder / "checkpoint"))
    if query.name == "q10":
        writer = writer.format("csv").option("path", str(folder / "bids")).partitionBy("dt", "hm")
    else:
        writer = writer.format("noop")
    return writer.trigger(availableNow=True).start()


@contextmanager
def session_of(side: str, home: Path) -> Iterator[SparkSession]:
    """Open the session of a side, on two cores."""
    if side == HOLDFAST:
        with local_session(f"nexmark-{side}", home, _UTC) as spark:
            yield spark
        return
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"nexmark-{side}").master("local[2]")
    for key, value in {**_PLAIN, **_UTC}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    """Read a task from standard input, run it, and print the figures as the last line."""
    task = Task(**json.load(sys.stdin))
    with session_of(task.side, Path(task.folder, "home")) as spark:
        run = measure(spark, task)
    sys.stdout.write("\n" + json.dumps(asdict(run)) + "\n")


if __name__ == "__main__":
    main()
