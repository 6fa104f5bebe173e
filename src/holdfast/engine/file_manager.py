"""The file manager with which Spark writes a query's checkpoint.

Spark's own manager for local files starts a process (`chmod`, `readlink`) for nearly every operation on a
file, more than fifty in each batch. Its manager for object stores starts a third of them, but it calls
`FileSystem.rename`. The jars of PySpark register Hive's `ProxyLocalFileSystem` for local files, whose
`rename` keeps an existing file and returns false. Spark treats that as success, and a repeated batch would
keep the state of its first run. So the query also gets a different file system for local files, and the
manager is used only after a test in which it has replaced a file.

That file system is Holdfast's, which starts no process at all: a batch of 100 events of a SQL aggregate took
126 ms instead of 176. It flushes the logs of a query, so that they survive a power failure. It is in the
package's jar, which a local session's JVM can load at any time. On a cluster the executors may not have the
jar, so there it is Hadoop's own.

On S3 a rename is a copy and a delete. The manager of Spark's package spark-hadoop-cloud uploads each file
under its final name, and aborts the upload if the file must not appear.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.checks import SCHEME
from holdfast.config.cluster_settings import Manager, manager_of
from holdfast.config.spark_defaults import (
    ABORTABLE_MANAGER,
    FILE_MANAGER_KEY,
    HADOOP_LOCAL_FILES,
    HOLDFAST_LOCAL_FILES,
    LOCAL_FILE_MANAGER,
    LOCAL_FILE_SYSTEM_KEY,
    LOCAL_FILES,
)
from holdfast.engine.checkpoint_files import qualified
from holdfast.engine.connect import is_connect
from holdfast.engine.session.jars import S3A, state_jar
from holdfast.errors import Unsupported
from holdfast.storage.remote import hadoop_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG: Final = logging.getLogger("holdfast.engine")
_FIRST, _SECOND = b"1", b"22"
_SOURCES_S, _LOOK_S = 10.0, 0.005
# The settings of a session are changed during a start, so only one start runs at a time.
_ONE_START: Final = Lock()


@contextmanager
def choose_file_manager(spark: SparkSession, checkpoint: str) -> Iterator[bool]:
    """Set the file manager that suits a checkpoint, for a query that starts within the block.

    The settings are changed only until the query has created its sources, whose logs are written with them,
    and a query keeps the settings with which it started. A manager set by the user is not changed.

    Yields:
        False on S3 if Spark renames files, which is not atomic there.

    Raises:
        Unsupported: The file manager set by the user does not replace existing files.
        Unavailable: Spark cannot reach the checkpoint's file system.
    """
    on_s3 = checkpoint.startswith(S3A)
    if is_connect(spark):
        yield not on_s3 or spark.conf.get(FILE_MANAGER_KEY, None) == ABORTABLE_MANAGER
        return
    with _ONE_START:
        chosen = spark.conf.get(FILE_MANAGER_KEY, None)
        if on_s3:
            changes = (
                {}
                if chosen or not _is_loadable(spark, ABORTABLE_MANAGER)
                else {FILE_MANAGER_KEY: ABORTABLE_MANAGER}
            )
            with changed(spark, changes):
                yield (chosen or changes.get(FILE_MANAGER_KEY)) == ABORTABLE_MANAGER
            return
        if not _is_local(spark, checkpoint):
            yield True
            return
        if chosen is not None and _try_manager(spark) is False:
            raise _keeps_old_files(spark, chosen, checkpoint)
        changes = {} if chosen is not None else local_settings(spark)
        with changed(spark, changes):
            yield True
            _await_sources(spark)


def _await_sources(spark: SparkSession) -> None:
    """Wait until no query of a session is creating its sources, which Spark does after `start` returns."""
    last = time.monotonic() + _SOURCES_S
    while any(query.status["message"].startswith("Initializing") for query in spark.streams.active):
        if time.monotonic() > last:
            _LOG.info("a query has created no sources within %s seconds", _SOURCES_S)
            return
        time.sleep(_LOOK_S)


def replaces_files(spark: SparkSession) -> bool:
    """Return whether the session's file manager replaces an existing local file, by writing one twice.

    Spark does the same when it repeats a batch. The test writes to a temporary directory and takes about ten
    milliseconds.
    """
    jvm: Any = spark._jvm
    with tempfile.TemporaryDirectory(prefix="holdfast-files-", ignore_cleanup_errors=True) as name:
        folder, file = Path(name).resolve(), "trial"
        path = jvm.org.apache.hadoop.fs.Path(f"file:{folder}/{file}")
        managers: Any = reduce(getattr, _class_name(spark, "CheckpointFileManager").split("."), jvm)
        manager = managers.create(path.getParent(), _hadoop(spark))
        for content in (_FIRST, _SECOND):
            stream = manager.createAtomic(path, True)
            stream.write(bytearray(content))
            stream.close()
        left = [entry.name for entry in folder.iterdir() if entry.name.endswith(".tmp")]
        return (folder / file).read_bytes() == _SECOND and not left


def _is_local(spark: SparkSession, checkpoint: str) -> bool:
    address = hadoop_address(checkpoint)
    if SCHEME.match(address) is None:
        address = qualified(spark, address)
    return address.startswith("file:")


def _try_manager(spark: SparkSession) -> bool | None:
    """Return whether the session's file manager replaces a file, or None if the test fails."""
    try:
        return replaces_files(spark)
    except Exception:
        _LOG.warning("cannot test the file manager for local checkpoints", exc_info=True)
        return None


