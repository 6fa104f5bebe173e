"""Each order with the payments of the 15 minutes after it, or alone, as Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@hf.job(
    name="joined",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    restart=hf.exponential(initial="100ms", max="1s", same_failure=20),
)
def joined(spark: SparkSession, day: str = "day", out: str = "out") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"

    def read(stream: str) -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/{stream}")

    orders = read("orders").select("order_id", "amount", F.col("ts").alias("ordered"))
    payments = read("payments").select("order_id", F.col("id").alias("payment_id"), F.col("ts").alias("paid"))
    met = hf.join_within(
        orders,
        payments,
        by="order_id",
        times=("ordered", "paid"),
        bound="15 minutes",
        kind="left",
        watermark="10 minutes",
    )
    texts = [F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss'Z'").alias(name) for name in ("ordered", "paid")]
    return hf.sink(met.select("order_id", "amount", "payment_id", *texts)).parquet(f"{out}/joined")
