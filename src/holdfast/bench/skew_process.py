"""The measured process of `bench skew`: one side, once, in a Spark session of its own."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Batches that are not counted: the one with the offers, and one in which the JVM compiles.
WARM_UP: Final = 2
TABLE_RUNS: Final = 3

_BATCH: Final = "streaming.sql.batchId"
_GROUP: Final = "spark.jobGroup.id"
_ANSWER: Final = "answer"


@dataclass(frozen=True, slots=True)
class Task:
    """One side's run.

    Attributes:
        side: Which side.
        events: The folder of events.
        offers: The folder of offers.
        tasks: Partitions of the shuffle.
        folder: An empty directory for the checkpoint and the event log.
    """

    side: str
    events: str
    offers: str
    tasks: int
    folder: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave, without the warm-up.

    Attributes:
        ms: All that each batch took, or each run over a table.
        slowest_ms: The time of the slowest task behind the shuffle, of each of them.
        rows: Rows of the answer, warm-up and all.
        content: A sum over their hashes, by which answers are compared in any order.
    """

    ms: tuple[int, ...]
    slowest_ms: tuple[int, ...]
    rows: int
    content: int


def measured_from(fields: Mapping[str, Any]) -> Measured:
    """Read back what the measured process printed."""
    return Measured(**{**fields, "ms": tuple(fields["ms"]), "slowest_ms": tuple(fields["slowest_ms"])})


def slowest_tasks(lines: Iterable[str]) -> dict[str, int]:
    """For each batch, or group of jobs, the run time of its slowest task, in ms.

    Tasks before the shuffle count too: what is taken from the one side must not be put on the other.

    Args:
        lines: Spark's event log.
    """
    of_stage: dict[int, str] = {}
    slowest: dict[str, int] = defaultdict(int)
    for line in lines:
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            properties = event.get("Properties") or {}
            name = properties.get(_BATCH) or properties.get(_GROUP)
            if name is not None:
                of_stage.update(dict.fromkeys(event["Stage IDs"], name))
        elif event["Event"] == "SparkListenerTaskEnd":
            metrics = event.get("Task Metrics") or {}
            name = of_stage.get(event["Stage ID"])
            if name is not None and metrics:
                slowest[name] = max(slowest[name], int(metrics["Executor Run Time"]))
    return dict(slowest)


def measure(spark: SparkSession, task: Task) -> tuple[list[tuple[str, int]], tuple[int, int]]:
    """Run one side to its end: each batch's or run's name and time, and the answer's rows and content."""
    from holdfast.bench.skew_sides import SIDES, frame_of  # noqa: PLC0415 - needs Spark

    side = SIDES[task.side]
    frame = frame_of(side, spark, task.events, task.offers, task.tasks)
    return _stream(frame, task) if side.streaming else _table(spark, frame)


def _stream(frame: DataFrame, task: Task) -> tuple[list[tuple[str, int]], tuple[int, int]]:
    query = (
        frame.observe(_ANSWER, *_content(frame))
        .writeStream.format("noop")
        .outputMode("update" if "aggregate" in task.side else "append")
        .option("checkpointLocation", f"{task.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ran = [each for each in query.recentProgress if each["numInputRows"]]
    taken = [(str(each["batchId"]), int(each["durationMs"]["triggerExecution"])) for each in ran]
    answers = [each["observedMetrics"][_ANSWER] for each in ran]
    return taken, (sum(each["n"] for each in answers), sum(each["content"] or 0 for each in answers))


def _table(spark: SparkSession, frame: DataFrame) -> tuple[list[tuple[str, int]], tuple[int, int]]:
    taken = []
    for number in range(WARM_UP + TABLE_RUNS):
        spark.sparkContext.setJobGroup(str(number), _ANSWER)
        began = time.perf_counter()
        answer = frame.agg(*_content(frame)).collect()[0]
        taken.append((str(number), round((time.perf_counter() - began) * 1000)))
    return taken, (int(answer["n"]), int(answer["content"]))


def _content(frame: DataFrame) -> list[Any]:
    from pyspark.sql import functions  # noqa: PLC0415 - needs Spark

    hashed = functions.pmod(functions.xxhash64(*frame.columns), functions.lit(1 << 20))
    return [functions.count(functions.lit(1)).alias("n"), functions.sum(hashed).alias("content")]


def main() -> None:
    """Read a task from standard input, run it, print what was measured as the last line."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - needs Spark

    from holdfast.config.defaults import (  # noqa: PLC0415 - only in the measured process
        FILE_MANAGER_KEY,
        LOCAL_FILE_MANAGER,
        SHUFFLE_PARTITIONS_KEY,
    )
    from holdfast.engine.session import configure  # noqa: PLC0415 - as above

    task = Task(**json.load(sys.stdin))
    log = Path(task.folder) / "log"
    log.mkdir()
    builder = SparkSession.builder.appName(f"bench-{task.side}").master("local[2]")
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        SHUFFLE_PARTITIONS_KEY: str(task.tasks),
        FILE_MANAGER_KEY: LOCAL_FILE_MANAGER,
        # As many tasks before the shuffle as behind it.
        "spark.sql.files.minPartitionNum": str(task.tasks),
        "spark.sql.files.openCostInBytes": "1",
        # Partitions that are put together again would hide the slowest.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        # The times of tasks are in the log alone once the session has ended.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    for key, value in own.items():
        builder = builder.config(key, value)
    spark = configure(builder, home=Path(task.folder) / "home").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        taken, (rows, content) = measure(spark, task)
    finally:
        spark.stop()
    (file,) = (each for each in log.iterdir() if not each.name.startswith("."))
    with file.open(encoding="utf-8") as lines:
        slowest = slowest_tasks(lines)
    counted = taken[WARM_UP:]
    result = Measured(
        tuple(ms for _, ms in counted), tuple(slowest[name] for name, _ in counted), rows, content
    )
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
