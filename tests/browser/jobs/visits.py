"""How often each customer came, out of files that a test puts there one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def nowhere(batch: DataFrame, batch_id: int) -> None:
    """Take the rows, and keep none."""
    batch.collect()


@hf.job(
    name="coffee-shop",
    trigger="200 milliseconds",
    checkpoint=hf.Checkpoint("checkpoints/coffee-shop"),
    alerts=hf.Alerts(watermark_stuck="500ms"),
)
def coffee_shop(spark: SparkSession) -> hf.Sink:
    reader = spark.readStream.schema("customer string, cents long, ts timestamp")
    seen = reader.option("maxFilesPerTrigger", "1").json("arrivals").withWatermark("ts", "1 second")
    visits = seen.groupBy("customer").agg(F.count("*").alias("visits"), F.sum("cents").alias("cents"))
    return hf.sink(visits, name="visits", mode="update").foreach_batch(nowhere)
