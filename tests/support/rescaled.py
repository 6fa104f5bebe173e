"""Another number of partitions for a query that has stopped, in each way that there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast import savepoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's own way changes the checkpoint; ours make a new one of a savepoint.
SPARK, RESCALE, MIGRATE = "spark", "rescale", "migrate"


def rescale(spark: SparkSession, checkpoint: Path, partitions: int, way: str = SPARK) -> Path:
    """Bring the state into so many partitions, in a batch of its own; the checkpoint to go on with.

    Every row of every state is the same afterwards.
    """
    before = rows_of(checkpoint)
    if way == SPARK:
        # A session that has started no query yet has nobody who knows where state stores are.
        assert spark.streams.active == []
        manager: Any = spark._streamingCheckpointManager
        manager.repartition(str(checkpoint), partitions)
        rescaled = checkpoint
    else:
        rescaled = checkpoint.with_name(f"{checkpoint.name}-{partitions}")
        savepoint = savepoints.take(checkpoint, checkpoint.with_name("savepoints")).uri
        if way == RESCALE:
            savepoints.rescale(savepoint, rescaled, partitions=partitions)
        else:
            hf.migrate(savepoint, rescaled, partitions=partitions)
    assert rows_of(rescaled) == before
    assert {operator.partitions for operator in hf.state(rescaled).operators()} == {partitions}
    return rescaled


def rows_of(checkpoint: Path) -> dict[tuple[str, str], list[str]]:
    """The rows of every state by operator and state, without the partitions that they are in."""
    reader = hf.state(os.fspath(checkpoint))
    rows: dict[tuple[str, str], list[str]] = {}
    for operator in reader.operators():
        for state in operator.states:
            table = reader.arrow(state.name, operator=operator.name).read_all().drop(["partition_id"])
            rows[operator.name, state.name] = sorted(map(repr, table.to_pylist()))
    return rows
