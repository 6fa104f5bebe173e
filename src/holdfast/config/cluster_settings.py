"""The parallel tasks and the executor memory that a session's settings request from a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.config.spark_defaults import BOUNDED_MEMORY_KEY, PROVIDER_KEY, ROCKSDB, ROCKSDB_PROVIDER
from holdfast.config.units import MIB
from holdfast.errors import Invalid
from holdfast.quantities import counted, rounded_size

INSTANCES_KEY: Final = "spark.executor.instances"
EXECUTOR_CORES_KEY: Final = "spark.executor.cores"
EXECUTOR_MEMORY_KEY: Final = "spark.executor.memory"
OVERHEAD_KEY: Final = "spark.executor.memoryOverhead"
OVERHEAD_FACTOR_KEY: Final = "spark.executor.memoryOverheadFactor"
LEAST_OVERHEAD_KEY: Final = "spark.executor.minMemoryOverhead"
PYSPARK_MEMORY_KEY: Final = "spark.executor.pyspark.memory"
TASK_CPUS_KEY: Final = "spark.task.cpus"
DYNAMIC_KEY: Final = "spark.dynamicAllocation.enabled"
MOST_EXECUTORS_KEY: Final = "spark.dynamicAllocation.maxExecutors"
STATE_MEMORY_KEY: Final = f"{ROCKSDB}.maxMemoryUsageMB"

# The memory of a Python worker with Arrow and pandas loaded, before it has any rows.
WORKER_BASE_BYTES: Final = 160 * MIB
# The additional memory of a keyed operator for a pass; set with `process(…, memory=)`.
WORKER_PASS_BYTES: Final = 256 * MIB
# The memory of a store of an unbounded RocksDB: its cache, and two write buffers of RocksDB's default size.
_UNBOUNDED_STORE_BYTES: Final = (8 + 2 * 64) * MIB
# Spark's defaults.
_STATE_MEMORY_MIB: Final = 500
_HEAP: Final = "1g"
_INSTANCES: Final = 2
_LEAST_OVERHEAD: Final = "384m"
_FACTOR: Final = {False: 0.1, True: 0.4}

_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_SIZE: Final = re.compile(r"(\d+)\s*([kmgtp]?)i?b?")
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


class Manager(str, Enum):
    """A cluster manager that starts the executors of a session."""

    LOCAL = "local"
    LOCAL_CLUSTER = "local-cluster"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"
    OTHER = "other"

    @property
    def sizes_containers(self) -> bool:
        """Return whether executors run in containers sized by the memory settings."""
        return self in (Manager.YARN, Manager.KUBERNETES)


def manager_of(master: str) -> Manager:
    """Return the cluster manager of a master's address."""
    if _LOCAL_CLUSTER.fullmatch(master):
        return Manager.LOCAL_CLUSTER
    if master.startswith("local"):
        return Manager.LOCAL
    if master.startswith("spark://"):
        return Manager.STANDALONE
    if master.startswith("k8s://"):
        return Manager.KUBERNETES
    return Manager.YARN if master == "yarn" else Manager.OTHER


@dataclass(frozen=True, slots=True)
class AskedCores:
    """The number of parallel tasks for which the settings request cores.

    Attributes:
        slots: The number of parallel tasks; None if the settings do not determine it.
        why: The origin of the number, or the reason why it is unknown.
    """

    slots: int | None
    why: str


