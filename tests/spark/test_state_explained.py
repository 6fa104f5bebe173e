"""When `explain` says that a key goes is when Spark removes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def write(file: Path, *events: tuple[str, str | None]) -> None:
    file.parent.mkdir(exist_ok=True)
    rows = [{"who": who, "ts": at and f"2026-03-05T{at}Z"} for who, at in events]
    file.write_text("\n".join(map(json.dumps, rows)))


def run(spark: SparkSession, folder: Path, counted: Callable[[DataFrame], DataFrame]) -> None:
    events = spark.readStream.schema("who string, ts timestamp").json(str(folder / "in"))
    query = (
        counted(events.withWatermark("ts", "10 minutes"))
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(folder / "ck"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_windows_of_any_name_and_times_go_when_the_watermark_passes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    def by_hour(events: DataFrame) -> DataFrame:
        return events.groupBy(f.window("ts", "1 hour").alias("hour"), "who").count()

    def by_time(events: DataFrame) -> DataFrame:
        return events.groupBy("ts", "who").count()

    expected: dict[str, dict[str, str | None]] = {
        "hour": {"ann": "09:00:00", "bob": "10:00:00"},
        "ts": {"ann": "08:05:00", "bob": "09:35:00", "cho": None},
    }
    for counted, column in ((by_hour, "hour"), (by_time, "ts")):
        folder = tmp_path / column
        folder.mkdir()
        write(folder / "in" / "0.json", ("ann", "08:05:00"), ("bob", "09:35:00"), ("cho", None))
        run(spark, folder, counted)
        states = hf.state(folder / "ck", batch=0)
        keys = {entry.key["who"]: entry.key for entry in states.scan("aggregate")}
        ends = {who: states.explain("aggregate", key).expires_ms for who, key in keys.items()}
        assert ends == {who: twice(at) for who, at in expected[column].items()}
        # The watermark is 09:25 from here on.
        write(folder / "in" / "1.json", ("dee", "09:36:00"))
        run(spark, folder, counted)
        left = {entry.key["who"] for entry in hf.state(folder / "ck").scan("aggregate")}
        assert left == {"dee", *keys} - {"ann"}


def twice(at: str | None) -> tuple[int, int] | None:
    if at is None:
        return None
    ms = round(datetime.fromisoformat(f"2026-03-05T{at}+00:00").timestamp() * 1000)
    return ms, ms
