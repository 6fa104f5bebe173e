"""The durations of a batch's tasks, which Spark's progress does not report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.connect import is_connect
from holdfast.engine.queries.watch import interval_in, is_real_time, trigger_of
from holdfast.model import BatchProgress, TaskTimes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# The maximum share of time for reading task times, which takes a few dozen calls into the JVM per batch.
_SHARE: Final = 0.002
_SHORTEST_S: Final = 1.0
# A batch with more jobs than this is skipped, and so is a batch followed by this many newer jobs.
_MOST_JOBS: Final = 60
# The name of the order by run time in Spark's list of tasks.
_BY_RUN_TIME: Final = "ert"


@dataclass(frozen=True, slots=True)
class _Stage:
    run_ms: int
    longest_ms: int


class TaskClock:
    """A reader of the trigger interval, the task times and the number of parallel tasks of batches.

    Spark keeps the task times in the store of its user interface, which exists even if the interface is
    disabled. Only some batches of a query are read, so that reading takes at most 0.2 % of the time. A batch
    that is incomplete in the store gets no times.

    Args:
        clock: Returns a time in seconds that only increases.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._triggers: dict[str, str] = {}

    def timed(self, batch: BatchProgress, query: StreamingQuery, run_id: str) -> BatchProgress:
        """Return a batch with the interval of its trigger and, if it is to be read, with task times and
        cores.

        Args:
            batch: The batch.
            query: The query, in this run or in an earlier one.
            run_id: The run of the batch.
        """
        if is_connect(query):
            return batch
        from py4j.protocol import Py4JError

        if run_id not in self._triggers:
            self._triggers[run_id] = trigger_of(query) or ""
        trigger = self._triggers[run_id]
        batch = replace(batch, interval_ms=interval_in(trigger), real_time=is_real_time(trigger))
        began = self._clock()
        if began < self._due.get(run_id, began):
            return batch
        try:
            # Not in Spark's Python API, but public in the JVM.
            context: Any = query._jsq.sparkSession().sparkContext()
            cores = _cores(context.statusStore())
            batch = replace(batch, cores=cores, tasks=_of_batch(context, run_id, batch))
        except (AttributeError, Py4JError):
            pass
        took = self._clock() - began
        self._due[run_id] = began + max(took / _SHARE, _SHORTEST_S)
        return batch


def _of_batch(context: Any, run_id: str, batch: BatchProgress) -> TaskTimes | None:
    jobs = list(_jobs(context, run_id, batch.batch_id))
    if not jobs or len(jobs) > _MOST_JOBS:
        return None
    store = context.statusStore()
    spans, stages = [], []
    for job in jobs:
        if not job.completionTime().isDefined() or not job.submissionTime().isDefined():
            return None
        spans.append((job.submissionTime().get().getTime(), job.completionTime().get().getTime()))
        ids = job.stageIds()
        for index in range(ids.size()):
            stage = _stage(store, ids.apply(index))
            if stage is not None:
                stages.append(stage)
    jobs_ms = min(_covered(spans), batch.duration_ms)
    return TaskTimes(
        jobs_ms,
        sum(stage.run_ms for stage in stages),
        min(sum(stage.longest_ms for stage in stages), jobs_ms),
    )


def _jobs(context: Any, run_id: str, batch_id: int) -> Iterator[Any]:
    """Yield the jobs of a batch: the group of a job is the run, and its description has the batch."""
    ids = context.statusTracker().getJobIdsForGroup(run_id)
    mark = f"batch = {batch_id}"
    found = False
    # The newest jobs are first.
    for index in range(min(len(ids), 2 * _MOST_JOBS)):
        job = context.statusStore().job(ids[index])
        described = job.description()
        mine = described.isDefined() and str(described.get()).endswith(mark)
        if mine:
            yield job
        elif found:
            return
        found = found or mine


def _stage(store: Any, stage_id: int) -> _Stage | None:
    """Return a stage that has run, or None for a skipped one."""
    from pyspark import SparkContext

    stage = store.lastStageAttempt(stage_id)
    if str(stage.status()) != "COMPLETE":
        return None
    jvm: Any = SparkContext._jvm
    by_time = jvm.scala.Option.apply(_BY_RUN_TIME)
    none: Any = jvm.java.util.ArrayList()
    longest = store.taskList(stage_id, stage.attemptId(), 0, 1, by_time, False, none)
    if longest.isEmpty() or not longest.head().taskMetrics().isDefined():
        return None
    metrics = longest.head().taskMetrics().get()
    return _Stage(int(stage.executorRunTime()), int(metrics.executorRunTime()))


def _cores(store: Any) -> int | None:
    """Return the number of parallel tasks over all current executors."""
    executors = store.executorList(True)
    slots = [int(executors.apply(index).maxTasks()) for index in range(executors.size())]
    return sum(slots) or None


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return the total time that is covered by at least one of several intervals."""
    total, until = 0, 0
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total