def asked_cores(master: str, conf: Mapping[str, str]) -> AskedCores:
    """Return the number of parallel tasks that the settings request from a cluster.

    A standalone cluster gives all its cores unless `spark.cores.max` limits them, so the number is known only
    to its master. YARN and Kubernetes give the requested number or fewer.

    Raises:
        Invalid: A setting is not a valid number.
    """
    manager = manager_of(master)
    cpus = _number(conf, TASK_CPUS_KEY, 1)
    if manager is Manager.LOCAL_CLUSTER:
        found = _LOCAL_CLUSTER.fullmatch(master)
        executors, cores = (int(found[1]), int(found[2])) if found else (1, 1)
        return AskedCores(executors * (cores // cpus), f"{master}")
    if not manager.sizes_containers:
        return AskedCores(None, "the settings do not determine the number of cores of this cluster")
    cores = _number(conf, EXECUTOR_CORES_KEY, 1)
    if is_dynamic(conf):
        if MOST_EXECUTORS_KEY not in conf:
            return AskedCores(None, f"with {DYNAMIC_KEY} the number of executors is not fixed")
        executors, key = _number(conf, MOST_EXECUTORS_KEY, _INSTANCES), MOST_EXECUTORS_KEY
    else:
        executors, key = _number(conf, INSTANCES_KEY, _INSTANCES), INSTANCES_KEY
    why = f"{key} = {executors}, {EXECUTOR_CORES_KEY} = {cores}"
    return AskedCores(executors * (cores // cpus), why)


@dataclass(frozen=True, slots=True)
class ExecutorMemory:
    """The memory that an executor of a query with state needs, and the memory that the settings give.

    Attributes:
        heap_bytes: The JVM's heap: `spark.executor.memory`.
        jvm_bytes: The JVM's memory outside its heap: Spark's own overhead.
        state_bytes: The maximum memory of the state store outside the heap; with an unbounded RocksDB, an
            estimate for the stores of one stateful operator.
        state_bounded: Whether `state_bytes` is a limit and not an estimate.
        python_bytes: The memory of Python workers with keyed state, one worker per parallel task.
        given_bytes: The memory outside the heap that the settings give: overhead and Python workers; None if
            the cluster does not count it.
        pyspark_bytes: The limit that the settings set for all Python workers together; None without one.
    """

    heap_bytes: int
    jvm_bytes: int
    state_bytes: int
    state_bounded: bool
    python_bytes: int
    given_bytes: int | None
    pyspark_bytes: int | None

    @property
    def outside_bytes(self) -> int:
        """The memory needed outside the heap, in bytes."""
        return self.jvm_bytes + self.state_bytes + self.python_bytes

    @property
    def total_bytes(self) -> int:
        """The memory needed in total, in bytes."""
        return self.heap_bytes + self.outside_bytes

    @property
    def text(self) -> str:
        """The parts of the memory as text."""
        return (
            f"{rounded_size(self.heap_bytes)} of heap, and outside it {rounded_size(self.jvm_bytes)} for the "
            f"JVM, {rounded_size(self.state_bytes)} for RocksDB and {rounded_size(self.python_bytes)} for "
            "Python workers"
        )


def executor_memory(
    master: str, conf: Mapping[str, str], slots: int, partitions: int | None = None
) -> ExecutorMemory:
    """Return the memory that one executor of a query with state needs and gets.

    Args:
        master: The Spark master.
        conf: The session's settings.
        slots: The number of parallel tasks of an executor.
        partitions: The number of partitions of a stateful operator that an executor may hold; used for an
            unbounded RocksDB.

    Raises:
        Invalid: A setting is not a valid size or number.
    """
    manager = manager_of(master)
    heap = _size(conf, EXECUTOR_MEMORY_KEY, _HEAP, bare="")
    factor = _part(conf, manager)
    least = _size(conf, LEAST_OVERHEAD_KEY, _LEAST_OVERHEAD, bare="m")
    spark_overhead = max(int(heap * factor), least)
    # Spark's default reserve is only for the JVM; on Kubernetes it is also for Python.
    jvm = max(int(heap * _FACTOR[False]), least)
    rocksdb = conf.get(PROVIDER_KEY, "") == ROCKSDB_PROVIDER
    bounded = conf.get(BOUNDED_MEMORY_KEY, "false").lower() == "true"
    if not rocksdb:
        state = 0
    elif bounded:
        state = _number(conf, STATE_MEMORY_KEY, _STATE_MEMORY_MIB) * MIB
    else:
        state = _UNBOUNDED_STORE_BYTES * (partitions or slots)
    limit = _size(conf, PYSPARK_MEMORY_KEY, "0", bare="m") or None
    overhead = _size(conf, OVERHEAD_KEY, "", bare="m") if conf.get(OVERHEAD_KEY) else spark_overhead
    return ExecutorMemory(
        heap_bytes=heap,
        jvm_bytes=jvm,
        state_bytes=state,
        state_bounded=bounded or not rocksdb,
        python_bytes=slots * (WORKER_BASE_BYTES + WORKER_PASS_BYTES),
        given_bytes=overhead + (limit or 0) if manager.sizes_containers else None,
        pyspark_bytes=limit,
    )


def container_defaults(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the setting for the memory overhead that executors in containers need; empty if one is set.

    Raises:
        Invalid: A setting is not a valid size or number.
    """
    if not manager_of(master).sizes_containers or OVERHEAD_KEY in conf or OVERHEAD_FACTOR_KEY in conf:
        return {}
    memory = executor_memory(master, conf, slots_of_executor(conf))
    python = 0 if memory.pyspark_bytes else memory.python_bytes
    return {OVERHEAD_KEY: f"{-(-(memory.jvm_bytes + memory.state_bytes + python) // MIB)}m"}


def is_dynamic(conf: Mapping[str, str]) -> bool:
    """Return whether Spark removes idle executors from a session."""
    return conf.get(DYNAMIC_KEY, "false").strip().lower() == "true"


def setting_cautions(master: str, conf: Mapping[str, str]) -> tuple[str, ...]:
    """Return cautions about settings that are unsuitable for queries with state on this cluster.

    Raises:
        Invalid: A setting is not a valid size or number.
    """
    if manager_of(master) is Manager.LOCAL:
        return ()
    said = []
    if is_dynamic(conf):
        said.append(
            f"{DYNAMIC_KEY} is on: Spark removes executors between batches, and with each the copy of its "
            "state, which the next batch loads again from the checkpoint\n"
            f"hint: set {DYNAMIC_KEY}=false and {INSTANCES_KEY}=N for a query with state"
        )
    slots = slots_of_executor(conf)
    memory = executor_memory(master, conf, slots)
    given = memory.given_bytes
    if not memory.state_bounded:
        each = rounded_size(_UNBOUNDED_STORE_BYTES)
        said.append(
            f"RocksDB's memory has no limit: each store may take {each} and more outside the heap\n"
            f"hint: set {BOUNDED_MEMORY_KEY}=true and {STATE_MEMORY_KEY}"
        )
    elif given is not None and given < memory.outside_bytes:
        said.append(
            f"an executor's container has {rounded_size(given)} outside the heap, and a query with keyed "
            f"state may take {rounded_size(memory.outside_bytes)}: {memory.text}\n"
            f"hint: set {OVERHEAD_KEY}={-(-memory.outside_bytes // MIB)}m, or lower the memory of RocksDB"
        )
    if memory.pyspark_bytes is not None and memory.pyspark_bytes < memory.python_bytes:
        each = rounded_size(memory.pyspark_bytes // slots)
        said.append(
            f"{PYSPARK_MEMORY_KEY} gives each of {counted(slots, 'Python worker')} {each} of address space, "
            f"and one with keyed state may take {rounded_size(memory.python_bytes // slots)}\n"
            f"hint: set {PYSPARK_MEMORY_KEY} to {-(-memory.python_bytes // MIB)}m or more, or leave it unset"
        )
    return tuple(said)


def worker_caution(memory: ExecutorMemory, worker_bytes: int, host: str) -> str | None:
    """Return a caution if an executor may exceed the memory of its standalone worker; otherwise None.

    A standalone cluster accounts only for the heap.
    """
    if memory.total_bytes <= worker_bytes:
        return None
    return (
        f"the worker on {host} offers {rounded_size(worker_bytes)}, and an executor with keyed state may "
        f"take {rounded_size(memory.total_bytes)}: {memory.text}; the cluster counts the heap alone\n"
        f"hint: lower {EXECUTOR_MEMORY_KEY}, or check that the machine has the remaining memory"
    )


def slots_of_executor(conf: Mapping[str, str], cores: int = 1) -> int:
    """Return the number of parallel tasks of an executor.

    Args:
        conf: The session's settings.
        cores: The number of cores of an executor if the settings do not give it.

    Raises:
        Invalid: A setting is not a valid number.
    """
    return max(1, _number(conf, EXECUTOR_CORES_KEY, cores) // _number(conf, TASK_CPUS_KEY, 1))


def _part(conf: Mapping[str, str], manager: Manager) -> float:
    text = conf.get(OVERHEAD_FACTOR_KEY)
    if text is None:
        return _FACTOR[manager is Manager.KUBERNETES]
    try:
        return float(text)
    except ValueError:
        raise _unreadable(OVERHEAD_FACTOR_KEY, text, "a fraction, such as 0.2") from None


def _number(conf: Mapping[str, str], key: str, default: int) -> int:
    text = conf.get(key, str(default)).strip()
    if not text.isdecimal() or int(text) < 1:
        raise _unreadable(key, text, "a whole number, at least 1")
    return int(text)


def _size(conf: Mapping[str, str], key: str, default: str, *, bare: str) -> int:
    """Return a size as Spark reads it; `bare` is the unit of a number without one."""
    text = conf.get(key, default).strip().lower()
    found = _SIZE.fullmatch(text)
    if found is None:
        raise _unreadable(key, text, 'a size, such as "2g" or "512m"')
    return int(found[1]) << 10 * _POWERS[found[2] or bare]


def _unreadable(key: str, found: str, expected: str) -> Invalid:
    return Invalid(
        "invalid value of a Spark setting",
        code="HF-E2158",
        hint="correct the value, or remove the setting",
        where=key,
        found=repr(found),
        expected=expected,
    )
