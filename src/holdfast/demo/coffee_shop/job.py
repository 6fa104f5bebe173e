"""The job of the coffee shop: five queries in one driver, each of which answers a question.

Run it with `holdfast run job.py --set day=DIRECTORY --set out=DIRECTORY`. `holdfast demo coffee-shop` runs
it, kills its driver and checks its results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name

import holdfast as hf
from holdfast.demo.coffee_shop.regulars import OUTPUT, Regulars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARRIVALS = "arrival_id string, customer string, seat int, ts timestamp"
ORDERS = "order_id string, customer string, drink string, amount long, ts timestamp"
PAYMENTS = "payment_id string, order_id string, customer string, amount long, ts timestamp"
LATE = "10 minutes"


@hf.job(
    name="coffee-shop",
    trigger=hf.available_now(),
    checkpoint=hf.Checkpoint("checkpoints/coffee-shop", retain=10),
    backend=hf.RocksDB(memory="256m"),
    restart=hf.exponential(max="10s"),
)
def coffee_shop(spark: SparkSession, day: str = "day", out: str = "tables") -> list[hf.Sink]:
    """Read the day's streams and keep five tables up to date."""
    arrivals = read(spark, f"{day}/arrivals", ARRIVALS)
    orders = read(spark, f"{day}/orders", ORDERS)
    payments = read(spark, f"{day}/payments", PAYMENTS)
    return [
        hf.sink(visits(arrivals), name="visits").upsert(
            "visits", keys=["customer", "day"], ledger=f"{out}/answers.db"
        ),
        hf.sink(spend_week(payments), name="spend_week").parquet(f"{out}/spend_week"),
        hf.sink(served_in_five(arrivals, orders), name="served_in_five").parquet(f"{out}/served_in_five"),
        hf.sink(unpaid(orders, payments), name="unpaid").parquet(f"{out}/unpaid"),
        hf.sink(regulars(arrivals, orders, payments), name="regulars").parquet(f"{out}/regulars"),
    ]


def read(spark: SparkSession, path: str, schema: str) -> DataFrame:
    """Read a stream of JSON files, one file per batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(path)


def visits(arrivals: DataFrame) -> DataFrame:
    """Compute the number of visits of each customer today."""
    seen = hf.dedupe(arrivals, by="arrival_id", time="ts", watermark=LATE)
    counted = hf.windowed(seen, time="ts", size="1 day", by="customer").agg(F.count("*").alias("visits"))
    return counted.select("customer", F.date_format("window_start", "yyyy-MM-dd").alias("day"), "visits")


def spend_week(payments: DataFrame) -> DataFrame:
    """Compute each customer's spending this week. Weeks begin on Monday."""
    paid = hf.dedupe(payments, by="payment_id", time="ts", watermark=LATE)
    weeks = hf.windowed(paid, time="ts", size="7 days", offset="4 days", by="customer")
    spent = weeks.agg(F.sum("amount").alias("cents"), F.count("*").alias("payments"))
    return spent.select(
        "customer", F.date_format("window_start", "yyyy-MM-dd").alias("week"), "cents", "payments"
    )


def served_in_five(arrivals: DataFrame, orders: DataFrame) -> DataFrame:
    """Compute what each customer ordered within five minutes of being seated."""
    seen = hf.dedupe(arrivals, by="arrival_id", time="ts", watermark=LATE)
    return hf.join_within(
        seen.withColumnRenamed("ts", "seated_at"),
        orders.withWatermark("ts", LATE).withColumnRenamed("ts", "ordered_at"),
        by="customer",
        times=("seated_at", "ordered_at"),
        bound="5 minutes",
    ).select("arrival_id", "order_id", "customer", "seat", "drink", "seated_at", "ordered_at")


def unpaid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Compute the orders without a payment and the payments without an order."""
    met = hf.join_within(
        orders.withWatermark("ts", LATE),
        hf.dedupe(payments, by="payment_id", time="ts", watermark=LATE),
        by="order_id",
        times=("ts", "ts"),
        bound="30 minutes",
        kind="full",
        prefixes=("order_", "payment_"),
    )
    return met.where("payment_id is null or drink is null").select(
        F.when(F.col("payment_id").isNull(), "order").otherwise("payment").alias("what"),
        "order_id",
        "payment_id",
        F.coalesce("order_customer", "payment_customer").alias("customer"),
        F.coalesce("order_amount", "payment_amount").alias("cents"),
        F.coalesce("order_ts", "payment_ts").alias("at"),
    )


def regulars(arrivals: DataFrame, orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Find the regulars who sat for five minutes without an order."""
    streams = hf.keyed(arrivals.withWatermark("ts", LATE), by="customer", name="arrivals")
    streams = streams.connect(orders.withWatermark("ts", LATE), by="customer", name="orders")
    streams = streams.connect(payments.withWatermark("ts", LATE), by="customer", name="payments")
    return streams.process(Regulars(), output=OUTPUT, name="regulars")
