"""A session on a cluster: its resources, the Python modules of its executors, and the code sent to them.

An archive has the same bytes for the same files, and its hash in its name. So two drivers of one release send
the same archive, and a different release sends a different one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast._version import __version__
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
from holdfast.config.settings import Settings, make_directory
from holdfast.config.spark_defaults import SHUFFLE_PARTITIONS_KEY, state_partitions
from holdfast.config.units import MIB
from holdfast.errors import Invalid, NotFound
from holdfast.json_shapes import JsonShape
from holdfast.quantities import counted, rounded_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The directories in which Python workers find modules first; files arrive in the executor's current
# directory.
WORKER_PATH_KEY: Final = "spark.executorEnv.PYTHONPATH"
_FOLDER: Final = "shipped"
_PACKAGE: Final = Path(__file__).parents[1]
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644 << 16
_UNIX: Final = 3
_NOT_FOR_WORKERS: Final = frozenset({"cli", "demo", "server"})
_HASH_DIGITS: Final = 12
_ARCHIVES: Final = (".zip", ".egg")


def needs_code(master: str) -> bool:
    """Return whether executors may run on machines without this package."""
    return manager_of(master) is not Manager.LOCAL


@cache
def package_archive(home: Path) -> Path:
    """Return the archive of this package in the state home, created once per release.

    The archive has the Python modules that a task may import.
    """
    return _archive(home, f"holdfast-{__version__}", _PACKAGE, _PACKAGE.parent, _NOT_FOR_WORKERS)


def code_archives(paths: Iterable[str | os.PathLike[str]], base: Path, home: Path) -> list[Path]:
    """Return the files that send a job's modules to the executors.

    Args:
        paths: Modules (`.py`), archives (`.zip`, `.egg`), and directories. The directory of a package is sent
            under its name, of any other directory its contents.
        base: The directory against which relative paths are resolved.
        home: The state home, in which the archives of directories are stored.

    Raises:
        NotFound: A path does not exist.
        Invalid: A file has an unsupported type, or two files have the same name.
    """
    found: list[Path] = []
    for path in paths:
        place = base / os.fspath(path)
        if place.is_dir():
            top = place.parent if (place / "__init__.py").is_file() else place
            found.append(_archive(home, place.resolve().name, place, top))
        elif not place.exists():
            raise NotFound(
                "a path in py_files does not exist",
                code="HF-E3033",
                where="py_files",
                found=str(place),
                hint="correct the path, or remove it from py_files",
            )
        elif place.suffix in (".py", *_ARCHIVES):
            found.append(place)
        else:
            raise Invalid(
                "py_files does not support this file type",
                code="HF-E2181",
                where="py_files",
                found=str(place),
                expected="a .py file, a .zip or .egg archive, or a directory",
                hint="for wheels, pack an environment with venv-pack, and set spark.archives",
            )
    doubled = {place.name for place in found if [each.name for each in found].count(place.name) > 1}
    if doubled:
        raise Invalid(
            "two files in py_files have the same name, and executors store them in one directory",
            code="HF-E2182",
            where="py_files",
            found=", ".join(sorted(doubled)),
            hint="rename one file, or put the files into a package",
        )
    return found


def send_code(spark: SparkSession, files: Iterable[Path]) -> None:
    """Make files importable in the tasks of a session; a file that the session already has is not sent again.

    Existing plans do not change, so call this function before a query is built.
    """
    context: Any = spark.sparkContext
    for file in files:
        if not any(str(path).endswith(f"/{file.name}") for path in context.listFiles):
            before = list(sys.path)
            context.addPyFile(str(file))
            if file.name.startswith(f"holdfast-{__version__}-"):
                # The driver has the package and must not import a copy of it.
                sys.path[:] = before
        elif file.suffix in _ARCHIVES and file.name not in context._python_includes:
            # The session already has the file; tasks must import from it.
            context._python_includes.append(file.name)
        _show_driver(context, file)


def send_package(spark: SparkSession, home: Path | None = None) -> None:
    """Make this package importable in the tasks of a session on a cluster, whether or not it is installed
    there.

    Args:
        spark: The session.
        home: The state home, or None to leave a session unchanged that already has the package.
    """
    context: Any = spark.sparkContext
    if not needs_code(str(context.master)):
        return
    if home is None and any(f"/holdfast-{__version__}-" in str(path) for path in context.listFiles):
        return
    send_code(spark, [package_archive(home or Settings.resolve({}, os.environ, Path.cwd()).home)])


def _show_driver(context: Any, file: Path) -> None:
    """Make a file importable in the worker that Spark runs next to the driver to plan keyed state.

    Spark sends no files to that worker. The worker has the environment of all workers, in which a path of
    this machine has no effect on other machines.
    """
    from pyspark import SparkFiles

    shown = str(file.resolve()) if file.suffix in _ARCHIVES else SparkFiles.getRootDirectory()
    paths = str(context.environment.get("PYTHONPATH", "")).split(os.pathsep)
    if shown not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join(path for path in (*paths, shown) if path)


def worker_path(given: str | None, archive: Path) -> str:
    """Return the workers' PYTHONPATH with the archive first, so that it precedes an installed copy."""
    others = [entry for entry in (given or "").split(":") if entry not in ("", archive.name)]
    return ":".join([archive.name, *others])


