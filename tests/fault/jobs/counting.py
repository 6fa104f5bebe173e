"""Counts a stream that never ends, a batch as often as the machine can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def thrown_away(batch: DataFrame, _: int) -> None:
    batch.collect()


@hf.job(name="counting", checkpoint=hf.Checkpoint("checkpoint"), trigger="200 milliseconds")
def counting(spark: SparkSession) -> hf.Sink:
    numbers = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    counted = numbers.groupBy((F.col("value") % 10).alias("digit")).count()
    return hf.sink(counted, name="digits", mode="complete").foreach_batch(thrown_away)
