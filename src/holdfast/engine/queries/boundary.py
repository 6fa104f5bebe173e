"""A stop or a pause of a query between two batches.

Spark's trigger determines the times at which batches start, and waits on a clock for the next one. This
module replaces the clock by one that does not advance, called a gate: the query's loop waits until the gate
is opened. A gate is used once, so a loop that has not left a gate yet cannot pass the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.clock import now_ms

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


# The newest batch at the last check of a run, by the run's id.
_SEEN: dict[str, int] = {}
# The trigger step in which Spark does the work of a batch.
_AT_WORK = "SQLExecution$.withNewExecutionId"


def stop_between_batches(query: StreamingQuery) -> bool:
    """Stop a query without interrupting a batch; call it repeatedly until it returns True.

    `StreamingQuery.stop()` interrupts the running batch, after which a sink without a ledger would get its
    rows twice. Spark's loop checks the query's state before each batch, so ending that state lets the running
    batch commit and starts no further batch. Spark checks the state again after planning, and a batch that
    finds it ended interrupts itself. So the state is ended after the second check, or between triggers, when
    two successive calls find no active trigger and no newer batch: of two batches in close succession, the
    second may be planned before the state is ended.
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
                # A batch began in between, and its progress is unknown, too.
                _set_state(execution, "ACTIVE")
        return False
    if not query.status["isTriggerActive"]:
        query.stop()  # wakes a query that waits for its trigger; it cannot begin a batch
        _SEEN.pop(query.runId, None)
        return True
    return False


def _is_idle(query: StreamingQuery, execution: Any) -> bool:
    """Return whether no batch has started since the last call."""
    newest = _newest_batch(execution)
    before = _SEEN.get(query.runId)
    _SEEN[query.runId] = newest
    return before == newest


def _newest_batch(execution: Any) -> int:
    """Return the batch that runs or is planned next."""
    from py4j.protocol import Py4JError

    try:
        return int(execution.getLatestExecutionContext().batchId())
    except Py4JError:  # Spark 3.5 has the batch in the execution itself
        return int(execution.currentBatchId())


def _is_planned(execution: Any) -> bool:
    """Return whether the running batch is past its planning and the check that follows."""
    from py4j.protocol import Py4JError

    planned = execution.lastExecution()
    if planned is None or planned.currentBatchId() != _newest_batch(execution):
        return False
    try:
        planned.executedPlan()
    except Py4JError:  # the batch could not be planned, which the query reports itself
        return False
    # The plan exists a moment before the query's thread has checked the state and continues to the sink.
    stack = execution.queryExecutionThread().getStackTrace()
    return any(_AT_WORK in frame.toString() for frame in reversed(stack))


def _set_state(execution: Any, name: str) -> None:
    # Py4J does not find a Scala object by name, but Java's reflection does. Spark 4.1 has moved the states,
    # so their package is that of the current state.
    states = execution.state().get().getClass().getPackage().getName()
    loader = execution.getClass().getClassLoader()
    execution.state().set(loader.loadClass(f"{states}.{name}$").getField("MODULE$").get(None))


# The interval at which a query without new rows checks for input, unless its trigger sets one.
IDLE_MS: Final = 100
_LOOK_S: Final = 0.05
_FOREVER: Final = 1 << 62
_EXECUTOR: Final = "ProcessingTimeExecutor"
# The step of a trigger that only a batch has.
_WORK: Final = "addBatch"


class Loop(Protocol):
    """The loop of a query, which runs a batch if there are new rows, and then waits at a gate."""

    def waits(self) -> bool:
        """Return whether the loop waits at the current gate."""
        ...

    def newest_batch(self) -> str | None:
        """Return the start time of the newest finished batch, or None before the first one."""
        ...

    def let_through(self, now_ms: int) -> None:
        """Set the next gate, and open the one at which the loop waits."""
        ...


