"""Shopping carts that nobody has paid for within half an hour of the last item.

    holdfast run abandoned_carts.py

A timer fires when the watermark, 5 minutes behind the newest click, passes its time, so a late click still
counts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = "cart string, action string, price double, ts timestamp"
ABANDONED = "cart string, items long, worth double, since timestamp"
PATIENCE = hf.minutes(30)


class Carts(hf.Keyed):
    """Per cart: the prices of its items; a timer runs out half an hour after the last one."""

    prices: hf.State[hf.ListState[float]] = hf.list(float)

    def on_event(self, event: hf.Event, state: Carts, ctx: hf.Context) -> None:
        """Add an item, or close a cart that is paid for."""
        if event.action == "pay":
            ctx.cancel_timer("abandoned")
            state.prices.clear()
            return
        state.prices.append(event.price)
        ctx.timer(event.ts + PATIENCE, name="abandoned")

    def on_timer(
        self, timer: hf.Timer, state: Carts, ctx: hf.Context
    ) -> Iterator[tuple[str, int, float, dt.datetime]]:
        """Report an abandoned cart and forget it."""
        prices = list(state.prices)
        state.prices.clear()
        yield ctx.key.cart, len(prices), sum(prices), timer.at - PATIENCE


@hf.job(name="abandoned-carts", checkpoint="checkpoint", trigger=hf.available_now())
def abandoned_carts(spark: SparkSession, data: str = "data") -> hf.Sink:
    """Read clicks from a directory of JSON files."""
    clicks = spark.readStream.schema(CLICKS).json(f"{data}/clicks").withWatermark("ts", "5 minutes")
    carts = hf.keyed(clicks, by="cart").process(Carts(), output=ABANDONED, name="carts")
    return hf.sink(carts, name="abandoned").upsert("abandoned", keys=["cart", "since"], ledger="carts.db")
