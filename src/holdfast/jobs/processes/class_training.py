"""The process that makes the archive of Spark's classes: `python -m holdfast.jobs.processes.class_training`.

It runs small queries of the usual kinds in a session of its own. The JVM writes the classes that they needed
when it ends. Whatever fails leaves no archive; nothing depends on one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import now_ms, steady_s
from holdfast.engine.session.class_archive import SWITCH, ClassArchive, archive_of
from holdfast.engine.session.java import find_java
from holdfast.errors import HoldfastError
from holdfast.jobs.state_home import StateHome
from holdfast.storage.file_lock import FileLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMAND: Final = (sys.executable, "-m", "holdfast.jobs.processes.class_training")
_ROWS: Final = 400
# A job that is over sooner does not pay for the archive.
_AFTER_S: Final = 60.0


def missing(home: StateHome) -> ClassArchive | None:
    """Return the archive to make; None if it exists, or if none can be used here."""
    try:
        archive = archive_of(find_java(os.environ), home.path, os.environ)
    except HoldfastError:
        return None
    return None if archive is None or archive.exists else archive


class ClassTraining:
    """The archive's process beside a job that has run for a while; at most one in a supervisor's life.

    Args:
        home: The state home.
        now: A monotonic clock.
    """

    def __init__(self, home: StateHome, now: Callable[[], float] = steady_s) -> None:
        self._home = home
        self._now = now
        self._due_s: float | None = None
        self._asked = False
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start the process once the job has run long enough; called while a driver commits batches."""
        if self._due_s is None:
            self._due_s = self._now() + _AFTER_S
        if self._asked or self._now() < self._due_s:
            return
        self._asked = True
        if missing(self._home) is None:
            return
        with suppress(OSError):  # no process is left; nothing depends on it
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                (*COMMAND, str(self._home.path)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """End the process if it still runs; a later job makes the archive."""
        if self._process is not None:
            if self._process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def make(home: StateHome) -> None:
    """Make the archive, unless another process does.

    Raises:
        HoldfastError: The session did not start.
        OSError: The archive cannot be written.
        subprocess.CalledProcessError: Java failed.
    """
    archive = missing(home)
    if archive is None:
        return
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(archive.path.with_suffix(".lock"))
    if not lock.take():
        return
    fresh = archive.path.with_suffix(f".{os.getpid()}")
    try:
        archive.make_base()
        with tempfile.TemporaryDirectory(prefix="holdfast-classes-") as folder:
            _train(archive.training_options(fresh), Path(folder))
        if fresh.is_file():
            fresh.replace(archive.path)
            archive.remove_unused(now_ms() / 1000)
    finally:
        fresh.unlink(missing_ok=True)
        lock.release()


def _train(options: str, folder: Path) -> None:
    from holdfast.engine.session.java import end_jvm
    from holdfast.engine.session.session import USER_OPTIONS_KEY, session

    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        USER_OPTIONS_KEY: f"-XX:+UseSerialGC {options}",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session("classes", master="local[2]", home=folder / "home", conf=conf)
    _run_queries(spark, folder)
    spark.stop()
    end_jvm()  # it writes the archive last


def _run_queries(spark: SparkSession, folder: Path) -> None:
    from holdfast.stream.keyed.keyed_stream import keyed
    from holdfast.stream.keyed.state_declarations import value
    from holdfast.stream.sinks.sinks import sink
    from holdfast.worker.declarations.state_descriptors import Keyed

    class Visits(Keyed):
        visits = value(int, default=0)

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:  # noqa: ARG002 - a handler's signature
            state.visits += 1
            return {"key": event.key, "visits": state.visits}

    numbers = spark.range(_ROWS).selectExpr("id % 50 AS key", "timestamp_seconds(id) AS ts")
    numbers.repartition(2).write.parquet(str(folder / "in"))

    def events() -> DataFrame:
        read = spark.readStream.schema("key long, ts timestamp").option("maxFilesPerTrigger", 1)
        return read.parquet(str(folder / "in")).withWatermark("ts", "1 minute")

    counted = events().groupBy("key").count().writeStream.outputMode("update").foreachBatch(_collected)
    counted = counted.option("checkpointLocation", str(folder / "counted")).trigger(availableNow=True)
    counted.start().awaitTermination()
    visits = keyed(events(), by="key").process(Visits(), output="key long, visits int", name="visits")
    written = sink(visits).parquet(folder / "visits").writer()
    written = written.option("checkpointLocation", str(folder / "keyed")).trigger(availableNow=True)
    written.start().awaitTermination()


def _collected(batch: DataFrame, _batch_id: int) -> None:
    batch.collect()


def main() -> int:
    """Make the archive for this environment; the argument is the state home."""
    os.nice(19)
    os.environ.pop(SWITCH, None)
    try:
        make(StateHome(Path(sys.argv[1])))
    except (HoldfastError, OSError, subprocess.CalledProcessError) as error:
        print(f"no archive of Spark's classes: {error}", file=sys.stderr)  # noqa: T201 - it has no other reader
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
