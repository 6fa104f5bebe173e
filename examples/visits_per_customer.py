"""Visits, spending and favourite drink of each customer of a coffee shop, kept from run to run.

    pip install 'holdfast[spark,java]'
    python visits_per_customer.py ./visits

The program writes some orders to `./visits/orders`, processes them, prints a line per order, and ends. Add
a file to that directory and run it again: the counts continue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "customer string, drink string, amount double, ts timestamp"
OUTPUT = "customer string, visit long, spent double, favourite string"
SAMPLE = """\
{"customer": "ann", "drink": "tea", "amount": 2.5, "ts": "2026-03-05T09:00:00Z"}
{"customer": "bob", "drink": "mocha", "amount": 4.0, "ts": "2026-03-05T09:05:00Z"}
{"customer": "ann", "drink": "mocha", "amount": 4.0, "ts": "2026-03-05T12:30:00Z"}
{"customer": "ann", "drink": "mocha", "amount": 4.0, "ts": "2026-03-05T16:00:00Z"}
"""


class Visits(hf.Keyed):
    """Per customer: the number of visits, the money spent, and how often each drink was ordered."""

    visits: hf.State[int] = hf.value(int, default=0, ttl="90 days")
    spent: hf.State[hf.ReducingState[float]] = hf.reducing(float, hf.add, ttl="90 days")
    drinks: hf.State[hf.MapState[str, int]] = hf.map(str, int, ttl="90 days")

    def on_event(
        self, event: hf.Event, state: Visits, ctx: hf.Context
    ) -> Iterator[tuple[str, int, float | None, str]]:
        """Count an order."""
        state.visits += 1
        state.spent.add(event.amount)
        state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1
        favourite = max(state.drinks.items(), key=lambda drink: drink[1])[0]
        yield ctx.key.customer, state.visits, state.spent.get(), favourite


def run(spark: SparkSession, folder: Path) -> None:
    """Process the orders that no earlier run has processed."""
    orders = spark.readStream.schema(ORDERS).json(str(folder / "orders"))
    visits = hf.keyed(orders, by="customer").process(Visits(), output=OUTPUT, name="visits")
    query = (
        hf.sink(visits, name="visits")
        .parquet(folder / "visits")
        .start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now())
    )
    query.awaitTermination()


def main(folder: Path) -> None:
    """Write the sample, process it, and print the result."""
    if not (folder / "orders").exists():
        (folder / "orders").mkdir(parents=True)
        (folder / "orders" / "1.json").write_text(SAMPLE)
    spark = hf.session("visits", master="local[2]")
    run(spark, folder)
    for row in spark.read.parquet(str(folder / "visits")).orderBy("customer", "visit").collect():
        print(f"{row.customer}: visit {row.visit}, {row.spent:.2f} spent, likes {row.favourite}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
