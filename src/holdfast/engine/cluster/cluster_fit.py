"""A session on a cluster: what it was given there, and how many partitions new state gets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.cluster_settings import (
    EXECUTOR_MEMORY_KEY,
    TASK_CPUS_KEY,
    Manager,
    asked_cores,
    executor_memory,
    manager_of,
    setting_cautions,
    slots_of_executor,
    worker_caution,
)
from holdfast.config.spark_defaults import SHUFFLE_PARTITIONS_KEY, state_partitions
from holdfast.config.units import counted, rounded_size
from holdfast.engine.cluster.standalone_master import ClusterWorker, MasterState, master_state
from holdfast.json_shapes import JsonShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger("holdfast.session")
_LOOK_S: Final = 0.25
# Until the first executor has come, where no master tells how many cores there will be.
_PATIENCE_S: Final = 30.0
# By application: what a session was found to have when it started.
_FITS: Final[dict[str, ClusterFit]] = {}


@dataclass(frozen=True, slots=True)
class ClusterFit(JsonShape):
    """What a session has on a cluster.

    Attributes:
        master: Where Spark runs.
        manager: `local-cluster`, `standalone`, `yarn`, `kubernetes` or `other`.
        workers: The workers of a standalone cluster that are alive; None where they are not known.
        slots: Tasks that run at once; None where nothing tells.
        slots_from: What that is known from, or why it is not known.
        partitions: The partitions of state that a new checkpoint gets. One that exists keeps its own.
        partitions_from: `yours`, `the cluster` or `Spark`: who has decided that.
        cautions: What a person should know before a query with state runs there, each with its hint.
    """

    master: str
    manager: Manager
    workers: tuple[ClusterWorker, ...] | None
    slots: int | None
    slots_from: str
    partitions: int
    partitions_from: str
    cautions: tuple[str, ...]

    @property
    def text(self) -> str:
        """The same in a line."""
        parts = []
        if self.workers is not None:
            parts.append(counted(len(self.workers), "worker"))
        tasks = "an unknown number of tasks" if self.slots is None else counted(self.slots, "task")
        parts.append(f"{tasks} at once ({self.slots_from})")
        decided = {"yours": "as you set", "Spark": "Spark's default"}.get(self.partitions_from)
        partitions = counted(self.partitions, "partition")
        parts.append(f"new state gets {partitions}{f' ({decided})' if decided else ''}")
        return f"cluster {self.master}: {', '.join(parts)}; state that exists keeps its own"


def fit_of(spark: SparkSession) -> ClusterFit | None:
    """What `fit` has found for a session; None of one on this machine alone."""
    context: Any = spark.sparkContext
    return _FITS.get(str(context.applicationId))


def fit(spark: SparkSession, *, given: bool) -> ClusterFit | None:
    """See what a session has on its cluster, and give new state the partitions that suit it.

    A number of partitions that somebody has set stays. On a standalone cluster the master is asked; where it
    does not answer, the first executor is waited for. Nothing is done for a session on this machine.

    Args:
        spark: A session that has started.
        given: Whether somebody has set the number of partitions.
    """
    context: Any = spark.sparkContext
    master, application = str(context.master), str(context.applicationId)
    manager = manager_of(master)
    if manager is Manager.LOCAL:
        return None
    if application in _FITS:
        return _FITS[application]
    conf = {str(key): str(value) for key, value in context.getConf().getAll()}
    asked = asked_cores(master, conf)
    slots, why, state = asked.slots, asked.why, None
    if manager is Manager.STANDALONE:
        state = master_state(spark, master)
        slots, why = (
            _registered(spark, time.monotonic, time.sleep) if state is None else _granted(state, conf)
        )
    decided = "yours"
    if not given:
        decided = "Spark" if slots is None else "the cluster"
        if slots is not None:
            spark.conf.set(SHUFFLE_PARTITIONS_KEY, str(state_partitions(slots)))
    cautions = (*setting_cautions(master, conf), *_of_workers(state, master, conf))
    found = ClusterFit(
        master,
        manager,
        None if state is None else state.workers,
        slots,
        why,
        int(spark.conf.get(SHUFFLE_PARTITIONS_KEY) or 200),
        decided,
        cautions,
    )
    _FITS[application] = found
    _LOG.info("%s", found.text)
    for caution in cautions:
        _LOG.warning("%s", caution)
    return found


def _granted(state: MasterState, conf: dict[str, str]) -> tuple[int | None, str]:
    """The tasks that run at once on the cores that the master has given the session, or would give it."""
    cpus = int(conf.get(TASK_CPUS_KEY, "1"))
    if state.granted:
        return max(1, state.granted // cpus), f"{counted(state.granted, 'core')} from the master"
    most = int(conf.get("spark.cores.max", str(state.cores)))
    cores = min(most, state.cores)
    if not cores:
        return None, "the cluster has no worker"
    return max(1, cores // cpus), f"none given yet; the cluster has {counted(state.cores, 'core')}"


def _registered(
    spark: SparkSession, clock: Callable[[], float], sleep: Callable[[float], None]
) -> tuple[int | None, str]:
    """The tasks that the executors run which have come, once two looks see the same."""
    until = clock() + _PATIENCE_S
    before = 0
    while clock() < until:
        slots = executor_slots(spark)
        if slots and slots == before:
            return slots, "from the executors that have come; the master did not answer"
        before = slots
        sleep(_LOOK_S * 4)
    return None, "neither the master nor an executor has answered"


def executor_slots(spark: SparkSession) -> int:
    """How many tasks the executors run at once that are there now. Public in the JVM, not in Python."""
    context: Any = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(True)
    return sum(int(executors.apply(index).maxTasks()) for index in range(executors.size()))


def _of_workers(state: MasterState | None, master: str, conf: dict[str, str]) -> tuple[str, ...]:
    """What the memory of a standalone cluster's workers gives cause to say."""
    if state is None or not state.workers:
        return ()
    slots = slots_of_executor(conf, max(worker.cores for worker in state.workers))
    memory = executor_memory(master, conf, slots)
    largest = max(state.workers, key=lambda worker: worker.memory_bytes)
    if largest.memory_bytes < memory.heap_bytes:
        said = (
            f"no worker has room for an executor: {rounded_size(memory.heap_bytes)} of heap are asked for, "
            f"and the largest worker, on {largest.host}, offers {rounded_size(largest.memory_bytes)}\n"
            f"hint: lower {EXECUTOR_MEMORY_KEY}; until then no task runs"
        )
        return (said,)
    smallest = min(state.workers, key=lambda worker: worker.memory_bytes)
    caution = worker_caution(memory, smallest.memory_bytes, smallest.host)
    return (caution,) if caution else ()
