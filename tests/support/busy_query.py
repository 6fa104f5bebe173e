"""Queries that write batches as fast as they can, and clean up behind them, until standard input is closed.

Run as a process of its own: how often Spark cleans up is fixed for a JVM by its first query.
"""

from __future__ import annotations

import sys
from pathlib import Path

from plain_session import run_until_told
from pyspark.sql import DataFrame, SparkSession
from small_session import small_session

import holdfast as hf

STATE = "spark.sql.streaming.stateStore"
PROVIDER = "org.apache.spark.sql.execution.streaming.state"


def main(folder: str) -> None:
    spark = hf.session(
        "busy",
        master="local[2]",
        home=Path(folder) / "home",
        conf={
            **small_session(),
            "spark.sql.streaming.minBatchesToRetain": "2",
            f"{STATE}.maintenanceInterval": "50ms",
            f"{STATE}.minDeltasForSnapshot": "2",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    changelogs = "rocksdb.changelogCheckpointing.enabled"
    kinds = {
        "format2": {"checkpointFormatVersion": "2", changelogs: "true"},
        "format2-snapshots": {"checkpointFormatVersion": "2", changelogs: "false"},
        "format1": {"checkpointFormatVersion": "1", changelogs: "true"},
        "format1-snapshots": {"checkpointFormatVersion": "1", changelogs: "false"},
        "memory": {
            "checkpointFormatVersion": "1",
            "providerClass": f"{PROVIDER}.HDFSBackedStateStoreProvider",
        },
    }
    queries = []
    for name, settings in kinds.items():
        for key, value in settings.items():
            spark.conf.set(f"{STATE}.{key}", value)
        writer = counted(spark).writeStream.format("noop").outputMode("update")
        queries.append(writer.option("checkpointLocation", f"{folder}/{name}").start())
    run_until_told(spark, queries)


def counted(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    return rows.groupBy((rows.value % 50).alias("key")).count()


if __name__ == "__main__":
    main(sys.argv[1])
