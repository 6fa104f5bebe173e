"""Jobs with a mistake in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id string, order_id string, account string, amount long, ts timestamp"


def orders(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json("day/orders")


@F.udf(LongType())
def share(name: str, amount: int) -> int:
    return amount // 0 if name.startswith("o02") else amount


@hf.job(
    name="at-start",
    checkpoint="checkpoint",
    restart=hf.exponential(initial="50ms", max="50ms", same_failure=2),
)
def at_start(spark: SparkSession) -> hf.Sink:
    raise RuntimeError("the menu is empty")


@hf.job(name="in-udf", checkpoint="checkpoint", trigger=hf.available_now(), restart=hf.no_restart())
def in_udf(spark: SparkSession) -> hf.Sink:
    shared = orders(spark).select("id", share("id", "amount").alias("amount"))
    return hf.sink(shared).append("shared", ledger="out/shared.db")


@hf.job(
    name="in-batch",
    checkpoint="checkpoint",
    trigger=hf.available_now(),
    restart=hf.exponential(initial="50ms", max="50ms", same_failure=2),
)
def in_batch(spark: SparkSession) -> hf.Sink:
    def divide(batch: DataFrame, batch_id: int) -> None:
        batch.count()
        1 // (2 - batch_id)

    return hf.sink(orders(spark)).foreach_batch(divide)
