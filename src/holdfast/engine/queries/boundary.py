"""Stop a running query between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# The batch that was the newest when a run was looked at last, by the run's id.
_SEEN: dict[str, int] = {}
# What Spark calls around the work of a batch.
_AT_WORK = "SQLExecution$.withNewExecutionId"
_STATES = "org.apache.spark.sql.execution.streaming.runtime"


def stop_between_batches(query: StreamingQuery) -> bool:
    """Stop a query without breaking a batch off; to be asked again and again, until it is True.

    `StreamingQuery.stop()` interrupts the batch that runs; a sink without a ledger would then see its
    rows twice. Spark's own loop looks at the query's state before each batch, so ending that state lets
    the batch that runs commit and no other begin. There is one more look: a batch that finds the state
    ended when it has been planned interrupts itself, and whatever waits next is broken off. So the state is
    ended after that, or between triggers: where two looks in a row find no trigger and no newer batch, as
    between two batches that follow each other closely the next may be planned before the state is ended.
    """
    execution = query._jsq.streamingQuery()
    if not execution.queryExecutionThread().isAlive():
        _SEEN.pop(query.runId, None)
        return True
    if query.isActive:
        if _is_planned(execution):
            _set_state(execution, "TERMINATED")
        elif not query.status["isTriggerActive"] and _is_idle(query, execution):
            _set_state(execution, "TERMINATED")
            if query.status["isTriggerActive"]:
                # A batch began in between, and it is as little known how far it is.
                _set_state(execution, "ACTIVE")
        return False
    if not query.status["isTriggerActive"]:
        query.stop()  # wakes one that waits for its trigger; it can begin no batch
        _SEEN.pop(query.runId, None)
        return True
    return False


def _is_idle(query: StreamingQuery, execution: Any) -> bool:
    """Whether no batch has come since the last look."""
    newest = int(execution.getLatestExecutionContext().batchId())
    before = _SEEN.get(query.runId)
    _SEEN[query.runId] = newest
    return before == newest


def _is_planned(execution: Any) -> bool:
    """Whether the batch that runs is past its planning, and past the look that follows."""
    from py4j.protocol import Py4JError

    planned = execution.lastExecution()
    if planned is None or planned.currentBatchId() != execution.getLatestExecutionContext().batchId():
        return False
    try:
        planned.executedPlan()
    except Py4JError:  # it could not be planned, which the query itself reports
        return False
    # The plan is there a moment before the query's own thread has looked, and goes on to the sink.
    stack = execution.queryExecutionThread().getStackTrace()
    return any(_AT_WORK in frame.toString() for frame in reversed(stack))


def _set_state(execution: Any, name: str) -> None:
    # Py4J finds no Scala object by name, Java's reflection does.
    loader = execution.getClass().getClassLoader()
    execution.state().set(loader.loadClass(f"{_STATES}.{name}$").getField("MODULE$").get(None))
