"""Every order as it came, in a table that a ledger keeps: a row lost or written twice shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="copies",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    restart=hf.exponential(initial="50ms", max="50ms", same_failure=2),
)
def copies(spark: SparkSession, day: str = "day", out: str = "out") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/orders")
    return hf.sink(orders.select("id", "account", "amount")).append("copies", ledger=f"{out}/copies.db")
