"""The queries of `grid_queries` with their checkpoints on S3 or HDFS, one after the other, in a session.

Each line of standard input is JSON: `kind`, `folder`, `checkpoint`, `conf`. Each answer is a line of JSON:
the rows by the number of their batch. Before all, a line with the `conf` of the session.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grid_queries
from grid_queries import KINDS
from small_session import small_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, asked: dict[str, Any]) -> dict[int, list[Any]]:
    from holdfast.engine.file_manager import choose_file_manager

    kind, batches = KINDS[asked["kind"]], {}

    def take(batch: DataFrame, batch_id: int) -> None:
        batches[batch_id] = [grid_queries.plain(row) for row in batch.collect()]

    for key, value in asked["conf"].items():
        spark.conf.set(key, value)
    writer = kind.build(spark, Path(asked["folder"])).writeStream.foreachBatch(take).outputMode(kind.mode)
    writer = writer.option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True)
    with choose_file_manager(spark, asked["checkpoint"]):
        query = writer.start()
    query.awaitTermination()
    return batches


def main() -> None:
    from pyspark.sql import SparkSession

    given = json.loads(sys.stdin.readline())
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**small_driver(), **given["conf"]}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(spark, json.loads(line))) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
