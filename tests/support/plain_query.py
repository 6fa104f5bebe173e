"""Plain PySpark queries that never heard of Holdfast, until standard input is closed.

They count the numbers 0, 1, 2 … by what is left when they are divided by 50, twenty numbers a batch: one with
Spark's own defaults, one with RocksDB. Both keep three batches and clean up every second.
"""

from __future__ import annotations

import sys

from plain_session import plain_session, run_until_told

STORE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    f"{STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STORE}.checkpointFormatVersion": "2",
}


def main(folder: str) -> None:
    settings = {
        "spark.sql.streaming.minBatchesToRetain": "3",
        f"{STORE}.maintenanceInterval": "1s",
        f"{STORE}.minDeltasForSnapshot": "3",
    }
    spark = plain_session(folder, settings)
    queries = []
    for name, given in {"defaults": {}, "rocksdb": ROCKSDB}.items():
        for key, value in given.items():
            spark.conf.set(key, value)
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
        counts = numbers.groupBy((numbers.value % 50).alias("rest")).count()
        writer = counts.writeStream.format("noop").outputMode("update")
        queries.append(writer.option("checkpointLocation", f"{folder}/{name}").start())
    run_until_told(spark, queries)


if __name__ == "__main__":
    main(sys.argv[1])
