"""What each account has ordered so far, in a table that a ledger keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="totals",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    restart=hf.exponential(initial="100ms", max="1s", same_failure=20),
)
def running_totals(spark: SparkSession, day: str = "day", out: str = "out", ledger: str = "") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/orders")
    counted = orders.groupBy("account").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    return hf.sink(counted).upsert("totals", keys=["account"], ledger=ledger or f"{out}/totals.db")
