"""Payments that a flaky sender sends several times, each written once, and summed up per shop and hour.

    pip install 'holdfast[spark,java]'
    python payments_once.py ./payments

The program writes two files of payments to `./payments/arrivals`, one of which repeats a payment of the
other. It writes each payment once to Parquet files, exactly once through crashes and restarts, prints the
sums, and ends. With `pip install 'holdfast[delta]'` and `extras=["delta"]` for the session, `.delta(…)` in
place of `.parquet(…)` writes to a Delta table with the same promise.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYMENTS = "id string, shop string, amount double, ts timestamp"
SAMPLES = {
    "1.json": """\
{"id": "p1", "shop": "north", "amount": 10.0, "ts": "2026-03-05T09:00:00Z"}
{"id": "p2", "shop": "north", "amount": 4.5, "ts": "2026-03-05T09:20:00Z"}
{"id": "p1", "shop": "north", "amount": 10.0, "ts": "2026-03-05T09:00:00Z"}
""",
    "2.json": """\
{"id": "p2", "shop": "north", "amount": 4.5, "ts": "2026-03-05T09:20:00Z"}
{"id": "p3", "shop": "south", "amount": 8.0, "ts": "2026-03-05T09:30:00Z"}
{"id": "p4", "shop": "north", "amount": 1.0, "ts": "2026-03-05T10:05:00Z"}
""",
}


def run(spark: SparkSession, folder: Path) -> hf.Promise:
    """Write the payments that no earlier run has written; return what the sink promises."""
    arrivals = (
        spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).json(str(folder / "arrivals"))
    )
    payments = hf.dedupe(arrivals, by="id", time="ts", watermark="1 hour")
    sink = hf.sink(payments, name="payments").parquet(folder / "payments", partition_by=["shop"])
    sink.start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now()).awaitTermination()
    return sink.promise


def main(folder: Path) -> None:
    """Write the samples, process them, and print the sums."""
    (folder / "arrivals").mkdir(parents=True, exist_ok=True)
    for name, rows in SAMPLES.items():
        (folder / "arrivals" / name).write_text(rows)
    spark = hf.session("payments", master="local[2]", conf={"spark.sql.session.timeZone": "UTC"})
    promise = run(spark, folder)
    print(f"each payment is written {promise.level.value}")
    hour = F.date_format(F.date_trunc("hour", "ts"), "HH:mm")
    sums = spark.read.parquet(str(folder / "payments")).groupBy("shop", hour.alias("hour"))
    for row in sums.agg(F.sum("amount").alias("amount")).orderBy("shop", "hour").collect():
        print(f"{row.shop} {row.hour}: {row.amount:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
