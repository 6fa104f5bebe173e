from __future__ import annotations

import datetime as dt
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.queries.boundary import keep_pause, stop_between_batches

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


def test_a_pause_is_kept_between_the_end_of_a_batch_and_the_next_and_a_stop_does_not_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    def slow(_frame: DataFrame, _batch_id: int) -> None:
        time.sleep(0.7)  # longer than the pause: spacing beginnings by it would leave none

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.foreachBatch(slow).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="500 milliseconds").start()
    keeper = keep_pause(query, 500, None)
    assert keeper is not None
    until(lambda: len(query.recentProgress) >= 4, query)
    reports = [json.loads(each.json) for each in query.recentProgress]
    began = [dt.datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")) for each in reports]
    took = [dt.timedelta(milliseconds=each["durationMs"]["triggerExecution"]) for each in reports]
    ended = [start + long for start, long in zip(began, took, strict=True)]
    gaps = [later - former for former, later in zip(ended, began[1:], strict=False)]
    assert len(gaps) >= 3
    assert all(gap >= dt.timedelta(milliseconds=500) for gap in gaps)
    until(lambda: stop_between_batches(query), query)
    assert query.exception() is None
    keeper.join(30)
    assert not keeper.is_alive()


def test_a_stop_during_a_long_pause_is_at_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 hour").start()
    assert keep_pause(query, 3_600_000, None) is not None
    until(lambda: query.lastProgress is not None and not query.status["isTriggerActive"], query)
    until(lambda: stop_between_batches(query), query)
    assert not query.isActive
    assert query.exception() is None
    assert batches(tmp_path / "checkpoint", "commits") == {0}


def test_a_query_that_works_off_what_is_there_does_not_pause(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("one\n")
    rows = spark.readStream.text(str(tmp_path / "in"))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert keep_pause(query, 3_600_000, None) is None
    assert query.awaitTermination(60)
