"""Each order with its account's payments of the 15 minutes after it, or alone; hot accounts are split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@hf.job(
    name="met",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    restart=hf.exponential(initial="100ms", max="1s", same_failure=20),
)
def met(spark: SparkSession, day: str = "day", out: str = "out") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"

    def read(stream: str, name: str, at: str) -> DataFrame:
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/{stream}")
        return rows.select("account", F.col("id").alias(name), F.col("ts").alias(at))

    orders, payments = read("orders", "order_id", "ordered"), read("payments", "payment_id", "paid")
    pairs = hf.split_hot(orders, by="account", hot=["a0", "a1"], parts=3).join_within(
        payments, times=("ordered", "paid"), bound="15 minutes", kind="left", watermark="10 minutes"
    )
    return hf.sink(pairs.select("order_id", "account", "payment_id")).parquet(f"{out}/met")
