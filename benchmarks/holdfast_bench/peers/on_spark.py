"""The job in Spark on two cores: one side, once, in a session of its own with Holdfast's defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast_bench.keyed.keyed_process import local_session, wait_for
from holdfast_bench.measure import processor_time
from holdfast_bench.peers.peer_events import SCHEMA
from holdfast_bench.peers.spark_sides import FASTEST, SPARK_SIDES, SQL
from holdfast_bench.peers.stopwatch import Run, Task, read_task, show_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(spark: SparkSession, task: Task) -> Run:
    """Run one side to the end of the events; each file is a batch.

    The seconds are those that Spark reports for the counted batches.
    """
    from pyspark.sql import functions

    if task.side == "sql_memory":
        for key, value in FASTEST.items():
            if spark.conf.isModifiable(key):
                spark.conf.set(key, value)
    files = sorted(Path(task.events, "parquet").iterdir())
    arriving = Path(task.folder, "arriving")
    arriving.mkdir()
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(arriving))
    alerts = SPARK_SIDES[task.side](stream)
    query = (
        alerts.observe("answer", functions.count("*").alias("rows"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", f"{task.folder}/checkpoint")
        .start()
    )
    try:
        for path in files[: task.warm_files]:
            os.link(path, arriving / path.name)
        wait_for(query, task.warm_files)
        before = processor_time()
        for path in files[task.warm_files :]:
            os.link(path, arriving / path.name)
        wait_for(query, len(files))
        processor = processor_time() - before
        progress: list[Any] = [each for each in query.recentProgress if each["observedMetrics"]]
    finally:
        query.stop()
    counted = [each for each in progress if each["batchId"] >= task.warm_files]
    found = sum(each["observedMetrics"]["answer"]["rows"] for each in progress)
    return Run(
        sum(each["numInputRows"] for each in counted),
        sum(each["durationMs"]["triggerExecution"] for each in counted) / 1000,
        processor,
        None if task.side in SQL else int(found),
    )


def main() -> None:
    """Read a task from standard input, run it, and print the figures as the last line."""
    task = read_task()
    with local_session(task.side, Path(task.folder, "home"), {}) as spark:
        run = measure(spark, task)
    show_run(run)


if __name__ == "__main__":
    main()
