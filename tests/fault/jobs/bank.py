"""A bank: transfers debit one account at once, and credit another one when they have cleared.

The query `accounts` has two keyed operators. `Desk` counts what each account sends, and passes on two legs of
each transfer. `Accounts` takes a debit at once; a credit is in flight until a timer clears it. Each change is
an entry of the journal, in a ledger. The query `volume` joins transfers with their receipts and sums up what
was received in each half minute, in a Delta table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPENING = 1000
TRANSFERS = "id string, source string, target string, amount long, ts timestamp"
RECEIPTS = "id string, received timestamp"
LEGS = "id string, account string, leg string, amount long, ts timestamp"
ENTRIES = "id string, account string, entry string, balance long, pending long"


class Desk(hf.Keyed):
    """By paying account: how much it has sent."""

    sent = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Pass on both legs."""
        state.sent += event.amount
        for leg, account in (("debit", event.source), ("credit", event.target)):
            yield {"id": event.id, "account": account, "leg": leg, "amount": event.amount, "ts": event.ts}


class Accounts(hf.Keyed):
    """By account: its balance, what it has paid, and what is in flight to it."""

    balance = hf.value("long", default=OPENING)
    paid = hf.value("long", default=0)
    pending = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Take a debit; hold a credit until it clears."""
        if event.leg == "debit":
            state.balance -= event.amount
            state.paid += event.amount
            yield self.entry(event.id, ctx, "debit", -event.amount, 0)
        else:
            state.pending[event.id] = event.amount
            ctx.timer(event.ts + hf.seconds(20), name=event.id)
            yield self.entry(event.id, ctx, "hold", 0, event.amount)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Clear a credit."""
        amount = state.pending[timer.name]
        del state.pending[timer.name]
        state.balance += amount
        yield self.entry(timer.name, ctx, "clear", amount, -amount)

    def entry(self, transfer: str, ctx: Any, entry: str, balance: int, pending: int) -> dict[str, Any]:
        """Return a row of the journal."""
        account = ctx.key.account
        return {"id": transfer, "account": account, "entry": entry, "balance": balance, "pending": pending}


@hf.job(
    name="bank",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger="100 ms",
    extras=["delta"],
    restart=hf.exponential(initial="100ms", max="2s", same_failure=1000),
)
def bank(spark: SparkSession, given: str = "in", out: str = "out") -> list[hf.Sink]:
    def read(stream: str, schema: str, files: int) -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).json(f"{given}/{stream}")

    transfers = read("transfers", TRANSFERS, 1)
    legs = hf.keyed(transfers.withWatermark("ts", "10 seconds"), by="source", key_groups=8).process(
        Desk(), output=LEGS, name="desk", event_time="ts"
    )
    entries = hf.keyed(legs, by="account", key_groups=8).process(Accounts(), output=ENTRIES, name="accounts")
    pairs = hf.join_within(
        read("transfers", TRANSFERS, 8),
        read("receipts", RECEIPTS, 8),
        by="id",
        times=("ts", "received"),
        bound="1 minute",
        watermark="10 seconds",
    )
    sums = hf.windowed(pairs, time="received", size="30 seconds").agg(
        F.count("*").alias("transfers"), F.sum("amount").alias("amount")
    )
    begin = F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("begin")
    return [
        hf.sink(entries, name="accounts").append("journal", ledger=f"{out}/journal.db"),
        hf.sink(sums.select(begin, "transfers", "amount"), name="volume").delta(f"{out}/volume"),
    ]
