"""Create or configure a SparkSession with Holdfast's defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.backend import Backend, ExternalStore
from holdfast.config.cluster_settings import Manager, asked_cores, container_defaults, manager_of
from holdfast.config.installed_spark import GATEWAY_VARIABLE, given_settings
from holdfast.config.settings import Settings
from holdfast.config.spark_defaults import (
    DAEMON_KEY,
    DEFAULTS,
    SHUFFLE_PARTITIONS_KEY,
    UNIX_SOCKET_KEY,
    Default,
    machine_defaults,
)
from holdfast.config.spark_versions import spark_version
from holdfast.engine.cluster import (
    WORKER_PATH_KEY,
    code_archives,
    fit,
    needs_code,
    package_archive,
    send_code,
    send_package,
    worker_path,
)
from holdfast.engine.session.jars import (
    APPENDED,
    PACKAGES_KEY,
    Extra,
    check_state_jar,
    external_settings,
    extra_settings,
    joined,
    unresolved_told,
)
from holdfast.engine.session.java import find_java, java_home_for_spark, no_jvm_left
from holdfast.engine.session.workers import socket_folder
from holdfast.errors import Unsupported
from holdfast.extras import require_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCAL = "local[*]"
WORKERS_KEY = "spark.pyspark.python"
FILES_KEY = "spark.files"
# A place, and no choice of behaviour, so it is not among the defaults.
SOCKET_FOLDER_KEY = "spark.python.unix.domain.socket.dir"


def session(
    name: str = "holdfast",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    extras: Iterable[Extra] = (),
    home: str | Path | None = None,
    backend: Backend | None = None,
    py_files: Iterable[str | os.PathLike[str]] = (),
) -> SparkSession:
    """Start Spark, or return the running session, with Holdfast's defaults.

    On a cluster the executors get this package from the driver, and new state gets as many partitions as
    tasks run at once.

    Args:
        name: The application's name.
        master: The master; by default that of the user's settings, or `local[*]`.
        conf: Spark settings; they take precedence over Holdfast's defaults.
        extras: Extra jars: `delta`, `kafka`.
        home: The state home; see `Settings`.
        backend: The state backend; by default that of `conf`, or RocksDB.
        py_files: Modules, archives and directories of code that tasks import.

    Raises:
        NotFound: Java, pyspark, a path of `py_files` or a package of `spark.jars.packages` is missing.
        Unavailable: Packages could not be fetched.
        Invalid: A setting is wrong.
        Unsupported: This Java or Spark version is not supported, or the extra `spark` is not installed.

    Example:
        conf = {"spark.sql.shuffle.partitions": "2"}
        spark = hf.session("visits", master="local[2]", conf=conf, backend=hf.RocksDB(memory="1 GB"))
        assert spark.range(3).count() == 3
    """
    require_package("pyspark")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    stored = {} if backend is None else backend.spark_conf()
    for key, value in {**stored, **(conf or {})}.items():
        builder = builder.config(key, value)
    place = _settings(home).home
    code = code_archives(py_files, Path.cwd(), place)
    builder, given = _configured(builder, extras, home)
    partitioned = SHUFFLE_PARTITIONS_KEY in given or _partitioned(running_session())
    with no_jvm_left(), unresolved_told(str(builder._options.get(PACKAGES_KEY, given.get(PACKAGES_KEY, "")))):
        spark = builder.getOrCreate()
    check_state_jar(spark)
    fit(spark, given=partitioned)
    send_package(spark, place)
    send_code(spark, code)
    # Not with the others: those are arguments of the JVM's command, which everybody on the machine can read.
    for key, value in (backend.secrets() if isinstance(backend, ExternalStore) else {}).items():
        spark.conf.set(key, value)
    return spark


def running_session() -> SparkSession | None:
    """Return the running session of this process, if any."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def configure(
    builder: SparkSession.Builder, *, extras: Iterable[Extra] = (), home: str | Path | None = None
) -> SparkSession.Builder:
    """Add Holdfast's defaults to your own builder; your settings, on it or elsewhere, take precedence.

    The call sets JAVA_HOME and PYSPARK_PYTHON in this process's environment, from which Spark's launcher and
    workers read them. Call it before the first session of the process: Java and jars cannot be changed in a
    running JVM.

    Args:
        builder: The builder of a classic session.
        extras: Extra jars: `delta`, `kafka`.
        home: The state home.

    Raises:
        NotFound: Java is missing.
        Invalid: A setting is wrong.
        Unsupported: The builder is one of Spark Connect, or this Java or Spark version is not supported.

    Example:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("visits").config("spark.sql.shuffle.partitions", "2")
        spark = hf.configure(builder).getOrCreate()
        assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    """
    return _configured(builder, extras, home)[0]