def local_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings of the fast manager for local files, or no settings if it may keep old files.

    A file system set by the user is not changed.
    """
    settings = {**LOCAL_FILES, FILE_MANAGER_KEY: _class_name(spark, LOCAL_FILE_MANAGER.rpartition(".")[2])}
    if _hadoop(spark).get(LOCAL_FILE_SYSTEM_KEY) is not None:
        del settings[LOCAL_FILE_SYSTEM_KEY]
    elif manager_of(str(spark.sparkContext.master)) is not Manager.LOCAL or not _load_file_system(spark):
        settings[LOCAL_FILE_SYSTEM_KEY] = HADOOP_LOCAL_FILES
    with changed(spark, settings):
        if _try_manager(spark):
            return settings
    _LOG.warning("%s may not replace files here; using Spark's own file manager", LOCAL_FILE_MANAGER)
    return {}


@contextmanager
def changed(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of a session within the block."""
    # The manager is set last and unset first, so that a query that is started elsewhere in this session at
    # the same time never has the manager without the file system.
    before: list[tuple[str, str | None]] = [(key, spark.conf.get(key, None)) for key in settings]
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, former in reversed(before):
            if former is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, former)


def _hadoop(spark: SparkSession) -> Any:
    """Return the Hadoop configuration for a query that starts now."""
    session: Any = spark
    return session._jsparkSession.sessionState().newHadoopConf()


def _load_file_system(spark: SparkSession) -> bool:
    """Return whether the session's JVM has Holdfast's file system; the package's jar is added if needed."""
    if _is_loadable(spark, HOLDFAST_LOCAL_FILES):
        return True
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(
            jvm.java.io.File(str(state_jar())).toURI().toURL()
        )
    except Exception:
        # The loader of a JVM that was not started by spark-submit takes no jars.
        _LOG.info(
            "Spark's JVM does not load %s; using Hadoop's local file system", state_jar(), exc_info=True
        )
        return False
    return _is_loadable(spark, HOLDFAST_LOCAL_FILES)


def _class_name(spark: SparkSession, name: str) -> str:
    """Return the full name of a class of Spark's file managers; Spark 4.1 has moved their package."""
    moved = LOCAL_FILE_MANAGER.rpartition(".")[0]
    return f"{moved if _is_loadable(spark, LOCAL_FILE_MANAGER) else moved.rpartition('.')[0]}.{name}"


def _is_loadable(spark: SparkSession, name: str) -> bool:
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Exception:  # Py4J's exception for ClassNotFoundException
        return False
    return True


def _keeps_old_files(spark: SparkSession, manager: str, checkpoint: str) -> Unsupported:
    system = _hadoop(spark).get(LOCAL_FILE_SYSTEM_KEY) or "not set"
    return Unsupported(
        "the configured file manager does not replace existing files, so a repeated batch would keep the"
        " state of its first run",
        code="HF-E7043",
        where=checkpoint,
        found=f"{FILE_MANAGER_KEY} = {manager}, {LOCAL_FILE_SYSTEM_KEY} {system}",
        hint=f"remove {FILE_MANAGER_KEY} from your settings; Holdfast sets it for each query",
    )
