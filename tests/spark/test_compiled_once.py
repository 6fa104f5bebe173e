"""What Spark compiles for one batch it has for the next: code that is cold in every batch makes all slow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from keyed_runs import START, read_stream, write_batch
from split_programs import Dated

import holdfast as hf
from holdfast.engine import keyed_operator
from holdfast.engine.session.workers import ship_by_value
from holdfast_bench.skew.skew_processors import OUTPUT, Spend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ship_by_value(sys.modules[Dated.__module__])

BATCHES = 3


def keyed(events: DataFrame) -> DataFrame:
    return hf.keyed(events, by="user").process(Spend(), output=OUTPUT, name="spend")


def keyed_split(events: DataFrame) -> DataFrame:
    return hf.keyed(events, by="user").split_hot().process(Spend(), output=OUTPUT, name="spend")


def keyed_dated(events: DataFrame) -> DataFrame:
    stream = hf.keyed(events.withColumnRenamed("user", "who"), by="who").split_hot([0])
    return stream.process(Dated(), output="who long, parts long, same boolean", name="dated")


def watched(events: DataFrame) -> DataFrame:
    return hf.skew.watch(events, by="user", name="users").dropDuplicates(["user"])


def join_split(events: DataFrame) -> DataFrame:
    offers = events.selectExpr("user", "amount AS offer", "ts AS since")
    hot = hf.split_hot(events, by="user", hot=[0], parts=2)
    return hot.join_within(offers, times=("ts", "since"), bound=("-1 hour", "1 hour"), watermark="1 hour")


@pytest.mark.parametrize(
    ("made", "grafts"),
    [
        (keyed, True),
        (keyed, False),
        (keyed_split, True),
        (keyed_dated, True),
        (watched, True),
        (join_split, True),
    ],
)
def test_a_second_run_compiles_nothing(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[DataFrame], DataFrame],
    grafts: bool,
) -> None:
    monkeypatch.setattr(keyed_operator, "grafts", lambda: grafts)
    for number in range(BATCHES):
        events = [{"user": each % 5, "amount": each, "ts": START + 60_000 * number} for each in range(200)]
        write_batch(tmp_path / "events", number, events)
    frame = made(read_stream(spark, tmp_path / "events", "user long, amount long, ts timestamp"))
    jvm: Any = spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    for checkpoint in ("first", "second"):
        before = compiled.getCount()
        query = (
            frame.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sum(each["numInputRows"] > 0 for each in query.recentProgress) == BATCHES
    assert compiled.getCount() == before
