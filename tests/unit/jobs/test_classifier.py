"""Whose a failure is, told from texts as Spark 4.2 writes them; tests/spark makes such failures for real."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.engine.queries.kafka import ends_of
from holdfast.errors import Corrupt, NotFound
from holdfast.formats.logs.batch_logs import parse_offsets
from holdfast.formats.manifest import Manifest
from holdfast.jobs import failures
from holdfast.jobs.failures import FailureClass, cause_of, cause_of_module, cause_of_own
from holdfast.storage.memory import MemoryStorage
from holdfast.stream.sinks.database import Database
from holdfast.stream.sinks.kafka import KafkaTopic
from holdfast.stream.sinks.ledger import Ledger
from holdfast.stream.sinks.mysql import MySQL
from holdfast.stream.sinks.postgresql import PostgreSQL
from holdfast.stream.sinks.put_back import require_delta_in_step
from holdfast.stream.sinks.query_sink import Sink
from holdfast.stream.sinks.record_repeats import RepeatFilter
from holdfast.stream.sinks.sinks import SinkBuilder
from holdfast.stream.sinks.sql_table import SqlTable
from holdfast.stream.sinks.sqlite import SQLite

UDF = """\
org.apache.spark.sql.streaming.StreamingQueryException: [PYTHON_EXCEPTION] An exception was thrown
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/job.py", line 31, in share
    return 1 // int(value)
