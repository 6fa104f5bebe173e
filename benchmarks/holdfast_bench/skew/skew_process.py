"""The measured process of `bench skew`: one side, or some by turns, once, in one Spark session."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_bench.measure import processor_time
from holdfast_bench.skew.skew_data import WARMING
from holdfast_bench.turns import in_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Batches that are not counted: the one with the offers, and those that warm up.
WARM_UP: Final = 1 + WARMING
TABLE_RUNS: Final = 3

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_GROUP: Final = "spark.jobGroup.id"
_ANSWER: Final = "answer"


@dataclass(frozen=True, slots=True)
class Task:
    """One run.

    Attributes:
        sides: Which side; or which, batch by batch by turns.
        events: The folder of events.
        offers: The folder of offers.
        tasks: Partitions of the shuffle.
        folder: An empty directory for checkpoints, the files that are read, and the event log.
    """

    sides: Sequence[str]
    events: str
    offers: str
    tasks: int
    folder: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a side gave, without the warm-up.

    Attributes:
        ms: All that each batch took, or each run over a table.
        slowest_ms: The time of the slowest task, of each of them.
        processor_ms: What each of them took of the processors.
        rows: Rows of the answer, warm-up and all.
        content: A sum over their hashes, by which answers are compared in any order.
    """

    ms: tuple[int, ...]
    slowest_ms: tuple[int, ...]
    processor_ms: tuple[int, ...]
    rows: int
    content: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one batch took, or one run over a table; the name is that of its tasks in the event log."""

    name: str
    ms: int
    processor_ms: int


@dataclass(frozen=True, slots=True)
class _Ran:
    """A side that has come to its end: its batches, and the answer's rows and content."""

    taken: Sequence[_Taken]
    rows: int
    content: int

    def measured(self, slowest: Mapping[str, int]) -> Measured:
        """The counted batches, with the time of each one's slowest task."""
        counted = self.taken[WARM_UP:]
        return Measured(
            tuple(each.ms for each in counted),
            tuple(slowest[each.name] for each in counted),
            tuple(each.processor_ms for each in counted),
            self.rows,
            self.content,
        )


def measured_from(fields: Mapping[str, Any]) -> Measured:
    """Read back what the measured process printed."""
    figures = {each: tuple(fields[each]) for each in ("ms", "slowest_ms", "processor_ms")}
    return Measured(**{**fields, **figures})


def slowest_tasks(lines: Iterable[str]) -> dict[str, int]:
    """For each batch, or group of jobs, the run time of its slowest task, in ms.

    A batch is named by its query and its number, a group as it is. Tasks before the shuffle count too: what
    is taken from the one side must not be put on the other.

    Args:
        lines: Spark's event log.
    """
    of_stage: dict[int, str] = {}
    slowest: dict[str, int] = defaultdict(int)
    for line in lines:
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            properties = event.get("Properties") or {}
            name = properties.get(_GROUP)
            if _BATCH in properties:
                name = _name(properties[_QUERY], properties[_BATCH])
            if name is not None:
                of_stage.update(dict.fromkeys(event["Stage IDs"], name))
        elif event["Event"] == "SparkListenerTaskEnd":
            metrics = event.get("Task Metrics") or {}
            name = of_stage.get(event["Stage ID"])
            if name is not None and metrics:
                slowest[name] = max(slowest[name], int(metrics["Executor Run Time"]))
    return dict(slowest)


def _name(query: object, batch: object) -> str:
    return f"{query} {batch}"


def measure(spark: SparkSession, task: Task) -> dict[str, _Ran]:
    """Run the sides to their end: a table alone, streams batch by batch by turns."""
    from holdfast_bench.skew.skew_sides import SIDES, frame_of

    if all(SIDES[each].streaming for each in task.sides):
        return _streams(spark, task)
    (name,) = task.sides
    return {name: _table(spark, frame_of(SIDES[name], spark, task.events, task.offers, task.tasks))}


