"""Changes of a database table into a Delta table, each once, although they arrive twice and out of order.

    holdfast run cdc_to_delta.py

A connector that restarts sends changes again, and partitions of a topic overtake each other. The state keeps
the newest change of each row by the database's log sequence number. Each batch is one MERGE into Delta, done
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = "id long, lsn long, op string, name string, city string"


class Newest(hf.Keyed):
    """Per row of the table: its newest change; that of a deleted row is kept for 30 days."""

    newest: hf.State[Any] = hf.value(
        "struct<lsn: long, op: string, name: string, city: string>", ttl="30 days"
    )
    news: hf.State[bool] = hf.value(bool, default=False)

    def on_event(self, event: hf.Event, state: Newest, ctx: hf.Context) -> None:
        """Keep a change unless a newer one is known."""
        if state.newest is None or event.lsn > state.newest.lsn:
            state.newest = (event.lsn, event.op, event.name, event.city)
            state.news = True

    def on_end(
        self, state: Newest, ctx: hf.Context
    ) -> Iterator[tuple[int, int, str, str | None, str | None]]:
        """Report a row that has changed, once a batch."""
        newest, news = state.newest, state.news
        state.news = False
        if news and newest is not None:
            yield ctx.key.id, newest.lsn, newest.op, newest.name, newest.city


@hf.job(name="cdc-to-delta", checkpoint="checkpoint", trigger=hf.available_now(), extras=["delta"])
def cdc_to_delta(spark: SparkSession, data: str = "data") -> hf.Sink:
    """Read changes from a directory of JSON files."""
    files = spark.readStream.option("maxFilesPerTrigger", 1)
    changes = files.schema(CHANGES).json(f"{data}/changes")
    newest = hf.keyed(changes, by="id").process(Newest(), output=CHANGES, name="newest")
    return hf.sink(newest, name="people").delta("./people").upsert(["id"], delete_when="op = 'd'")