def _archive(home: Path, name: str, folder: Path, top: Path, without: Container[str] = ()) -> Path:
    """Return the archive of the modules below `folder`, with names relative to `top`; create it if missing.

    The archive is created atomically and never changed.
    """
    modules = {path.relative_to(top).as_posix(): path.read_bytes() for path in _modules(folder, without)}
    digest = hashlib.sha256()
    for module, content in sorted(modules.items()):
        digest.update(f"{module}\0{len(content)}\0".encode() + content)
    path = home.resolve() / _FOLDER / f"{name}-{digest.hexdigest()[:_HASH_DIGITS]}.zip"
    if zipfile.is_zipfile(path):
        return path
    make_directory(path.parent)
    number, fresh = tempfile.mkstemp(prefix=".", suffix=".zip", dir=path.parent)
    with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for module, content in sorted(modules.items()):
            archive.writestr(_entry(module), content)
    Path(fresh).replace(path)
    return path


def _entry(module: str) -> zipfile.ZipInfo:
    """Return an archive entry that does not depend on the time or the machine."""
    entry = zipfile.ZipInfo(module, _TIME)
    entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, _MODE, _UNIX
    return entry


def _modules(folder: Path, without: Container[str]) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        left_out = without if Path(place) == folder else ()
        folders[:] = [name for name in folders if _has_code(name) and name not in left_out]
        yield from (Path(place, name) for name in files if name.endswith(".py"))


def _has_code(name: str) -> bool:
    return name != "__pycache__" and not name.startswith(".")


def of_spark_env(spark: SparkSession, name: str, kind: str) -> Any:
    """Return an object of the driver's `SparkEnv`.

    Py4J lists the methods of a class before it calls one. In Spark 4.3 the signature of one method has a
    class that the jars lack, so Py4J cannot call any method of `SparkEnv`. A method handle looks up only the
    requested method.

    Args:
        spark: A session of this process.
        name: The name of the method that returns the object.
        kind: The full name of the object's class.
    """
    jvm: Any = spark._jvm
    of_name = jvm.java.lang.Class.forName
    signature = jvm.java.lang.invoke.MethodType.methodType(of_name(kind))
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    handle = lookup.findVirtual(of_name("org.apache.spark.SparkEnv"), name, signature)
    arguments = jvm.java.util.ArrayList()
    arguments.add(spark._jsc.sc().env())
    return handle.invokeWithArguments(arguments)


_SCHEME: Final = "spark://"
_MASTER_PATIENCE_S: Final = 10.0
_ALIVE: Final = "ALIVE"


@dataclass(frozen=True, slots=True)
class ClusterWorker(JsonShape):
    """A live worker of a standalone cluster.

    Attributes:
        host: The host name of the worker's machine.
        cores: The number of cores that the worker offers.
        cores_used: The number of cores in use by sessions.
        memory_bytes: The memory for the heaps of executors, in bytes.
    """

    host: str
    cores: int
    cores_used: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class MasterState:
    """The state of a standalone cluster, as reported by its master.

    Attributes:
        workers: The live workers.
        granted: The number of cores granted to the session, or None if the master does not list the session.
    """

    workers: tuple[ClusterWorker, ...]
    granted: int | None

    @property
    def cores(self) -> int:
        """Return the total number of cores of all workers."""
        return sum(worker.cores for worker in self.workers)


def master_state(spark: SparkSession, master: str) -> MasterState | None:
    """Return the state reported by the leading master, or None if no master answers, for example on a closed
    port.

    The master's address does not include the port of its web page, which is requested over Spark's own
    protocol.
    """
    context: Any = spark.sparkContext
    for address in master.removeprefix(_SCHEME).split(","):
        host, _, port = address.rpartition(":")
        page = _page_port(spark, host, port)
        if page is None:
            continue
        document = _document(f"http://{host}:{page}/json/")
        if document is not None and document.get("status") == _ALIVE:
            return state_in(document, str(context.applicationId))
    return None


def state_in(document: Mapping[str, Any], application: str) -> MasterState:
    """Parse the JSON page of a master, for the session with this application id."""
    workers = tuple(
        ClusterWorker(
            str(worker["host"]), int(worker["cores"]), int(worker["coresused"]), int(worker["memory"]) * MIB
        )
        for worker in document["workers"]
        if worker["state"] == _ALIVE
    )
    granted = [int(app["cores"]) for app in document["activeapps"] if app["id"] == application]
    return MasterState(workers, granted[0] if granted else None)


def _page_port(spark: SparkSession, host: str, port: str) -> int | None:
    """Return the port of a master's web page. Not in Spark's API; its REST gateway uses the same request."""
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm

    def single(name: str) -> Any:
        return jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)

    try:
        endpoint = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
        rpc = of_spark_env(spark, "rpcEnv", "org.apache.spark.rpc.RpcEnv")
        asked = rpc.setupEndpointRef(endpoint, "Master")
        request = single("org.apache.spark.deploy.master.MasterMessages$BoundPortsRequest$")
        return int(asked.askSync(request, single("scala.reflect.ClassTag$").Any()).webUIPort())
    except (Py4JError, ValueError, TypeError):
        return None


