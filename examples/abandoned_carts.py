"""Shopping carts that nobody has paid for within half an hour of the last item.

    pip install 'holdfast[spark,java]'
    python abandoned_carts.py ./carts

The program writes some clicks to `./carts/clicks`, processes them, prints the abandoned carts, and ends. A
timer fires when the watermark, 5 minutes behind the newest click, passes its time: so a late click still
counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = "cart string, action string, price double, ts timestamp"
OUTPUT = "cart string, items long, worth double, since timestamp"
PATIENCE = hf.minutes(30)
SAMPLE = """\
{"cart": "c1", "action": "add", "price": 20.0, "ts": "2026-03-05T09:00:00Z"}
{"cart": "c2", "action": "add", "price": 15.0, "ts": "2026-03-05T09:01:00Z"}
{"cart": "c1", "action": "add", "price": 5.0, "ts": "2026-03-05T09:10:00Z"}
{"cart": "c2", "action": "pay", "ts": "2026-03-05T09:20:00Z"}
{"cart": "c3", "action": "add", "price": 7.5, "ts": "2026-03-05T09:45:00Z"}
{"cart": "c4", "action": "add", "price": 1.0, "ts": "2026-03-05T10:10:00Z"}
"""


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
    ) -> Iterator[tuple[str, int, float, object]]:
        """Report an abandoned cart and forget it."""
        prices = list(state.prices)
        state.prices.clear()
        yield ctx.key.cart, len(prices), sum(prices), timer.at - PATIENCE


def run(spark: SparkSession, folder: Path) -> None:
    """Process the clicks that no earlier run has processed."""
    clicks = spark.readStream.schema(CLICKS).json(str(folder / "clicks")).withWatermark("ts", "5 minutes")
    carts = hf.keyed(clicks, by="cart").process(Carts(), output=OUTPUT, name="carts")
    query = (
        hf.sink(carts, name="abandoned")
        .parquet(folder / "abandoned")
        .start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now())
    )
    query.awaitTermination()


def main(folder: Path) -> None:
    """Write the sample, process it, and print the abandoned carts."""
    if not (folder / "clicks").exists():
        (folder / "clicks").mkdir(parents=True)
        (folder / "clicks" / "1.json").write_text(SAMPLE)
    spark = hf.session("carts", master="local[2]")
    run(spark, folder)
    for row in spark.read.parquet(str(folder / "abandoned")).orderBy("cart").collect():
        print(f"{row.cart}: {row.items} items for {row.worth:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
