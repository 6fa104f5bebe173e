"""Plain PySpark queries that never heard of Holdfast, until standard input is closed.

Each has a trigger of its own. It counts the numbers 0, 1, 2 … by what is left when they are divided by five,
twenty numbers a batch, and writes the counts of each batch into a file of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from plain_session import plain_session, run_until_told
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ROWS = 20
RESTS = 5


def main(folder: str, *triggers: str) -> None:
    spark = plain_session(folder)
    run_until_told(spark, [start(spark, Path(folder), *each.split("=")) for each in triggers])


def start(spark: SparkSession, folder: Path, name: str, seconds: str) -> StreamingQuery:
    out = folder / f"{name}-out"
    out.mkdir()

    def put(rows: DataFrame, batch_id: int) -> None:
        counts = {str(row["rest"]): row["count"] for row in rows.collect()}
        with (out / f"{batch_id}.json").open("x") as file:
            json.dump(counts, file)

    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    counts = numbers.groupBy((numbers.value % RESTS).cast("string").alias("rest")).count()
    writer = counts.writeStream.foreachBatch(put).outputMode("complete")
    writer = writer.trigger(processingTime=f"{seconds} seconds")
    return writer.option("checkpointLocation", f"{folder}/{name}").start()


if __name__ == "__main__":
    main(*sys.argv[1:])
