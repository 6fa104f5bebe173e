"""The measured process: one side over one workload's files, once, in a Spark session of its own."""

from __future__ import annotations

import datetime as dt
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Internal, Unavailable
from holdfast_bench.keyed.keyed_files import Written, oldest_snapshot, written
from holdfast_bench.keyed.keyed_memory import Memory, WorkerMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Spark takes a snapshot of a store that is ten versions ahead of the last one, and writes them once a minute.
SNAPSHOT_EVERY = 10
SNAPSHOT_PATIENCE_S = 150.0


@dataclass(frozen=True, slots=True)
class Task:
    """One side's run.

    Args:
        side: Which side.
        timed: With time to live and timers.
        load: Files that fill the state first.
        batches: Files of the batches to measure.
        warm_up: How many of these are not counted.
        snapshots: Whether to wait for the snapshot after the load and for the last one, so that what
            snapshots cost falls on the batches that caused it.
        folder: Where the input and the checkpoint go; an empty directory on the files' disk.
    """

    side: str
    timed: bool
    load: tuple[str, ...]
    batches: tuple[str, ...]
    warm_up: int
    snapshots: bool
    folder: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave.

    Attributes:
        rows: Events in a counted batch.
        trigger_ms: All that each counted batch took.
        add_batch_ms: The part of it that read, computed and wrote state.
        phase_ms: The median of each phase that Spark times, over the counted batches.
        written: Bytes of all counted batches.
        memory: The peak of any Python worker, from the first batch on.
    """

    rows: int
    trigger_ms: tuple[int, ...]
    add_batch_ms: tuple[int, ...]
    phase_ms: Mapping[str, float]
    written: Written
    memory: Memory


def measured_from(fields: dict[str, Any]) -> Measured:
    """Read back what the measured process printed."""
    return Measured(
        fields["rows"],
        tuple(fields["trigger_ms"]),
        tuple(fields["add_batch_ms"]),
        fields["phase_ms"],
        Written(**fields["written"]),
        Memory(**fields["memory"]),
    )


def measure(spark: SparkSession, task: Task) -> Measured:
    """Run one side to the end of its files."""
    from holdfast_bench.keyed.keyed_data import SCHEMA
    from holdfast_bench.keyed.keyed_sides import totals

    folder = Path(task.folder)
    arriving = folder / "input"
    arriving.mkdir()
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(arriving))
    answer = totals(task.side, files, timed=task.timed)
    first, rest = (task.load, task.batches) if task.load else (task.batches, ())
    _arrive(first, arriving)
    with WorkerMemory(os.getpid()) as memory:
        query = (
            answer.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        try:
            wait_for(query, len(first))
            _settle(task, folder)
            _arrive(rest, arriving)
            wait_for(query, len(first) + len(rest))
            _settle(task, folder)
            progress = [each for each in query.recentProgress if _source(each)["numInputRows"]]
        finally:
            query.stop()
    return _evaluate(task, progress, folder / "checkpoint" / "state", memory.peak)


def _arrive(files: Iterable[str], folder: Path) -> None:
    """Let files turn up in a folder; a link keeps the time of change that orders them."""
    for each in files:
        os.link(each, folder / Path(each).name)


def wait_for(query: StreamingQuery, files: int) -> None:
    """Wait until so many files are read: each is a batch, and the log of the source counts them from 0."""
    while True:
        query.awaitTermination(1)  # raises what the query failed with
        last = query.lastProgress
        if last is not None and _files_read(_source(last)["endOffset"]) >= files:
            return


def _source(progress: Any) -> Any:
    """The files' part of a batch: an operator may have brought a source of its own."""
    return next(each for each in progress["sources"] if each["description"].startswith("FileStreamSource"))


def _files_read(offset: Any) -> int:
    """Zero before the first batch, which Spark reports as null or as the text `null`."""
    read = json.loads(offset) if isinstance(offset, str) else offset
    return 0 if read is None else int(read["logOffset"]) + 1


def _settle(task: Task, folder: Path) -> None:
    """Wait for the snapshot that is due, if the task is to count it."""
    if not task.snapshots:
        return
    state = folder / "checkpoint" / "state"
    committed = max(int(each.name) for each in (folder / "checkpoint" / "commits").glob("[0-9]*")) + 1
    deadline = time.monotonic() + SNAPSHOT_PATIENCE_S
    while committed - oldest_snapshot(state) >= SNAPSHOT_EVERY:
        if time.monotonic() > deadline:
            raise Unavailable(
                "Spark wrote no snapshot in time",
                where=str(state),
                found=f"version {oldest_snapshot(state)}",
                expected=f"one of the last {SNAPSHOT_EVERY} up to {committed}",
            )
        time.sleep(0.5)


def _evaluate(task: Task, progress: list[Any], state: Path, memory: Memory) -> Measured:
    if len(progress) != len(task.load) + len(task.batches):
        raise Internal(
            "a batch of a measurement did not take exactly one file",
            where=task.side,
            found=f"{len(progress)} batches",
            expected=f"{len(task.load) + len(task.batches)}",
        )
    counted = progress[len(task.load) + task.warm_up :]
    # The state of batch N is version N + 1.
    versions = {each["batchId"] + 1 for each in counted}
    began = dt.datetime.fromisoformat(counted[0]["timestamp"].replace("Z", "+00:00")).timestamp()
    durations = [each["durationMs"] for each in counted]
    return Measured(
        int(_source(counted[0])["numInputRows"]),
        tuple(int(each["triggerExecution"]) for each in durations),
        tuple(int(each["addBatch"]) for each in durations),
        {phase: statistics.median(each.get(phase, 0) for each in durations) for phase in durations[0]},
        written(state, versions, began),
        memory,
    )


@contextmanager
def local_session(name: str, home: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with Holdfast's defaults on two cores, two partitions and all progress of its queries."""
    from pyspark.sql import SparkSession

    from holdfast.config.spark_defaults import SHUFFLE_PARTITIONS_KEY
    from holdfast.engine.file_manager import local_settings
    from holdfast.engine.session.java import no_jvm_left
    from holdfast.engine.session.session import configure

    builder = SparkSession.builder.appName(f"bench-{name}").master("local[2]")
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        SHUFFLE_PARTITIONS_KEY: "2",
        # All batches' figures are still there at the end.
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        **settings,
    }
    for key, value in own.items():
        builder = builder.config(key, value)
    with no_jvm_left():
        spark = configure(builder, home=home).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for key, value in local_settings(spark).items():
        spark.conf.set(key, value)
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    """Read a task from standard input, run it, print what was measured as the last line."""
    from holdfast.config.spark_defaults import RETAIN_KEY

    fields = json.load(sys.stdin)
    task = Task(**{**fields, "load": tuple(fields["load"]), "batches": tuple(fields["batches"])})
    # All state files are still there at the end.
    with local_session(task.side, Path(task.folder) / "home", {RETAIN_KEY: "100000"}) as spark:
        result = measure(spark, task)
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
