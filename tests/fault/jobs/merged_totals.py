"""What each account has ordered so far, in a Delta table, by MERGE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="merged_totals",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    extras=["delta"],
    restart=hf.exponential(initial="100ms", max="1s", same_failure=20),
)
def merged_totals(spark: SparkSession, day: str = "day", out: str = "out") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/orders")
    counted = orders.groupBy("account").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    return hf.sink(counted).delta(f"{out}/totals").upsert(["account"])