def _configured(
    builder: SparkSession.Builder, extras: Iterable[Extra], home: str | Path | None
) -> tuple[SparkSession.Builder, dict[str, str]]:
    """Return the configured builder, and all settings of the user, on it or elsewhere."""
    # The builder offers no way to read what was set on it.
    own: dict[str, str] = dict(builder._options)
    given = {key: value for key, (value, _) in given_settings(os.environ).items()}
    given |= submitted_settings(os.environ)
    if "spark.remote" in {**given, **own} or "SPARK_REMOTE" in os.environ:
        raise Unsupported(
            "Holdfast cannot configure a Spark Connect session",
            code="HF-E7053",
            where="spark.remote",
            hint="configure the server, and create the session with SparkSession.builder.remote(…); jobs and"
            " hf.guard need a classic session",
        )
    settings = _settings(home)
    prepare_environment(settings)
    master = own.get("spark.master") or given.get("spark.master") or os.environ.get("MASTER") or LOCAL
    chosen = {"spark.master": master, **own}
    brought = {**extra_settings(extras, spark_version()), **external_settings({**given, **chosen})}
    for key, value in brought.items():
        if key in APPENDED:
            chosen[key] = joined(chosen.get(key, given.get(key, "")), value)
        elif key not in given:
            chosen.setdefault(key, value)
    shipped = needs_code(master)
    workers = chosen.get(WORKERS_KEY, given.get(WORKERS_KEY, os.environ["PYSPARK_PYTHON"]))
    # Spark takes the setting from `spark-submit` alone; a Python program has to say it in its environment.
    os.environ["PYSPARK_PYTHON"] = workers
    for default in defaults_for(master, {**given, **chosen}):
        if default.key == DAEMON_KEY and workers != sys.executable and not shipped:
            continue
        if default.key not in given and not default.in_environment:
            chosen.setdefault(default.key, default.value)
    if shipped:
        archive = package_archive(settings.home)
        chosen[FILES_KEY] = joined(chosen.get(FILES_KEY, given.get(FILES_KEY, "")), str(archive))
        chosen[WORKER_PATH_KEY] = worker_path({**given, **chosen}.get(WORKER_PATH_KEY), archive)
        for key, value in container_defaults(master, {**given, **chosen}).items():
            chosen.setdefault(key, value)
    sockets = socket_folder() if master.startswith("local") else None
    if sockets is not None and SOCKET_FOLDER_KEY not in given:
        chosen.setdefault(SOCKET_FOLDER_KEY, str(sockets))
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder, {**given, **own}


def _partitioned(running: SparkSession | None) -> bool:
    """Return True if the partitions of a running session were set; Spark's default does not count."""
    if running is None:
        return False
    session: Any = running
    return bool(session._jsparkSession.sessionState().conf().contains(SHUFFLE_PARTITIONS_KEY))


def prepare_environment(settings: Settings) -> None:
    """Set a supported Java for Spark's launcher, and this interpreter for its workers."""
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = str(java_home_for_spark(java, settings.home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def defaults_for(master: str, conf: Mapping[str, str] | None = None) -> tuple[Default, ...]:
    """Return Holdfast's defaults for a master.

    The number of shuffle partitions follows from the cores for tasks: the machine's own, or those that the
    settings request from a cluster. For a standalone cluster it is known only once the session exists.

    Args:
        master: The master.
        conf: The session's settings so far.
    """
    manager = manager_of(master)
    slots = available_cores() if manager is Manager.LOCAL else asked_cores(master, conf or {}).slots
    left_out = set() if slots else {SHUFFLE_PARTITIONS_KEY}
    if manager is Manager.YARN:
        left_out.add(UNIX_SOCKET_KEY)
    every = DEFAULTS + machine_defaults(cores=slots or 1, python=sys.executable)
    return tuple(default for default in every if default.key not in left_out)


def available_cores() -> int:
    """Return the number of cores that this process may use, possibly fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _settings(home: str | Path | None) -> Settings:
    return Settings.here(home)


def submitted_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the `spark-submit` that has started this program; empty otherwise.

    They are in its JVM, which this process connects to. Settings of a builder take precedence.
    """
    if GATEWAY_VARIABLE not in environ:
        return {}
    from pyspark import SparkConf, SparkContext

    ensure: Any = SparkContext._ensure_initialized
    ensure()
    return {str(key): str(value) for key, value in SparkConf().getAll()}
