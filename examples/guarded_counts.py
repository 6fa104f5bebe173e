"""A plain PySpark query that a platform starts, guarded: one owner, verified checkpoint, savepoints, alerts.

    pip install 'holdfast[spark,java]'
    python guarded_counts.py ./guarded

The program writes some arrivals to `./guarded/arrivals`, prints the counts and the health of the
checkpoint, and ends. Before the query starts, its checkpoint is verified; a second copy of this program
would wait for the first. While it runs, it takes a savepoint every hour. The exit code tells the platform
whether to start it again. In production use `processingTime` in place of `availableNow`, and stop it with
SIGTERM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SAMPLE = '{"customer": "ann"}\n{"customer": "bob"}\n{"customer": "ann"}\n'


def counts(spark: SparkSession, folder: Path) -> DataStreamWriter:
    """Return the query, as written without Holdfast."""
    arrivals = spark.readStream.schema("customer string").json(str(folder / "arrivals"))
    counted = arrivals.groupBy("customer").count()
    return (
        counted.writeStream.queryName("counts")
        .outputMode("complete")
        .format("memory")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )


def page(event: hf.AlertEvent) -> None:
    """Tell the person on call."""
    print(f"{event.alert.severity}: {event.text}", file=sys.stderr)


def main(folder: Path) -> int:
    """Write the sample, count it under guard, and print the counts; return the exit code."""
    (folder / "arrivals").mkdir(parents=True, exist_ok=True)
    (folder / "arrivals" / "1.json").write_text(SAMPLE)
    builder = SparkSession.builder.appName("counts").master("local[2]")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    guard = hf.guard(
        counts(spark, folder),
        savepoints=folder / "savepoints",
        savepoint_every="1h",
        alerts=hf.Alerts(checkpoint_duration="5m"),
        on_alert=page,
        home=folder / "home",
    )
    exit_code = guard.run()
    for row in spark.table("counts").orderBy("customer").collect():
        print(f"{row.customer}: {row['count']}")
    health: hf.Health = hf.health(folder / "checkpoint", home=folder / "home")
    print(f"batch {health.batch_id}, {len(health.problems)} damaged files")
    return exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
