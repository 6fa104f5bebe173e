"""Whose a failure is, told from texts as Spark 4.2 writes them; tests/spark makes such failures for real."""

from __future__ import annotations

import pytest

from holdfast.errors import Corrupt, NotFound
from holdfast.jobs import failure
from holdfast.jobs.causes import Cause, cause_of
from holdfast.stream.ledger import Ledger

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
PATH = "pyspark.errors.AnalysisException: [PATH_NOT_FOUND] Path does not exist: /in. SQLSTATE: 42K03"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (UDF, Cause.USER_CODE),
        (QUERY, Cause.USER_CODE),
        (WRITE, Cause.SINK),
        (GONE, Cause.SOURCE),
        (PATH, Cause.SOURCE),
        (STATE, Cause.STATE),
        (LOG, Cause.STATE),
        (HEAP, Cause.RESOURCES),
        (DISK, Cause.RESOURCES),
        ("something else", Cause.UNKNOWN),
    ],
)
def test_whose_it_is(text: str, cause: Cause) -> None:
    assert cause_of(text) is cause


def test_what_java_says_behind_a_call_from_python_is_the_line() -> None:
    found = failure.from_text(WRITE, label="query")
    assert str(found) == "ParentNotDirectoryException: Parent path is not a directory: file:/data"


def test_a_driver_that_was_killed_had_not_enough_of_something() -> None:
    assert failure.killed(9, None).cause == failure.killed(None, 52).cause == "resources"


def test_an_error_of_a_ledger_is_the_sinks(tmp_path: object) -> None:
    with pytest.raises(NotFound) as caught:
        Ledger.sqlite(f"{tmp_path}/no/such/folder/ledger.db").claim("sink", "me")
    assert failure.from_exception(caught.value, "", label="start").cause == "sink"


def test_an_error_that_says_nothing_of_its_place_is_unknown() -> None:
    assert failure.from_exception(Corrupt("something"), "", label="start").cause == "unknown"
