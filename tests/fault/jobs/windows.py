"""What each account ordered in each ten minutes, as Parquet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="windows",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    restart=hf.exponential(initial="100ms", max="1s", same_failure=20),
)
def windows(spark: SparkSession, day: str = "day", out: str = "out") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/orders")
    counted = hf.windowed(orders, time="ts", size="10 minutes", by="account", watermark="10 minutes").agg(
        F.count("*").alias("orders"), F.sum("amount").alias("amount")
    )
    begin = F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("begin")
    return hf.sink(counted.select(begin, "account", "orders", "amount")).parquet(f"{out}/windows")


impatient = replace(
    windows, name="impatient", restart=hf.exponential(initial="50ms", max="50ms", same_failure=2)
)
