"""What each account has ordered so far, by a class of another module, in a table that a ledger keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallies import Tally

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="clustered",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.available_now(),
    restart=hf.exponential(initial="100ms", max="1s", same_failure=20),
    py_files=["tallies.py"],
)
def clustered(spark: SparkSession, day: str = "day", out: str = "out") -> hf.Sink:
    schema = "id string, order_id string, account string, amount long, ts timestamp"
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{day}/orders")
    totals = hf.keyed(orders, by="account").process(
        Tally(), output="account string, orders long, amount long", name="tally"
    )
    return hf.sink(totals).upsert("totals", keys=["account"], ledger=f"{out}/totals.db")
