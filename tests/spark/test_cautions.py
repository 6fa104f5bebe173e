"""A query with more than one watermark is warned of when Holdfast starts it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.stream.cautions import cautions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, time: str) -> DataFrame:
    rate = spark.readStream.format("rate").load()
    return rate.selectExpr("value AS k", f"timestamp AS {time}").withWatermark(time, "1 minute")


def met(left: DataFrame, right: DataFrame) -> DataFrame:
    return hf.join_within(left, right, by="k", times=("ts", "seen"), bound="1 minute")


def test_watermarks_are_counted_and_not_their_uses(spark: SparkSession) -> None:
    one, two = stream(spark, "ts"), stream(spark, "seen")
    assert cautions(one) == ()
    assert cautions(one.drop("ts").groupBy("k").count()) == ()
    with_itself = met(one, one.withColumnRenamed("ts", "seen"))
    assert cautions(with_itself) == ()
    (caution,) = cautions(met(one, two))
    for words in (
        "has 2 watermarks",
        "after a restart event time does not advance",
        "category=holdfast.WatermarkWarning",
    ):
        assert words in str(caution)
    (caution,) = cautions(met(one, two).unionByName(met(one, stream(spark, "seen"))))
    assert "has 3 watermarks" in str(caution)


def test_a_sink_warns_once_a_start_and_can_be_silenced(spark: SparkSession, tmp_path: Path) -> None:
    frame = met(stream(spark, "ts"), stream(spark, "seen"))
    sink = hf.sink(frame, name="met").foreach_batch(lambda _batch, _number: None)
    with pytest.warns(hf.WatermarkWarning, match="has 2 watermarks") as heard:
        sink.start(checkpoint=str(tmp_path / "one"), trigger=hf.available_now()).stop()
    assert [Path(each.filename).name for each in heard] == [Path(__file__).name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=hf.WatermarkWarning)
        sink.start(checkpoint=str(tmp_path / "two"), trigger=hf.available_now()).stop()
