"""The creation and configuration of a SparkSession with Holdfast's defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.backend import Backend, ExternalStore
from holdfast.config.cluster_settings import Manager, asked_cores, container_defaults, manager_of
from holdfast.config.installed_spark import GATEWAY_VARIABLE, given_settings, spark_home
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
from holdfast.engine.session.class_archive import jvm_options
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
from holdfast.engine.session.java import JavaRuntime, find_java, java_home_for_spark, no_jvm_left
from holdfast.engine.session.workers import socket_folder
from holdfast.errors import Invalid, Unsupported
from holdfast.extras import require_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCAL = "local[*]"
WORKERS_KEY = "spark.pyspark.python"
FILES_KEY = "spark.files"
# Options of the driver's JVM: those of whoever sets Spark up, and after them those of the user.
JVM_OPTIONS_KEY = "spark.driver.defaultJavaOptions"
USER_OPTIONS_KEY = "spark.driver.extraJavaOptions"
# A directory, which does not change behavior, so it is not among the defaults.
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
    """Start Spark with Holdfast's defaults, or return the running session.

    On a cluster, the executors get this package from the driver, and new state gets one partition for each
    task that can run in parallel.

    Args:
        name: The name of the application.
        master: The address of the master; by default that of the user's settings, or `local[*]`.
        conf: The Spark settings, which take precedence over Holdfast's defaults.
        extras: The extras whose jars are added: `delta`, `kafka`.
        home: The state home; see `Settings`.
        backend: The state backend; by default the one in `conf`, or RocksDB.
        py_files: The modules, archives and directories with code that tasks import.

    Raises:
        NotFound: Java, pyspark, a path of `py_files` or a package of `spark.jars.packages` is missing.
        Unavailable: Packages could not be fetched, because a server did not answer.
        Invalid: A setting has an invalid value.
        Unsupported: The version of Java or Spark is not supported, or the extra `spark` is not installed.

    Example:
        conf = {"spark.sql.shuffle.partitions": "2"}
        spark = hf.session("visits", master="local[2]", conf=conf, backend=hf.RocksDB(memory="1 GB"))
        assert spark.range(3).count() == 3
    """
    require_package("pyspark")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master:
        _require_master(master)
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
    # Passed separately: the others are arguments of the JVM's command line, which all users of the machine
    # can read.
    for key, value in (backend.secrets() if isinstance(backend, ExternalStore) else {}).items():
        spark.conf.set(key, value)
    return spark


def _require_master(master: str) -> None:
    """Check that spark-submit, which starts the JVM, accepts a master; otherwise the JVM only ends.

    Raises:
        Invalid: Spark has no such master.
    """
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise Invalid(
            "Spark has no such master",
            code="HF-E2568",
            where="--master or master",
            found=master,
            expected="local[N], spark://HOST:PORT, yarn, or k8s://HOST:PORT",
            hint="correct the master",
        )


def scratch_of(spark: SparkSession) -> tuple[str, ...]:
    """Return the directories of temporary files that a local session's JVM deletes when it ends by itself.

    Empty on a cluster, or if this Spark does not report them. Those of blocks come first.
    """
    from py4j.protocol import Py4JError

    if manager_of(str(spark.sparkContext.master)) is not Manager.LOCAL:
        return ()
    jvm: Any = spark._jvm
    try:
        environment = jvm.org.apache.spark.SparkEnv.get()
        utils = getattr(getattr(jvm.org.apache.spark.util, "Utils$"), "MODULE$")
        folders = [
            *environment.blockManager().diskBlockManager().localDirs(),
            *utils.getOrCreateLocalRootDirs(environment.conf()),
        ]
    except (Py4JError, TypeError):
        return ()
    return tuple(str(folder) for folder in folders)


def running_session() -> SparkSession | None:
    """Return the running session of this process, or None."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def configure(
    builder: SparkSession.Builder, *, extras: Iterable[Extra] = (), home: str | Path | None = None
) -> SparkSession.Builder:
    """Add Holdfast's defaults to your own builder; your settings, on the builder or elsewhere, take
    precedence.

    The call sets JAVA_HOME and PYSPARK_PYTHON in this process's environment, from which Spark's launcher and
    workers read them. Call it before the first session of the process: Java and jars cannot be changed in a
    running JVM.

    Args:
        builder: The builder of a classic session.
        extras: The extras whose jars are added: `delta`, `kafka`.
        home: The state home; see `Settings`.

    Raises:
        NotFound: No Java installation was found.
        Invalid: A setting has an invalid value.
        Unsupported: The builder is for Spark Connect, or the version of Java or Spark is not supported.

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
    """Return the configured builder, and all settings of the user, on the builder or elsewhere."""
    # The builder has no public method that returns its settings.
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
    master = own.get("spark.master") or given.get("spark.master") or os.environ.get("MASTER") or LOCAL
    workers = (
        own.get(WORKERS_KEY) or given.get(WORKERS_KEY) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    java = prepare_environment(settings, own_pyspark(master, workers, os.environ))
    chosen = {"spark.master": master, **own}
    brought = {**extra_settings(extras, spark_version()), **external_settings({**given, **chosen})}
    for key, value in brought.items():
        if key in APPENDED:
            chosen[key] = joined(chosen.get(key, given.get(key, "")), value)
        elif key not in given:
            chosen.setdefault(key, value)
    shipped = needs_code(master)
    # Spark reads this setting only from `spark-submit`; a Python program must set it in its environment.
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
    chosen |= _jvm_settings(java, settings.home, {**given, **chosen})
    sockets = socket_folder() if master.startswith("local") else None
    if sockets is not None and SOCKET_FOLDER_KEY not in given:
        chosen.setdefault(SOCKET_FOLDER_KEY, str(sockets))
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder, {**given, **own}


def _jvm_settings(java: JavaRuntime, home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting with the options that Holdfast adds to the driver's JVM, if there are any."""
    before = settings.get(JVM_OPTIONS_KEY, "")
    added = jvm_options(java, home, f"{before} {settings.get(USER_OPTIONS_KEY, '')}", os.environ)
    return {JVM_OPTIONS_KEY: f"{before} {added}".strip()} if added else {}


