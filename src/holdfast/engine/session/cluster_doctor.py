"""Say what a cluster has, and whether its executors can run keyed state, by running a task on each."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast._version import __version__
from holdfast.config.settings import Settings
from holdfast.config.units import counted
from holdfast.engine.cluster.cluster_fit import ClusterFit, executor_slots, fit_of
from holdfast.engine.cluster.worker_probe import OWN, PACKAGES, Seen, look_at_workers
from holdfast.engine.session.doctor import Check
from holdfast.engine.session.session import WORKERS_KEY, session
from holdfast.engine.versions import installed
from holdfast.errors import Invalid
from holdfast.json_shapes import JsonShape, in_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.25
_MISMATCH: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH\][^\n]*?different version: (?P<there>[\d.]+)[^\n]*?driver: (?P<here>[\d.]+)"
)
_NO_PROGRAM: Final = re.compile(r'Cannot run program "(?P<program>[^"]+)"')


@dataclass(frozen=True, slots=True)
class ExecutorPython(JsonShape):
    """The Python of an executor.

    Attributes:
        host: The executor's machine.
        python: Its version.
        executable: Where it is.
        packages: The versions of the packages that are installed there; null for one that is not.
        shipped: Whether this package came from the driver.
    """

    host: str
    python: str
    executable: str
    packages: Mapping[str, str | None]
    shipped: bool


@dataclass(frozen=True, slots=True)
class ClusterExamination(JsonShape):
    """What a session has found on a cluster.

    Attributes:
        fit: The cores that it has, and the partitions of state that follow.
        executors: The Python of each executor that a task has run on.
        checks: What was looked at.
    """

    fit: ClusterFit
    executors: tuple[ExecutorPython, ...]
    checks: tuple[Check, ...]

    @property
    @in_json
    def ok(self) -> bool:
        """Whether a job could run there."""
        return all(check.ok for check in self.checks if check.needed)


def examine_cluster(settings: Settings, master: str, conf: Mapping[str, str]) -> ClusterExamination:
    """Start a session on a cluster, run a task in each of its slots, and end the session.

    Costs the start of a JVM and of the executors, and a short task on each.

    Args:
        settings: Holdfast's own settings.
        master: The cluster's address.
        conf: Spark settings, as a job would have them.

    Raises:
        Invalid: The address is that of this machine.
        HoldfastError: No session could be started.
    """
    spark = session("holdfast-doctor", master=master, home=settings.home, conf={**_QUIET, **conf})
    try:
        found = fit_of(spark)
        if found is None:
            raise Invalid("this is no cluster", where=f"--master {master}", hint="leave --master out")
        come = _await_slots(spark, found.slots or 1)
        checks = [_slots_check(found, come)]
        seen: list[Seen] = []
        if come:
            seen, problem = _seen(spark, come)
            checks += [problem] if problem else _python_checks(seen)
        checks += [
            Check("caution", False, caution.partition("\nhint: ")[0], caution.partition("\nhint: ")[2], False)
            for caution in found.cautions
        ]
    finally:
        spark.stop()
    return ClusterExamination(found, tuple(_executor(entry) for entry in seen), tuple(checks))


def _await_slots(spark: SparkSession, wanted: int) -> int:
    """How many tasks run at once, as soon as that is what was promised, or after a while."""
    until = time.monotonic() + _PATIENCE_S
    while (come := executor_slots(spark)) < wanted and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return come


def _slots_check(found: ClusterFit, come: int) -> Check:
    if come:
        return Check("executors", True, f"{counted(come, 'task')} at once; {found.text}")
    hint = "see the cluster's own page: another session may have its cores, or no worker has the memory"
    return Check("executors", False, f"none has come in {_PATIENCE_S:.0f} s; {found.text}", hint)


def _seen(spark: SparkSession, slots: int) -> tuple[list[Seen], Check | None]:
    """What tasks found, or why none could run."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return look_at_workers(spark, slots), None
    except (Py4JError, PySparkException) as error:
        return [], failed_task(str(error))


def failed_task(text: str) -> Check:
    """Why the Python of the executors has not run a task, by the text of Spark's error."""
    wrong = _MISMATCH.search(text)
    if wrong is not None:
        found = f"Python {wrong['there']}, and the driver has {wrong['here']}"
        hint = f"name one of {wrong['here']} there: {WORKERS_KEY}=/…/bin/python{wrong['here']}"
        return Check("python of executors", False, found, hint)
    missing = _NO_PROGRAM.search(text)
    if missing is not None:
        hint = f"name the Python that they have: {WORKERS_KEY}=/…/bin/python, or ship one: spark.archives"
        return Check("python of executors", False, f"no {missing['program']} there", hint)
    last = [line.strip() for line in text.splitlines() if line.strip()]
    return Check("python of executors", False, last[0] if last else "no task has run", None)


def _python_checks(seen: Sequence[Seen]) -> list[Check]:
    """The Python that tasks have found, held against the driver's."""
    here: dict[str, str | None] = {name: installed(name) for name in PACKAGES}
    pythons = sorted({f"Python {entry['python']} at {entry['executable']}" for entry in seen})
    checks = [Check("python of executors", True, f"{', '.join(pythons)}; driver {platform.python_version()}")]
    for name in PACKAGES:
        versions = sorted({str(entry["packages"][name]) for entry in seen})
        lacking = "None" in versions
        other = versions != [str(here[name])]
        hint = f"install it for the executors' Python, or ship an environment: {_PACKED}" if lacking else None
        if other and not lacking:
            hint = f"the driver has {here[name]}; the same version on all machines is safest"
        found = "not installed" if lacking else ", ".join(versions)
        checks.append(Check(f"{name} on executors", not lacking, found, hint))
    own = {entry["packages"][OWN] for entry in seen} - {None}
    sent = all(_is_shipped(entry) for entry in seen)
    found = f"{__version__}, sent by the driver" if sent else "not sent"
    if own:
        found += f"; installed there: {', '.join(sorted(own))}"
    usable = all(entry["place"] for entry in seen)
    checks.append(Check(f"{OWN} on executors", usable, found if usable else "cannot be imported"))
    return checks


_PACKED: Final = "spark.archives=env.tar.gz#env, spark.pyspark.python=./env/bin/python"


def _is_shipped(entry: Seen) -> bool:
    return ".zip/" in str(entry["place"])


def _executor(entry: Seen) -> ExecutorPython:
    facts: dict[str, Any] = {name: entry[name] for name in ("host", "python", "executable", "packages")}
    return ExecutorPython(**facts, shipped=_is_shipped(entry))
