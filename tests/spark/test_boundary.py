from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.boundary import ask_to_stop, finish_stopping

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
    ask_to_stop(query)
    assert not finish_stopping(query)
    release.set()
    until(lambda: finish_stopping(query), query)
    assert query.exception() is None
    assert seen == [0]
    assert batches(tmp_path / "checkpoint", "offsets") == batches(tmp_path / "checkpoint", "commits") == {0}

    again = start()
    until(lambda: len(seen) > 2, again)
    ask_to_stop(again)
    until(lambda: finish_stopping(again), again)
    assert seen == list(range(len(seen)))


def test_a_query_that_waits_for_its_trigger_is_woken(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 hour").start()
    until(lambda: query.lastProgress is not None and not query.status["isTriggerActive"], query)
    ask_to_stop(query)
    until(lambda: finish_stopping(query), query)
    assert not query.isActive
    assert query.exception() is None
