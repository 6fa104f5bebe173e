"""The reading and repartitioning of state with Spark's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.checkpoint_files import has_any
from holdfast.engine.session.session import session
from holdfast.errors import HoldfastError, Unsupported
from holdfast.formats.key_groups import BASE, FORMS, LOG, META
from holdfast.formats.operators import is_processor
from holdfast.worker.state.group_numbers import numbering_by
from holdfast.worker.state.spark_store import LISTS, VALUES
from holdfast.worker.state.store import GroupBlobs, MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_MANAGER = "_streamingCheckpointManager"
_QUIET = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}


def repartitioning(master: str | None = None) -> Callable[[Path, int, int], None]:
    """Return a function that repartitions state with Spark.

    The function uses the active session, or starts one at its first call.

    Args:
        master: The master of a new session, or None for the default.
    """

    def run(checkpoint: Path, partitions: int, state_format: int) -> None:
        from pyspark.sql import SparkSession

        # A builder would set Holdfast's defaults on a session of the user.
        spark = SparkSession.getActiveSession() or session("holdfast-rescale", master=master, conf=_QUIET)
        repartition(spark, checkpoint, partitions, state_format)

    return run


def repartition(spark: SparkSession, checkpoint: Path, partitions: int, state_format: int) -> None:
    """Repartition the state of a checkpoint, in a separate batch.

    The checkpoint is changed, and no query may use it during the call. Spark does not update operator
    metadata of version 1, so a reader that uses that metadata afterwards, such as Spark's own, misses the new
    partitions.

    Args:
        spark: The session.
        checkpoint: The checkpoint, on a local disk.
        partitions: The new number of partitions.
        state_format: The state-checkpoint format of the checkpoint's query.

    Raises:
        Unsupported: This version of Spark cannot repartition state, or rejects the checkpoint.
    """
    manager: Any = getattr(spark, _MANAGER, None)
    if manager is None:
        raise Unsupported(
            "the installed Spark cannot repartition state",
            code="HF-E7054",
            found=f"Spark {spark.version}",
            expected="4.2 or newer",
            hint="run `holdfast state migrate CHECKPOINT NEW --partitions N`, which needs no Spark",
        )
    # Spark compares the setting with the commit log, and does not take it from the checkpoint.
    before = spark.conf.get(_FORMAT, None)
    spark.conf.set(_FORMAT, str(state_format))
    try:
        # In a session that has started no query, the coordinator of state stores does not exist yet.
        _ = spark.streams.active
        manager.repartition(str(checkpoint), partitions)
    except Exception as error:
        raise _refused(error) from error
    finally:
        if before is None:
            spark.conf.unset(_FORMAT)
        else:
            spark.conf.set(_FORMAT, before)


def _refused(error: Exception) -> HoldfastError:
    """Return the error with Spark's message, without Java class names and line numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next(
        (line[line.index("[") :] for line in lines if "[" in line and "]" in line), "".join(lines[:1])
    )
    return Unsupported(
        "Spark refused to repartition the state",
        code="HF-E7055",
        found=told,
        hint="keep the number of partitions; the checkpoint or savepoint is unchanged",
    )


def stored_groups(spark: SparkSession, checkpoint: str) -> Iterator[MemoryStore]:
    """Yield the key groups of each keyed operator, as of the last committed batch.

    Call it while no query uses the checkpoint. All blobs of an operator are loaded into this process, so use
    it only for small state. It runs one small Spark job, and four more per operator.
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
                GroupBlobs(found[FORMS].get(group), found[BASE].get(group, ()), found[LOG].get(group, ())),
            )
        yield store


def _variable(
    spark: SparkSession, checkpoint: str, operator: int, name: str, *, lists: bool
) -> dict[int, Any]:
    """Return the value of a state variable for each key group."""
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
