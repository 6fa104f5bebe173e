"""Two versions of one job; either would write to a place that is not theirs, were its sink not put aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def orders(spark: SparkSession, day: str) -> DataFrame:
    return spark.readStream.schema("who string, amount long").option("maxFilesPerTrigger", 1).json(day)


def spent(rows: DataFrame) -> hf.Sink:
    def write(batch: DataFrame, batch_id: int) -> None:
        Path("written").write_text(f"{batch_id}: {batch.count()}")

    totals = rows.groupBy("who").agg(F.sum("amount").alias("amount"))
    return hf.sink(totals, mode="update").foreach_batch(write)


@hf.job(name="before", checkpoint=hf.Checkpoint("checkpoint"))
def before(spark: SparkSession, day: str = "day") -> hf.Sink:
    return spent(orders(spark, day))


@hf.job(name="after", checkpoint=hf.Checkpoint("checkpoint"))
def after(spark: SparkSession, day: str = "day") -> hf.Sink:
    return spent(orders(spark, day).where("amount < 100"))
