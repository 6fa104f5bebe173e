"""Spark's own rewriting of state at rest, which has no public name: what edits are measured against."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def rewrite(spark: SparkSession, checkpoint: Path) -> float:
    """Have Spark read every row of a checkpoint's state and write it anew, as the state of the next batch.

    The checkpoint is changed, and is left without the commit of that batch: it is a copy to be thrown away.

    Args:
        spark: The session.
        checkpoint: A copy of a checkpoint on a local disk, whose newest batch is committed.

    Returns:
        The seconds that it took, the start of the session left out.
    """
    spark.streams.active  # noqa: B018 - what coordinates stores comes to be with it
    newest = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    offsets = (checkpoint / "offsets" / str(newest)).read_bytes()
    (checkpoint / "offsets" / str(newest + 1)).write_bytes(offsets)
    jvm: Any = spark._jvm
    java: Any = spark._jsparkSession
    nothing = jvm.scala.Option.apply(None)
    rewriter = jvm.org.apache.spark.sql.execution.streaming.state.StateRewriter(
        java,
        newest,
        newest + 1,
        checkpoint.resolve().as_uri(),
        java.sessionState().newHadoopConf(),
        nothing,
        nothing,
        nothing,
    )
    began = time.perf_counter()
    rewriter.run()
    return time.perf_counter() - began