class Pause:
    """The schedule of a query's loop, with a pause after each batch.

    Args:
        loop: The loop.
        pause_ms: The minimum time between the end of a batch and the next start, in milliseconds.
        interval_ms: The interval of batch starts in milliseconds, or None; as with Spark's trigger, starts
            are at multiples of it.
        clock: Returns the current time in epoch milliseconds.
    """

    def __init__(self, loop: Loop, pause_ms: int, interval_ms: int | None, clock: Callable[[], int]) -> None:
        self._loop = loop
        self._pause_ms = pause_ms
        self._interval_ms = interval_ms
        self._clock = clock
        self._began_ms = clock()
        self._newest: str | None = None
        self._due_ms: int | None = None

    def look(self) -> float:
        """Open the gate if the pause is over, and return the seconds until the next call."""
        if not self._loop.waits():
            return _LOOK_S
        now = self._clock()
        if self._due_ms is None:
            self._due_ms = self._due(now)
        if now < self._due_ms:
            return (self._due_ms - now) / 1000
        self._due_ms, self._began_ms = None, now
        self._loop.let_through(now)
        return _LOOK_S

    def _due(self, ended_ms: int) -> int:
        """Return the earliest start of the next trigger, given the time at which the last one had ended."""
        newest = self._loop.newest_batch()
        ran, self._newest = newest != self._newest, newest
        after = ended_ms + (self._pause_ms if ran else 0)
        if self._interval_ms:
            return max(after, (self._began_ms // self._interval_ms + 1) * self._interval_ms)
        return after if ran else ended_ms + IDLE_MS


class SparkLoop:
    """The loop of a Spark query whose clock is replaced through Spark's internals."""

    def __init__(self, query: StreamingQuery) -> None:
        from pyspark import SparkContext

        jvm: Any = SparkContext._jvm
        self._jvm = jvm
        self._execution: Any = query._jsq.streamingQuery()
        self._executor: Any = self._execution.triggerExecutor()
        self._field: Any = self._executor.getClass().getDeclaredField("clock")
        self._field.setAccessible(True)
        self._threads: Any = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self._thread_id = int(self._execution.queryExecutionThread().getId())
        self._newest: str | None = None
        self._gate = self._put_up(0)

    def waits(self) -> bool:
        """Return whether the loop waits at the current gate, determined by the lock for which its thread
        waits.
        """
        thread = self._threads.getThreadInfo(self._thread_id)
        lock = None if thread is None else thread.getLockInfo()
        return lock is not None and int(lock.getIdentityHashCode()) == self._gate[1]

    def newest_batch(self) -> str | None:
        """Return the start time of the newest finished batch; a trigger without rows runs no batch."""
        progress = self._execution.lastProgress()
        if progress is not None and progress.durationMs().containsKey(_WORK):
            self._newest = str(progress.timestamp())
        return self._newest

    def let_through(self, now_ms: int) -> None:
        """Set the next gate, and open the one at which the loop waits."""
        former, _ = self._gate
        self._gate = self._put_up(now_ms)
        former.setTime(_FOREVER)

    def set_free(self) -> None:
        """Restore the loop's own clock and open the gate."""
        former, _ = self._gate
        self._field.set(self._executor, self._jvm.org.apache.spark.util.SystemClock())
        former.setTime(_FOREVER)

    def _put_up(self, now_ms: int) -> tuple[Any, int]:
        clock = self._jvm.org.apache.spark.util.ManualClock(now_ms)
        self._field.set(self._executor, clock)
        return clock, int(self._jvm.java.lang.System.identityHashCode(clock))


def keep_pause(query: StreamingQuery, pause_ms: int, interval_ms: int | None) -> threading.Thread | None:
    """Keep a pause between the batches of a query until the query ends, on a separate thread.

    The function does nothing for a query without intervals, such as one that processes the available input
    and ends. If Spark's internals are not as expected, only the trigger determines the starts of batches.
    """
    loop = _loop_of(query)
    if loop is None:
        return None
    keeper = threading.Thread(
        target=_keep, args=(query, loop, pause_ms, interval_ms), name="holdfast-pause", daemon=True
    )
    keeper.start()
    return keeper


def _loop_of(query: StreamingQuery) -> SparkLoop | None:
    from py4j.protocol import Py4JError

    with suppress(AttributeError, TypeError, Py4JError):
        execution: Any = query._jsq.streamingQuery()
        # The query's thread creates the executor before its first batch.
        while execution.triggerExecutor() is None and query.isActive:
            time.sleep(0.001)
        made = execution.triggerExecutor()
        if made is not None and str(made.getClass().getSimpleName()) == _EXECUTOR:
            return SparkLoop(query)
    return None


def _keep(query: StreamingQuery, loop: SparkLoop, pause_ms: int, interval_ms: int | None) -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        try:
            pause = Pause(loop, pause_ms, interval_ms, now_ms)
            while query.isActive:
                time.sleep(min(pause.look(), 1.0))
        finally:
            loop.set_free()