class _Stream:
    """A side that runs: a file that it is given is a batch."""

    def __init__(self, spark: SparkSession, name: str, task: Task) -> None:
        from holdfast_bench.skew.skew_sides import SIDES, frame_of

        self._files = Path(task.folder) / name
        self._files.mkdir()
        frame = frame_of(SIDES[name], spark, str(self._files), task.offers, task.tasks)
        writer = frame.observe(_ANSWER, *_content(frame)).writeStream.format("noop")
        self._writer = writer.outputMode("update" if SIDES[name].updates else "append").option(
            "checkpointLocation", f"{task.folder}/checkpoint-{name}"
        )
        self._query: StreamingQuery | None = None
        self._processor_ms: list[int] = []

    def take(self, file: Path) -> None:
        """Read a file, and wait until that is done."""
        began = processor_time()
        fresh = self._files / f".{file.name}"
        fresh.hardlink_to(file)
        fresh.rename(self._files / file.name)
        # The first file is there when the query starts: the offers come in one batch with it.
        self._query = self._query or self._writer.start()
        self._query.processAllAvailable()
        self._processor_ms.append(round((processor_time() - began) * 1000))

    def stop(self) -> _Ran:
        """What its batches took. Those without a row are none, but what they put out is of the answer."""
        assert self._query is not None  # noqa: S101 - there is a first file
        progress = self._query.recentProgress
        self._query.stop()
        ran = [each for each in progress if each["numInputRows"]]
        taken = [
            _Taken(
                _name(each["id"], each["batchId"]), int(each["durationMs"]["triggerExecution"]), processor_ms
            )
            for each, processor_ms in zip(ran, self._processor_ms, strict=True)
        ]
        answers = [
            each["observedMetrics"][_ANSWER] for each in progress if _ANSWER in each["observedMetrics"]
        ]
        return _Ran(taken, sum(each["n"] for each in answers), sum(each["content"] or 0 for each in answers))


def _streams(spark: SparkSession, task: Task) -> dict[str, _Ran]:
    streams = [_Stream(spark, name, task) for name in task.sides]
    for number, file in enumerate(sorted(Path(task.events).iterdir())):
        for each in in_turn(streams, number):
            each.take(file)
    return {name: each.stop() for name, each in zip(task.sides, streams, strict=True)}


def _table(spark: SparkSession, frame: DataFrame) -> _Ran:
    taken = []
    for number in range(WARM_UP + TABLE_RUNS):
        spark.sparkContext.setJobGroup(str(number), _ANSWER)
        began, processor_began = time.perf_counter(), processor_time()
        answer = frame.agg(*_content(frame)).collect()[0]
        seconds, processor = time.perf_counter() - began, processor_time() - processor_began
        taken.append(_Taken(str(number), round(seconds * 1000), round(processor * 1000)))
    return _Ran(taken, int(answer["n"]), int(answer["content"]))


def _content(frame: DataFrame) -> list[Any]:
    from pyspark.sql import functions

    hashed = functions.pmod(functions.xxhash64(*frame.columns), functions.lit(1 << 20))
    return [functions.count(functions.lit(1)).alias("n"), functions.sum(hashed).alias("content")]


def main() -> None:
    """Read a task from standard input, run it, print what was measured as the last line."""
    from pyspark.sql import SparkSession

    from holdfast.config.spark_defaults import (
        SHUFFLE_PARTITIONS_KEY,
    )
    from holdfast.engine.file_manager import local_settings
    from holdfast.engine.session.java import no_jvm_left
    from holdfast.engine.session.session import configure

    task = Task(**json.load(sys.stdin))
    log = Path(task.folder) / "log"
    log.mkdir()
    builder = SparkSession.builder.appName("bench-skew").master("local[2]")
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        SHUFFLE_PARTITIONS_KEY: str(task.tasks),
        # As many tasks before the shuffle as behind it.
        "spark.sql.files.minPartitionNum": str(task.tasks),
        "spark.sql.files.openCostInBytes": "1",
        # Partitions that are put together again would hide the slowest.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        # Queries that wait for their turn look for files less often than a hundred times a second.
        "spark.sql.streaming.pollingDelay": "100ms",
        # The times of tasks are in the log alone once the session has ended.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    for key, value in own.items():
        builder = builder.config(key, value)
    with no_jvm_left():
        spark = configure(builder, home=Path(task.folder) / "home").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for name, value in local_settings(spark).items():
        spark.conf.set(name, value)
    try:
        ran = measure(spark, task)
    finally:
        spark.stop()
    (file,) = (each for each in log.iterdir() if not each.name.startswith("."))
    with file.open(encoding="utf-8") as lines:
        slowest = slowest_tasks(lines)
    result = {name: asdict(each.measured(slowest)) for name, each in ran.items()}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
