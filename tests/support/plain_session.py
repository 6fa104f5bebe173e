"""A Spark session that never heard of Holdfast, and queries in it until standard input is closed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from small_session import small_session


def plain_session(folder: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session as plain PySpark makes it, which keeps its tables in a directory."""
    builder = SparkSession.builder.master("local[2]").appName("plain")
    given = {**small_session(), "spark.sql.warehouse.dir": f"{folder}/warehouse", **(settings or {})}
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_until_told(spark: SparkSession, queries: Sequence[StreamingQuery]) -> None:
    """Say `busy` once each query has put out a batch, and end when standard input does."""
    for query in queries:
        while not query.lastProgress:
            query.awaitTermination(1)
    sys.stdout.write("busy\n")
    sys.stdout.flush()
    sys.stdin.read()
    for query in queries:
        query.stop()
    spark.stop()
