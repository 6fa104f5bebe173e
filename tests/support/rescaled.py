"""Another number of partitions for a checkpoint that no query uses, by Spark's own means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescale(spark: SparkSession, checkpoint: Path, partitions: int) -> None:
    """Bring the state into so many partitions, in a batch of its own."""
    # A session that has started no query yet has nobody who knows where state stores are.
    assert spark.streams.active == []
    manager: Any = spark._streamingCheckpointManager
    manager.repartition(str(checkpoint), partitions)
