"""Plain PySpark queries that never heard of Holdfast, until standard input is closed.

Each has a trigger of its own. It counts the numbers 0, 1, 2 … by what is left when they are divided by five,
twenty numbers a batch, and writes the counts of each batch into a file of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from small_session import small_session

ROWS = 20
RESTS = 5


def main(folder: str, *triggers: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("plain")
    settings = {**small_session(), "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    queries = [start(spark, Path(folder), *each.split("=")) for each in triggers]
    for query in queries:
        while not query.lastProgress:
            query.awaitTermination(1)
    sys.stdout.write("busy\n")
    sys.stdout.flush()
    sys.stdin.read()
    for query in queries:
        query.stop()
    spark.stop()


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
