"""The examples of the Python reference: where they run, and what they find there."""

from __future__ import annotations

import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import python_catalogue

import holdfast as hf
from golden import files_on_disk, golden_files, golden_on_disk, kafka_files
from holdfast.clock import now_ms
from holdfast.jobs.registry.operation_log import Operations
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock, state_home
from holdfast.model import JobState, QueryStarted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT = "4.2/aggregate-format2"
COLUMNS = "customer string, drink string, amount double, ts timestamp"
_NEEDS_SPARK = re.compile(r"\b(spark|events)\b")


def examples(*, with_spark: bool) -> list[Any]:
    """The names whose example needs Spark, or the others; also those without an example."""
    return [
        public
        for _, public in python_catalogue.public_names()
        if bool(_NEEDS_SPARK.search(public.example or "")) is with_spark
    ]


@contextmanager
def example_folder(folder: Path) -> Iterator[None]:
    """The current directory with checkpoints, a pipeline's storage and the savepoint `savepoints@daily`.

    The query of `checkpoints/visits` reads files, that of `checkpoints/orders` reads Kafka.
    """
    golden_on_disk(CHECKPOINT, folder / "checkpoints" / "visits")
    files_on_disk(kafka_files(CHECKPOINT), folder / "checkpoints" / "orders")
    files_on_disk(golden_files("pipeline-4.2"), folder / "pipeline-storage")
    before = Path.cwd()
    os.chdir(folder)
    try:
        hf.savepoints.take("checkpoints/visits", "savepoints", label="daily")
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def run(example: str, **names: Any) -> None:
    """Run an example in the current directory, with the running job `visits` if it is about jobs."""
    code = compile(example, "example", "exec")
    with _running_job(Path.cwd()) if "hf.jobs." in example else nullcontext():
        exec(code, {"__name__": "example", "hf": hf, **names})


@contextmanager
def _running_job(folder: Path) -> Iterator[None]:
    """Run the job `visits` without Spark: its records, and a supervisor that answers requests."""
    home = StateHome(state_home(folder / ".holdfast"))
    checkpoint = (folder / "checkpoints" / "visits").as_uri()
    registry = Registry(home.registry)
    registry.start_job(JobRecord.begun("visits", "visits.py", checkpoint, "retain", now_ms(), None))
    attempt = registry.start_attempt("visits", os.getpid(), now_ms(), recovers=False)
    query = QueryStarted("visits", str(uuid.uuid4()), str(uuid.uuid4()), checkpoint, "at least once")
    registry.queries_started("visits", attempt, [query], now_ms())
    lock = SupervisorLock(home, "visits")
    assert lock.take()
    over = threading.Event()

    def supervise() -> None:
        while not over.wait(0.05):
            for verb in registry.take_requests("visits", now_ms()):
                if verb == "restart":
                    _restart(home)
                    continue
                ended = JobState.FINISHED if verb == "stop" else JobState.CANCELED
                registry.set_state("visits", ended, now_ms())
                over.set()

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        yield
    finally:
        over.set()
        supervisor.join()
        lock.release()


def _restart(home: StateHome) -> None:
    operations = Operations(home)
    for waiting in operations.waiting("restart", "visits"):
        begun = operations.begin(waiting.operation_id, "supervisor visits", now_ms())
        assert begun is not None
        result = {"job": "visits", "warm_ms": 12_000, "took_ms": 900}
        operations.complete(begun, result, now_ms())


def events(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the coffee shop, from files."""
    folder.mkdir(parents=True)
    row = '{"customer": "ann", "drink": "tea", "amount": 2.6, "ts": "2026-03-05T09:00:00Z"}'
    (folder / "0.json").write_text(f"{row}\n")
    stream = spark.readStream.schema(COLUMNS).json(str(folder))
    return stream.withWatermark("ts", "10 minutes")


@contextmanager
def settings_restored(spark: SparkSession) -> Iterator[None]:
    """Restore the settings of the shared session, which the examples of sessions change."""
    conf = spark.conf._jconf
    before = dict(conf.getAllAsJava())
    try:
        yield
    finally:
        after = dict(conf.getAllAsJava())
        for key in after.keys() - before.keys():
            conf.unset(key)
        for key, value in before.items():
            if after.get(key) != value:
                conf.set(key, value)