def _partitioned(running: SparkSession | None) -> bool:
    """Return whether the partitions of a running session were set, as opposed to Spark's default."""
    if running is None:
        return False
    session: Any = running
    return bool(session._jsparkSession.sessionState().conf().contains(SHUFFLE_PARTITIONS_KEY))


def prepare_environment(settings: Settings, pyspark: Path | None = None) -> JavaRuntime:
    """Set a supported Java for Spark's launcher; return it.

    Args:
        settings: The settings.
        pyspark: The result of `own_pyspark`.
    """
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = str(java_home_for_spark(java, settings.home, pyspark))
    return java


def own_pyspark(master: str, workers: str, environ: Mapping[str, str]) -> Path | None:
    """Return the directory of the installed pyspark if this process, its JVM and its workers all use it."""
    installed = spark_home({})
    if installed is None or manager_of(master) is not Manager.LOCAL or workers != sys.executable:
        return None
    return installed if (installed / "jars").is_dir() and spark_home(environ) == installed else None


def defaults_for(master: str, conf: Mapping[str, str] | None = None) -> tuple[Default, ...]:
    """Return Holdfast's defaults for a master.

    The number of shuffle partitions follows from the cores for tasks: the machine's own, or those that the
    settings request from a cluster. For a standalone cluster the number is known only after the session has
    started.

    Args:
        master: The address of the master.
        conf: The settings of the session so far.
    """
    manager = manager_of(master)
    slots = available_cores() if manager is Manager.LOCAL else asked_cores(master, conf or {}).slots
    left_out = set() if slots else {SHUFFLE_PARTITIONS_KEY}
    if manager is Manager.YARN:
        left_out.add(UNIX_SOCKET_KEY)
    every = DEFAULTS + machine_defaults(cores=slots or 1, python=sys.executable)
    return tuple(default for default in every if default.key not in left_out)


def available_cores() -> int:
    """Return the number of cores that this process may use, which may be lower than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _settings(home: str | Path | None) -> Settings:
    return Settings.here(home)


def submitted_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the `spark-submit` that started this program; otherwise an empty dict.

    The settings are in its JVM, to which this process connects. Settings on a builder take precedence.
    """
    if GATEWAY_VARIABLE not in environ:
        return {}
    from pyspark import SparkConf, SparkContext

    ensure: Any = SparkContext._ensure_initialized
    ensure()
    return {str(key): str(value) for key, value in SparkConf().getAll()}