ZeroDivisionError: integer division or modulo by zero
SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:665)
\tat org.apache.spark.sql.execution.streaming.state.StateStoreRDD.compute(StateStoreRDD.scala:80)
"""
WRITE = """\
org.apache.spark.sql.streaming.StreamingQueryException: An exception was raised by the Python Proxy
Caused by: py4j.Py4JException: Return Message: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/app/job.py", line 36, in write
    frame.write.format("parquet").save("/data/out")
  File "/venv/lib/python3.11/site-packages/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o195.save.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/data
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirs(RawLocalFileSystem.java:873)
\tat org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter.setupJob(FileOutputCommitter.java:361)
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.write(FileFormatWriter.scala:156)
"""
LOG = """\
org.apache.spark.sql.streaming.StreamingQueryException: Failed to read log file file:/c/offsets/0
Caused by: java.lang.IllegalStateException: Incomplete log file
\tat org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog.deserialize(OffsetSeqLog.scala:1)
"""
GONE = """\
org.apache.spark.sql.streaming.StreamingQueryException: Job aborted
Caused by: java.io.FileNotFoundException: File file:/in/0.json does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.getFileStatus(RawLocalFileSystem.java:1)
\tat org.apache.spark.sql.execution.datasources.FileScanRDD$$anon$1.hasNext(FileScanRDD.scala:1)
"""
STATE = "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error"
HEAP = "Caused by: java.lang.OutOfMemoryError: Java heap space\n\tat scala.reflect.ManifestFactory.newArray()"
DISK = "Caused by: java.io.IOException: No space left on device\n\tat org.rocksdb.RocksDB.open(X.java:1)"
QUERY = "pyspark.errors.AnalysisException: [UNRESOLVED_COLUMN] no such column. SQLSTATE: 42703"
SINK_LOG = """\
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query terminated
Caused by: org.apache.spark.SparkFileNotFoundException: [BATCH_METADATA_NOT_FOUND] Unable to find batch \
file:/data/out/a/_spark_metadata/10. SQLSTATE: 42K03
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.batchMetadataFileNotFoundError(X.scala:1)
"""
SOURCE_LOG = SINK_LOG.replace("/data/out/a/_spark_metadata/10", "/data/ck/sources/0/6")
PATH = "pyspark.errors.AnalysisException: [PATH_NOT_FOUND] Path does not exist: /in. SQLSTATE: 42K03"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (UDF, FailureClass.USER_CODE),
        (QUERY, FailureClass.USER_CODE),
        (WRITE, FailureClass.SINK),
        (GONE, FailureClass.SOURCE),
        (PATH, FailureClass.SOURCE),
        (STATE, FailureClass.STATE),
        (LOG, FailureClass.STATE),
        (SINK_LOG, FailureClass.SINK),
        (SOURCE_LOG, FailureClass.STATE),
        (HEAP, FailureClass.RESOURCES),
        (DISK, FailureClass.RESOURCES),
        ("something else", FailureClass.UNKNOWN),
    ],
)
def test_whose_it_is(text: str, cause: FailureClass) -> None:
    assert cause_of(text) is cause


def test_what_java_says_behind_a_call_from_python_is_the_line() -> None:
    found = failures.from_text(WRITE, label="query")
    assert str(found) == (
        "ParentNotDirectoryException: Parent path is not a directory: file:/data,"
        ' at /app/job.py:36: frame.write.format("parquet").save("/data/out")'
    )


def test_a_gap_in_the_log_of_a_table_is_named_with_what_fills_it() -> None:
    found = failures.from_text(SINK_LOG, label="query", query="a")
    assert str(found) == (
        "query a: BATCH_METADATA_NOT_FOUND: Unable to find batch file:/data/out/a/_spark_metadata/10."
        " SQLSTATE: 42K03 (hint: stop the query, write the line v1 to /data/out/a/_spark_metadata/10,"
        " which is missing from the sink's log, and restart the query; repeat this for each batch reported)"
    )
    assert failures.is_permanent(found)
    other = failures.from_text(SOURCE_LOG, label="query")
    assert "holdfast checkpoint verify" in other.line
    assert not failures.is_permanent(other)  # a fallback puts an older checkpoint in place
    assert not failures.is_permanent(failures.from_text(WRITE, label="query"))
    assert not failures.is_permanent(failures.killed(9, None))


def test_a_driver_that_was_killed_had_not_enough_of_something() -> None:
    assert failures.killed(9, None).cause == failures.killed(None, 52).cause == "resources"


def test_an_error_of_a_ledger_is_the_sinks(tmp_path: object) -> None:
    with pytest.raises(NotFound) as caught:
        Ledger.sqlite(f"{tmp_path}/no/such/folder/ledger.db").claim("sink", "me")
    assert failures.from_exception(caught.value, "", label="start").cause == "sink"


def test_an_error_that_says_nothing_of_its_place_is_unknown() -> None:
    assert failures.from_exception(Corrupt("something"), "", label="start").cause == "unknown"


# Of every room and module that decides: something in it, by which it is found wherever it lies.
DECIDING: tuple[tuple[Any, FailureClass], ...] = (
    (Ledger, FailureClass.SINK),
    (Database, FailureClass.SINK),
    (SQLite, FailureClass.SINK),
    (PostgreSQL, FailureClass.SINK),
    (MySQL, FailureClass.SINK),
    (RepeatFilter, FailureClass.SINK),
    (SqlTable, FailureClass.SINK),
    (Sink, FailureClass.SINK),
    (SinkBuilder, FailureClass.SINK),
    (KafkaTopic, FailureClass.SINK),
    (ends_of, FailureClass.SINK),
    (require_delta_in_step, FailureClass.SINK),
    (checkpoints.read, FailureClass.STATE),
    (checkpoints.verify, FailureClass.STATE),
    (savepoints.take, FailureClass.STATE),
    (savepoints.restore, FailureClass.STATE),
    (savepoints.verify, FailureClass.STATE),
    (Manifest, FailureClass.STATE),
    (parse_offsets, FailureClass.STATE),
    (hf.session, FailureClass.RESOURCES),
)


@pytest.mark.parametrize(("thing", "cause"), DECIDING, ids=lambda value: getattr(value, "__name__", None))
def test_who_moves_a_module_says_so_here(thing: Any, cause: FailureClass) -> None:
    assert cause_of_module(thing.__module__) is cause


def test_every_place_that_decides_is_there_and_decides_for_something() -> None:
    homes = {thing.__module__ for thing, _ in DECIDING}
    for place, _ in failures._OURS:
        assert importlib.util.find_spec(place) is not None, place
    decided = [
        place for place, _ in failures._OURS if any(f"{home}.".startswith(f"{place}.") for home in homes)
    ]
    assert decided == [place for place, _ in failures._OURS]


@pytest.mark.parametrize(
    ("calls", "cause"),
    [
        (lambda: checkpoints.read("/no/such/checkpoint"), FailureClass.STATE),
        (lambda: savepoints.show("/no/such/savepoints/one"), FailureClass.STATE),
        (lambda: parse_offsets(b"nonsense", "offsets/0"), FailureClass.STATE),
        (lambda: MemoryStorage({}).read("nothing"), FailureClass.UNKNOWN),
    ],
)
def test_an_error_of_ours_is_told_by_the_room_it_comes_through(
    calls: Callable[[], object], cause: FailureClass
) -> None:
    with pytest.raises(hf.HoldfastError) as caught:
        calls()
    assert cause_of_own(caught.value.__traceback__) is cause


def in_file(file: str) -> str:
    return (
        "py4j.Py4JException: Return Message: Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy\n'
        f'  File "{file}", line 7, in somewhere\n'
        "OperationalError: no such table"
    )


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        (inspect.getfile(Ledger), FailureClass.SINK),
        (inspect.getfile(SqlTable), FailureClass.SINK),
        (inspect.getfile(savepoints.take), FailureClass.USER_CODE),
        # A person's folders and files may bear any name.
        ("/app/stream/ledger.py", FailureClass.USER_CODE),
        ("/home/ann/pyspark-jobs/orders.py", FailureClass.USER_CODE),
        ("/home/ann/py4j/orders.py", FailureClass.USER_CODE),
        ("/home/ann/holdfast/stream.py", FailureClass.USER_CODE),
        # PySpark as it is unpacked, and as workers get it: what is left is not known.
        ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", FailureClass.UNKNOWN),
        ("/opt/spark/python/pyspark/sql/utils.py", FailureClass.UNKNOWN),
        ("/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py", FailureClass.UNKNOWN),
    ],
)
def test_a_python_error_is_told_by_the_package_it_was_raised_in(file: str, cause: FailureClass) -> None:
    assert cause_of(in_file(file)) is cause


def test_a_persons_own_folders_decide_nothing(tmp_path: Path) -> None:
    """A job that lies in `checkpoints/` raises as one anywhere else."""
    place = tmp_path / "checkpoints" / "job.py"
    source = "def fail(error):\n    raise error\n"
    code = compile(source, str(place), "exec")
    module: dict[str, Any] = {"__name__": "holdfast_job_job"}
    exec(code, module)  # runs two lines that stand above
    with pytest.raises(Corrupt) as caught:
        module["fail"](Corrupt("an error of a person's"))
    assert cause_of_own(caught.value.__traceback__) is FailureClass.UNKNOWN
