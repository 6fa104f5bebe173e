"""The job that is killed: a count by key over a file that has every key once, and a steady stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visits(hf.Keyed):
    """Counts the events of a key."""

    visits = hf.value(int, default=0)

    def on_event(self, event: hf.Event, state: Any, ctx: hf.Context) -> dict[str, Any]:  # noqa: ARG002 - a handler
        """Count one."""
        state.visits += 1
        return {"key": event.key, "visits": state.visits}


@hf.job(
    name="recovered",
    checkpoint="checkpoint",
    trigger="200 ms",
    restart=hf.exponential(initial="1s", max="1s", same_failure=1_000_000),
)
def recovered(spark: SparkSession, keys: int = 1_000_000, rate: int = 1_000) -> hf.Sink:
    """Count each event of both sources by key, into a table of Parquet files."""
    live = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    live = live.selectExpr(f"value * 7919 % {keys} AS key")
    past = spark.readStream.schema("key long").parquet("past")
    counted = hf.keyed(live.unionByName(past), by="key").process(
        Visits(), output="key long, visits int", name="visits"
    )
    return hf.sink(counted).parquet("visits")
