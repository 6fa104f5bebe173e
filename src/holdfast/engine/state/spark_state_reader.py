"""What Holdfast's keyed operators have in a checkpoint, read through Spark's own state reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.engine.state.checkpoint_files import has_any
from holdfast.formats.operators import is_processor
from holdfast.worker.state.group_numbers import numbering_by
from holdfast.worker.state.spark_store import LISTS, VALUES
from holdfast.worker.state.store import BASE, FORMS, LOG, META, MemoryStore, Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stored_groups(spark: SparkSession, checkpoint: str) -> Iterator[MemoryStore]:
    """The key groups of each keyed operator, as of the last committed batch.

    Call it while no query runs on the checkpoint. All blobs of an operator are brought into this process,
    so it is for small state. Costs four small Spark jobs an operator, and one before.
    """
    if not has_any(spark, checkpoint, "commits"):
        return
    metadata = spark.read.format("state-metadata").load(checkpoint)
    for row in metadata.select("operatorId", "operatorName").distinct().sort("operatorId").collect():
        if not is_processor(row["operatorName"]):
            continue
        found = {
            name: _variable(spark, checkpoint, row["operatorId"], name, lists=name in LISTS)
            for name in (*VALUES, *LISTS)
        }
        store = MemoryStore()
        for group, meta in found[META].items():
            store.put(
                group,
                meta,
                Stored(found[FORMS].get(group), found[BASE].get(group, ()), found[LOG].get(group, ())),
            )
        yield store


def _variable(
    spark: SparkSession, checkpoint: str, operator: int, name: str, *, lists: bool
) -> dict[int, Any]:
    """A state variable's value by key group."""
    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", name)
    frame = reader.option("flattenCollectionTypes", "false").load(checkpoint)
    numbering = numbering_by(frame.select("key.*").schema[0].dataType.typeName())
    column = "list_value" if lists else "value"
    found: dict[int, Any] = {}
    for row in frame.select("key", column).collect():
        held = row[column]
        group = numbering.group_at(int(row["key"][0]))
        found[group] = [bytes(element[0]) for element in held] if lists else bytes(held[0])
    return found