def _document(url: str) -> Mapping[str, Any] | None:
    # Proxies from the environment are ignored, because they may not reach the master.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_MASTER_PATIENCE_S) as answer:
            document = json.load(answer)
    except (OSError, ValueError, HTTPException):
        return None
    return document if isinstance(document, dict) and "activeapps" in document else None


_LOG: Final = logging.getLogger("holdfast.session")
_LOOK_S: Final = 0.25
# The wait for the first executor, if no master reports the number of cores.
_PATIENCE_S: Final = 30.0
# By application id: the resources of a session, determined when it started.
_FITS: Final[dict[str, ClusterFit]] = {}


@dataclass(frozen=True, slots=True)
class ClusterFit(JsonShape):
    """The resources of a session on a cluster.

    Attributes:
        master: The address of the cluster.
        manager: The kind of cluster: `local-cluster`, `standalone`, `yarn`, `kubernetes` or `other`.
        workers: The live workers of a standalone cluster, or None if unknown.
        slots: The number of tasks that can run in parallel, or None if unknown.
        slots_from: The source of `slots`, or the reason why it is unknown.
        partitions: The number of state partitions in a new checkpoint; an existing checkpoint keeps its own
            number.
        partitions_from: The source of `partitions`: `yours`, `the cluster` or `Spark`.
        cautions: The warnings for stateful queries on the cluster, each with its hint.
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
        """Return the resources as one line of text."""
        parts = []
        if self.workers is not None:
            parts.append(counted(len(self.workers), "worker"))
        tasks = "an unknown number of tasks" if self.slots is None else counted(self.slots, "task")
        parts.append(f"{tasks} at once ({self.slots_from})")
        decided = {"yours": "set by you", "Spark": "Spark's default"}.get(self.partitions_from)
        partitions = counted(self.partitions, "partition")
        parts.append(f"new state gets {partitions}{f' ({decided})' if decided else ''}")
        return f"cluster {self.master}: {', '.join(parts)}; existing state keeps its own"


def fit_of(spark: SparkSession) -> ClusterFit | None:
    """Return the resources that `fit` determined for a session, or None for a session on this machine."""
    context: Any = spark.sparkContext
    return _FITS.get(str(context.applicationId))


def fit(spark: SparkSession, *, given: bool) -> ClusterFit | None:
    """Determine a session's resources on its cluster, and set the number of partitions for new state.

    A number of partitions set by the user is not changed. On a standalone cluster the master is asked; if it
    does not answer, the function waits for the first executor. For a session on this machine the function
    does nothing.

    Args:
        spark: A started session.
        given: Whether the user has set the number of partitions.
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
    """Return the number of parallel tasks for the granted cores, or for the cores that can be granted."""
    cpus = int(conf.get(TASK_CPUS_KEY, "1"))
    if state.granted:
        return max(1, state.granted // cpus), f"{counted(state.granted, 'core')} from the master"
    most = int(conf.get("spark.cores.max", str(state.cores)))
    cores = min(most, state.cores)
    if not cores:
        return None, "the cluster has no worker"
    return max(1, cores // cpus), f"none granted yet; the cluster has {counted(state.cores, 'core')}"


def _registered(
    spark: SparkSession, clock: Callable[[], float], sleep: Callable[[float], None]
) -> tuple[int | None, str]:
    """Return the number of tasks of the registered executors, after two checks with the same result."""
    until = clock() + _PATIENCE_S
    before = 0
    while clock() < until:
        slots = executor_slots(spark)
        if slots and slots == before:
            return slots, "from the registered executors; the master did not answer"
        before = slots
        sleep(_LOOK_S * 4)
    return None, "neither the master nor an executor answered"


def executor_slots(spark: SparkSession) -> int:
    """Return the number of parallel tasks of the current executors. The call is public only in the JVM."""
    context: Any = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(True)
    return sum(int(executors.apply(index).maxTasks()) for index in range(executors.size()))


def _of_workers(state: MasterState | None, master: str, conf: dict[str, str]) -> tuple[str, ...]:
    """Return the warnings about the memory of a standalone cluster's workers."""
    if state is None or not state.workers:
        return ()
    slots = slots_of_executor(conf, max(worker.cores for worker in state.workers))
    memory = executor_memory(master, conf, slots)
    largest = max(state.workers, key=lambda worker: worker.memory_bytes)
    if largest.memory_bytes < memory.heap_bytes:
        said = (
            f"no worker has enough memory for an executor: it needs {rounded_size(memory.heap_bytes)} of"
            f" heap, and the largest worker, on {largest.host}, offers {rounded_size(largest.memory_bytes)}\n"
            f"hint: lower {EXECUTOR_MEMORY_KEY}; until then no task runs"
        )
        return (said,)
    smallest = min(state.workers, key=lambda worker: worker.memory_bytes)
    caution = worker_caution(memory, smallest.memory_bytes, smallest.host)
    return (caution,) if caution else ()
