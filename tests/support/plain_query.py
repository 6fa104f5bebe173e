"""Plain PySpark queries that never heard of Holdfast, until standard input is closed.

They count the numbers 0, 1, 2 … by what is left when they are divided by 50, twenty numbers a batch: one with
Spark's own defaults, one with RocksDB. Both keep three batches and clean up every second.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from small_session import small_session

STORE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    f"{STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STORE}.checkpointFormatVersion": "2",
}


def main(folder: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("plain")
    settings = {
        **small_session(),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.streaming.minBatchesToRetain": "3",
        f"{STORE}.maintenanceInterval": "1s",
        f"{STORE}.minDeltasForSnapshot": "3",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    queries = []
    for name, given in {"defaults": {}, "rocksdb": ROCKSDB}.items():
        for key, value in given.items():
            spark.conf.set(key, value)
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
        counts = numbers.groupBy((numbers.value % 50).alias("rest")).count()
        writer = counts.writeStream.format("noop").outputMode("update")
        queries.append(writer.option("checkpointLocation", f"{folder}/{name}").start())
    for query in queries:
        while not query.lastProgress:
            query.awaitTermination(1)
    sys.stdout.write("busy\n")
    sys.stdout.flush()
    sys.stdin.read()
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
