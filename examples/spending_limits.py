"""Cards that spend more than a limit, where the limits change while the query runs.

    pip install 'holdfast[spark,java]'
    python spending_limits.py ./limits

The program writes payments and limits, processes them, raises the limit, processes more payments, prints
the alarms, and ends. The limits are broadcast state: all cards see a change in the same batch, and it is in
the checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYMENTS = "card string, amount double"
LIMITS = "country string, most double, version long"
OUTPUT = "card string, spent double, most double"
FIRST_LIMIT = '{"country": "de", "most": 100.0, "version": 1}\n'
NEXT_LIMIT = '{"country": "de", "most": 500.0, "version": 2}\n'
FIRST_PAYMENTS = """\
{"card": "c1", "amount": 60.0}
{"card": "c2", "amount": 30.0}
{"card": "c1", "amount": 50.0}
"""
NEXT_PAYMENTS = """\
{"card": "c2", "amount": 400.0}
{"card": "c1", "amount": 400.0}
"""


class Limit(hf.Keyed):
    """Per card: the money spent, compared with the limit of its country."""

    spent: hf.State[hf.ReducingState[float]] = hf.reducing(float, hf.add, ttl="24h")

    def on_event(self, event: hf.Event, state: Limit, ctx: hf.Context) -> Iterator[tuple[str, float, float]]:
        """Add a payment, and report it if it breaks the limit."""
        state.spent.add(event.amount)
        spent = state.spent.get() or 0.0
        limit = ctx.broadcast.get("de")
        if limit is not None and spent > limit.most:
            yield event.card, spent, limit.most


def run(spark: SparkSession, folder: Path) -> None:
    """Process the payments and limits that no earlier run has processed."""
    payments = spark.readStream.schema(PAYMENTS).json(str(folder / "payments"))
    limits = spark.readStream.schema(LIMITS).json(str(folder / "limits"))
    alarms = (
        hf.keyed(payments, by="card")
        .with_broadcast(hf.broadcast(limits, key="country", version="version"))
        .process(Limit(), output=OUTPUT, name="limit")
    )
    query = (
        hf.sink(alarms, name="alarms")
        .parquet(folder / "alarms")
        .start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now())
    )
    query.awaitTermination()


def main(folder: Path) -> None:
    """Process two deliveries, the second with a higher limit, and print the alarms."""
    spark = hf.session("limits", master="local[2]")
    for name, limit, payments in (
        ("1.json", FIRST_LIMIT, FIRST_PAYMENTS),
        ("2.json", NEXT_LIMIT, NEXT_PAYMENTS),
    ):
        for kind, rows in (("limits", limit), ("payments", payments)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / name).write_text(rows)
        run(spark, folder)
    for row in spark.read.parquet(str(folder / "alarms")).orderBy("spent").collect():
        print(f"{row.card} has spent {row.spent:.2f}, more than {row.most:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
