from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.boundary import stop_between_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def until(condition: object, query: StreamingQuery, seconds: float = 60) -> None:
    """Wait for a condition; a query that failed meanwhile is reported, not waited for."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert query.exception() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def batches(checkpoint: Path, log: str) -> set[int]:
    return {int(each.name) for each in (checkpoint / log).iterdir() if each.name.isdigit()}


def test_the_batch_that_runs_commits_and_no_other_begins(spark: SparkSession, tmp_path: Path) -> None:
    inside, release = threading.Event(), threading.Event()
    seen: list[int] = []

    def write(_frame: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        inside.set()
        release.wait(60)

    def start() -> StreamingQuery:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        place = str(tmp_path / "checkpoint")
        return rows.writeStream.foreachBatch(write).option("checkpointLocation", place).start()

    query = start()
    assert inside.wait(60)
    assert not stop_between_batches(query)
    assert not query.isActive
    release.set()
    until(lambda: stop_between_batches(query), query)
    assert query.exception() is None
    assert seen == [0]
    assert batches(tmp_path / "checkpoint", "offsets") == batches(tmp_path / "checkpoint", "commits") == {0}

    again = start()
    until(lambda: len(seen) > 2, again)
    until(lambda: stop_between_batches(again), again)
    assert seen == list(range(len(seen)))


def test_a_query_that_waits_for_its_trigger_is_woken(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 hour").start()
    until(lambda: query.lastProgress is not None and not query.status["isTriggerActive"], query)
    until(lambda: stop_between_batches(query), query)
    assert not query.isActive
    assert query.exception() is None


def test_a_batch_that_is_being_planned_is_not_broken_off(spark: SparkSession, tmp_path: Path) -> None:
    """Asked the moment its offsets are written, a file sink's batch is committed all the same."""
    logs = tmp_path / "checkpoint"
    for number in range(3):
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(logs))
        query = writer.option("path", str(tmp_path / "out")).start()
        wanted = max(batches(logs, "offsets")) + 2 if number else 1
        until(lambda wanted=wanted: (logs / "offsets" / str(wanted)).exists(), query)
        until(lambda query=query: stop_between_batches(query), query)
        assert query.exception() is None
        assert batches(logs, "offsets") == batches(logs, "commits")
