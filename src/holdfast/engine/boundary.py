"""Stop a running query between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"


def ask_to_stop(query: StreamingQuery) -> None:
    """Tell a query to begin no further batch.

    `StreamingQuery.stop()` interrupts the batch that runs; a sink without a ledger would then see its
    rows twice. Spark's own loop looks at the query's state before each batch, so ending that state lets
    the batch that runs commit and no other begin. Returns at once; `finish_stopping` does the rest.
    """
    execution = query._jsq.streamingQuery()
    # Py4J finds no Scala object by name, Java's reflection does.
    singleton = execution.getClass().getClassLoader().loadClass(_TERMINATED).getField("MODULE$").get(None)
    execution.state().set(singleton)


def finish_stopping(query: StreamingQuery) -> bool:
    """Whether the query has ended; to be asked again and again after `ask_to_stop`.

    A query that waits for its next trigger is woken, which is safe: it can no longer begin a batch.
    """
    thread = query._jsq.streamingQuery().queryExecutionThread()
    if not thread.isAlive():
        return True
    if not query.status["isTriggerActive"]:
        query.stop()
        return True
    return False
