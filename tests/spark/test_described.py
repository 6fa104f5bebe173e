"""A plan in words: the same for the same code, and without what must not be written down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import holdfast as hf
from holdfast.engine.described import REDACTED, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def events(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("who string, n long, ts timestamp").json(str(folder))


def visits(spark: SparkSession, folder: Path) -> DataFrame:
    def on_event(self: Any, event: Any, state: Any, ctx: Any) -> dict[str, Any]:
        return {"who": event.who}

    processor: hf.Keyed = type("Visits", (hf.Keyed,), {"n": hf.value("long"), "on_event": on_event})()
    return hf.keyed(events(spark, folder), by="who").process(processor, output="who string", name="visits")


def test_the_same_code_has_the_same_words_each_time(spark: SparkSession, tmp_path: Path) -> None:
    def joined() -> DataFrame:
        rates = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
        doubled = F.udf(lambda n: 2 * n, "long")
        one = events(spark, tmp_path).withWatermark("ts", "1 minute").withColumn("twice", doubled("n"))
        near = F.expr("twice = value AND ts BETWEEN timestamp AND timestamp + INTERVAL 1 MINUTE")
        return one.alias("one").join(rates.alias("rates"), near).where("who <> 'a\nb'")

    for build in (joined, lambda: visits(spark, tmp_path)):
        first, second = describe(build()), describe(build())
        assert first is not None
        assert second is not None
        assert first[0] == second[0]
        assert [(step.kind, step.text) for step in first[1]] == [(step.kind, step.text) for step in second[1]]
    found = describe(joined())
    assert found is not None
    assert [step.kind for step in found[1] if step.stateful] == ["Join"]
    assert [source.kind for source in found[0]] == ["json", "rate"]


def test_a_join_with_a_table_keeps_no_state(spark: SparkSession, tmp_path: Path) -> None:
    frame = events(spark, tmp_path).join(spark.createDataFrame([("ann", 1)], "who string, age int"), "who")
    found = describe(frame)
    assert found is not None
    assert [step.kind for step in found[1] if step.stateful] == []


def test_secrets_are_left_out(spark: SparkSession) -> None:
    reader = spark.readStream.format("rate").option("password", "x1").option("rowsPerSecond", "3")
    found = describe(reader.option("url", "jdbc:db://me:hidden@host/base?ssl=1&password=x2").load())
    assert found is not None
    assert found[0][0].options == {
        "password": REDACTED,
        "rowspersecond": "3",
        "url": f"jdbc:db://host/base?ssl=1&password={REDACTED}",
    }
