"""A small query with its checkpoint at an S3 server, through S3A, for so many batches. Run on its own."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from small_session import small_driver

PATIENCE_S = 400


def main(asked: dict[str, Any]) -> None:
    """Run it, as the JSON in the first argument says."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as fn

    builder = SparkSession.builder.master("local[2]")
    for key, value in {**small_driver(), **asked["conf"]}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).option("numPartitions", 1)
    counts = rows.load().groupBy((fn.col("value") % 200).alias("key")).count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", asked["checkpoint"])
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    until = time.monotonic() + PATIENCE_S
    while query.isActive and time.monotonic() < until:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= asked["batches"]:
            break
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
