"""Running the queries of `grid_queries` to the end of their input, on any provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grid_queries
from grid_queries import KINDS, Row

from holdfast.config.spark_defaults import FORMAT_KEY, MEMORY_PROVIDER, PROVIDER_KEY, ROCKSDB_PROVIDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGELOG_KEY = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS_KEY = "spark.sql.shuffle.partitions"
PROVIDERS = {
    "memory": {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"},
    "rocksdb1": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "1", CHANGELOG_KEY: "false"},
    "rocksdb2": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "2", CHANGELOG_KEY: "true"},
}


def run(spark: SparkSession, kind: str, folder: Path, checkpoint: Path) -> list[Row]:
    """Let a query take what there is; every row it puts out, in order."""
    rows: list[Row] = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(grid_queries.plain(row) for row in batch.collect())

    writer = KINDS[kind].build(spark, folder).writeStream.foreachBatch(take).outputMode(KINDS[kind].mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows
