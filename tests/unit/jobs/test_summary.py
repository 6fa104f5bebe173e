from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.jobs import failures

FOREACH_BATCH = """\
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 0f1c4f7e] terminated
=== Streaming Query ===
\tat org.apache.spark.sql.execution.streaming.runtime.StreamExecution.run(StreamExecution.scala:1)
Caused by: py4j.Py4JException: Raised by the Python Proxy. Traceback (most recent call last):
  File "py4j/clientserver.py", line 642, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "job.py", line 7, in write
    1 / 0
ZeroDivisionError: division by zero

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\t... 32 more
"""

JAVA = """\
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query terminated
\tat a.b.C.d(C.scala:1)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 12.0 failed
\tat a.b.C.d(C.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""

CONDITION = """\
org.apache.spark.sql.streaming.StreamingQueryException: x
Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred
"""


def test_the_end_of_the_users_own_traceback_is_the_line() -> None:
    found = failures.from_text(FOREACH_BATCH, label="query", query="totals")
    assert str(found) == "query totals: ZeroDivisionError: division by zero, at job.py:7: 1 / 0"


def test_the_place_is_the_innermost_line_of_the_persons_own_code() -> None:
    library = Path(failures.__file__)
    text = (
        "Traceback (most recent call last):\n"
        f'  File "{library}", line 3, in start\n    build()\n'
        '  File "/home/ann/job.py", line 9, in orders\n    return read(path)\n           ^^^^^^^^^^\n'
        '  File "/home/ann/holdfast/reading.py", line 4, in read\n    return json.load(open(path))\n'
        '  File "/usr/lib/python3.11/json/__init__.py", line 293, in load\n    return loads(fp.read())\n'
        '  File "/venv/lib/python3.11/site-packages/pyspark/sql/x.py", line 2, in deco\n    raise it\n'
        '  File "<frozen codecs>", line 322, in decode\n'
        "ValueError: no JSON\n"
    )
    failure = failures.from_exception(ValueError("no JSON"), text, label=failures.START)
    assert failure.place == "/home/ann/holdfast/reading.py:4: return json.load(open(path))"
    assert str(failure) == f"ValueError: no JSON, at {failure.place}"


def test_an_error_that_no_line_of_the_person_has_part_in_has_no_place() -> None:
    assert failures.from_text(JAVA, label="query").place is None


@pytest.mark.parametrize(
    ("error", "step"),
    [
        ("org.apache.spark.SparkException: [KAFKA_DATA_LOSS.START_OFFSET_RESET] x", "holdfast offsets set"),
        (
            "java.lang.IllegalStateException: not available in Kafka any more;\n\tat a.kafka010.S.x(A:1)",
            "holdfast offsets set",
        ),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: x",
            "create the topic",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment",
            "the brokers run",
        ),
        ("io.delta.X: [DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change", "restart the job"),
    ],
)
def test_what_spark_gives_no_next_step_for_gets_one(error: str, step: str) -> None:
    text = f"org.apache.spark.sql.streaming.StreamingQueryException: x\nCaused by: {error}\n"
    failure = failures.from_text(text, label="query")
    assert step in failure.line.partition("(hint: ")[2]
    assert failure.cause == "source"


def test_an_error_of_a_producer_is_the_sinks() -> None:
    text = (
        "org.apache.spark.sql.streaming.StreamingQueryException: x\n"
        "Caused by: org.apache.kafka.common.errors.TimeoutException: Topic t not present in metadata\n"
        "\tat org.apache.kafka.clients.producer.KafkaProducer$FutureFailure.<init>(KafkaProducer.java:1)\n"
    )
    failure = failures.from_text(text, label="query")
    assert (failure.cause, "the brokers run" in failure.line) == ("sink", True)


def test_otherwise_it_is_the_last_cause() -> None:
    assert str(failures.from_text(JAVA, label="query")) == "IOException: No space left on device"


def test_a_condition_of_sparks_is_the_class() -> None:
    found = failures.from_text(CONDITION, label="query")
    assert found.error_class == "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED"


def test_what_differs_between_two_runs_is_not_in_the_fingerprint() -> None:
    one = "java.lang.Exception: run 0f1c4f7e-9f4f-4a8e-8a53-0c4a6b0d7e11 TID 12 in stage 3.0 at @1f2e3d"
    two = "java.lang.Exception: run 11111111-2222-3333-4444-555555555555 TID 99 in stage 4.1 at @abcdef"
    assert failures.from_text(one, label="q").fingerprint == failures.from_text(two, label="q").fingerprint
    three = "java.lang.Exception: another"
    assert failures.from_text(one, label="q").fingerprint != failures.from_text(three, label="q").fingerprint


def test_an_exception_that_was_caught() -> None:
    found = failures.from_exception(KeyError("amount"), "the traceback", label="start")
    assert (found.error_class, found.line, found.detail) == ("KeyError", "'amount'", "the traceback")


def test_an_error_of_our_own_keeps_its_fact() -> None:
    error = Unavailable("the ledger is locked", where="x", hint="wait")
    found = failures.from_exception(error, "", label="start")
    assert str(found) == "Unavailable: the ledger is locked (hint: wait)"


@pytest.mark.parametrize(("hint", "told"), [("wait", " (hint: wait)"), (None, "")])
def test_an_error_of_our_own_that_came_through_java_is_told_and_not_its_cause(
    hint: str | None, told: str
) -> None:
    error = Unavailable("the server cannot be reached", where="db:1", found="refused", hint=hint)
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.11/site-packages/driver.py", line 1, in connect\n    raise exc\n'
        "driver.err.OperationalError: (2003, 'refused')\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "py4j/clientserver.py", line 644, in _call_proxy\n'
        "    return_value = getattr(self.pool[obj_id], method)(*params)\n"
        f"holdfast.errors.Unavailable: {error}\n"
    )
    text = (
        FOREACH_BATCH.partition("Traceback")[0]
        + trace
        + "\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)"
    )
    found = failures.from_text(text, label="query", query="totals")
    assert str(found) == f"query totals: Unavailable: the server cannot be reached{told}"


def test_what_java_threw_at_a_call_is_told_and_not_the_call() -> None:
    error = RuntimeError(
        "An error occurred while calling o45.start.\n: java.io.IOException: No space left on device\n\tat a.B"
    )
    found = failures.from_exception(error, "", label="start")
    assert str(found) == "IOException: No space left on device"


TRACE = """\
Traceback (most recent call last):
  File "/app/job.py", line 31, in shop
    load(address, timeout=5)
{}"""


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("KeyError: 'amount'", True),
        ("ModuleNotFoundError: No module named 'menu'", True),
        (
            "pyspark.errors.AnalysisException: [PATH_NOT_FOUND] Path does not exist: /in. SQLSTATE: 42K03",
            True,
        ),
        ("ConnectionRefusedError: [Errno 111] Connection refused", False),
        ("TimeoutError: timed out", False),
        ("psycopg.OperationalError: could not connect to server", False),
        ("py4j.protocol.Py4JNetworkError: Answer from Java side is empty", False),
        ("OSError: [Errno 28] No space left on device", False),
    ],
)
def test_which_failure_of_a_start_would_come_again(words: str, again: bool) -> None:
    text = TRACE.format(words)
    name, _, line = words.partition(": ")
    error = type(name.rsplit(".", 1)[-1], (Exception,), {})(line)
    assert failures.comes_again(failures.from_exception(error, text, label=failures.START)) is again
    # In a batch the input may have been at fault, and of a driver that was killed nobody knows.
    assert not failures.comes_again(failures.from_text(text, label="query"))
    assert not failures.comes_again(failures.killed(9, None))


def test_what_is_unavailable_is_waited_for() -> None:
    found = failures.from_exception(Unavailable("the ledger is locked"), "", label=failures.START)
    assert not failures.comes_again(found)


def test_a_driver_that_said_nothing() -> None:
    assert str(failures.killed(9, None)) == "signal 9: the driver was killed"
    assert str(failures.killed(None, 3)).startswith("exit code 3: ")


@pytest.mark.parametrize(
    ("number", "cause", "hint", "again"),
    [
        (errno.ENOSPC, "resources", " (hint: free disk space there)", False),
        (errno.EDQUOT, "resources", " (hint: free disk space there)", False),
        (errno.EMFILE, "resources", "", False),
        (errno.EACCES, "unknown", "", True),
    ],
)
def test_a_driver_that_could_not_begin(number: int, cause: str, hint: str, again: bool) -> None:
    said = os.strerror(number)
    found = failures.not_begun(OSError(number, said, "/home/jobs/shop"))
    assert found.line == f"the driver could not start: {said}: /home/jobs/shop{hint}"
    assert (found.cause, failures.comes_again(found)) == (cause, again)


OTHER_PYTHON = """\
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 9, in main
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different
"""
NO_PYTHON = """\
org.apache.spark.SparkException: x
Caused by: java.io.IOException: Cannot run program "/opt/python3": error=2, No such file or directory
"""
NO_MODULE = """\
Traceback (most recent call last):
  File "/x/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 9, in main
    f()
ModuleNotFoundError: No module named 'prices'
"""


@pytest.mark.parametrize(
    ("text", "hint"),
    [(OTHER_PYTHON, "spark.pyspark.python"), (NO_PYTHON, "spark.archives"), (NO_MODULE, "py_files")],
)
def test_what_executors_lack_is_told_with_what_brings_it_there(text: str, hint: str) -> None:
    line = failures.from_text(text, label="query").line
    assert "(hint: " in line
    assert hint in line


def test_a_module_that_only_the_driver_lacks_has_no_such_hint() -> None:
    text = 'Traceback (most recent call last):\n  File "job.py", line 1\nModuleNotFoundError: No module x\n'
    assert "hint" not in failures.from_text(text, label="start").line
