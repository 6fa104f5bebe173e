"""Failures of drivers: the relevant line, who must act, and the next step.

What the text names outright decides first: memory or disk, then Spark's error conditions. A Python error
belongs to the code whose function raised it. The rest is classified by the innermost known Java frames.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final

from holdfast.errors import HoldfastError, Unavailable
from holdfast.model import Failure


class FailureClass(str, Enum):
    """The party that has to fix a failure."""

    USER_CODE = "user code"
    SOURCE = "source"
    SINK = "sink"
    STATE = "state"
    RESOURCES = "resources"
    UNKNOWN = "unknown"


_RESOURCES: Final = re.compile(
    r"OutOfMemoryError|MemoryError\b|No space left on device|Cannot allocate memory|Too many open files"
    r"|unable to create (?:new )?native thread|Disk quota exceeded|GC overhead limit"
    r"|killed by YARN for exceeding|OOMKilled"
)
# Conditions of Spark's errors, and words of exceptions that have none.
_CONDITIONS: Final = (
    # File sinks and file sources keep logs of one format, in the table and in the checkpoint.
    (FailureClass.SINK, re.compile(r"\[BATCH_METADATA_NOT_FOUND\][^\n]*/_spark_metadata/")),
    (
        FailureClass.STATE,
        re.compile(
            r"\[(?:BATCH_METADATA_NOT_FOUND|CANNOT_LOAD_STATE_STORE|CANNOT_WRITE_STATE_STORE|STATE_STORE_|STATEFUL_|STATE_REPARTITION"
            r"|CHECKPOINT_|STREAMING_STATEFUL|STDS_)|RocksDBException|Incomplete log file"
        ),
    ),
    # A producer's errors have the names of a consumer's.
    (
        FailureClass.SINK,
        re.compile(r"kafka\.clients\.producer\.|kafka010\.(?:producer|KafkaDataWriter|KafkaRow)"),
    ),
    (
        FailureClass.SOURCE,
        re.compile(
            r"\[(?:FAILED_READ_FILE|PATH_NOT_FOUND|MALFORMED_RECORD|KAFKA_DATA_LOSS|UNABLE_TO_INFER_SCHEMA"
            r"|DATA_SOURCE_NOT_FOUND|STREAMING_PYTHON_RUNNER|PYTHON_STREAMING_DATA_SOURCE|CANNOT_PARSE"
            r"|FILE_NOT_EXIST|DELTA_SCHEMA_CHANGE|DELTA_STREAMING_|DELTA_SOURCE_|DELTA_CHANGE_DATA_FILE"
            r"|DELTA_VERSIONS_NOT_CONTIGUOUS|KAFKA_START_OFFSET)|UnknownTopicOrPartition|OffsetOutOfRange|kafka\.common\.errors\.Timeout"
        ),
    ),
    (FailureClass.SINK, re.compile(r"\[(?:TASK_WRITE_FAILED|DELTA_CONCURRENT|DELTA_|NOT_NULL_CONSTRAINT)")),
)
# What may be over by the next try, though the code and the files are the same.
_PASSES: Final = re.compile(
    r"Connect(?:ion|Timeout)?(?:Error|Exception)|Connection (?:refused|reset|closed|timed out)|[Tt]imed? ?out"
    r"|Timeout(?:Error|Exception|Expired)|UnknownHost|NoRouteToHost|SocketException|BrokenPipe|Broken pipe"
    r"|(?:Network|Host) is (?:unreachable|down)|[Tt]emporar(?:y|ily)|Service Unavailable|Too Many Requests"
    r"|SlowDown|[Tt]hrottl|database is locked|could not connect|NoBrokers|SafeModeException|StandbyException"
    r"|JAVA_GATEWAY_EXITED|Py4JNetworkError|Java side is empty|stopped SparkContext|BindException"
    r"|Address already in use|Transient|(?:status|HTTP|code:?) ?(?:429|50[0234])\b"
)
_SQL_STATE_OF_THE_QUERY: Final = re.compile(r"SQLSTATE: (?:22|42)")
# Frames of Java that belong to one side. Those of the checkpoint's files are everybody's.
_FRAMES: Final = (
    (
        FailureClass.SINK,
        re.compile(
            r"FileStreamSink|FileFormatWriter|FileOutputCommitter|CommitProtocol|DataWritingSparkTask|createV1Sink"
            r"|WriteToDataSourceV2|JdbcUtils|KafkaWriteTask|DataStreamWriter|WriteIntoDelta|DeltaSink"
        ),
    ),
    (
        FailureClass.STATE,
        re.compile(r"streaming\.state\.|rocksdb|OffsetSeqLog|CommitLog|OperatorStateMetadata"),
    ),
    (
        FailureClass.SOURCE,
        re.compile(
            r"FileStreamSource|FileScanRDD|FilePartitionReader|kafka010|kafka\.clients\.consumer|DeltaSource"
            r"|createSource|DataStreamReader|latestOffset|JDBCRDD|RateStream|TextSocket"
        ),
    ),
)
_JAVA_BEGINS: Final = re.compile(r"^(?:\s*Caused by: |: )[\w.$]+")
_FRAME: Final = re.compile(r"^\s*at (.+)$")
_PYTHON_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
# Where a Python error comes through, and does not come from: PySpark's packages, unpacked or in a zip.
_PASSING: Final = re.compile(r"/(?:site-packages|dist-packages|python|[\w.-]+\.zip)/(?:pyspark|py4j)/")
# Python's library, installed packages, and code that has no file.
_NOT_OWN: Final = re.compile(r"/lib/python3[^/]*/|/(?:site|dist)-packages/|\.zip/|^<|^py4j/|^pyspark/")
_OWN_PACKAGE: Final = f"{Path(__file__).parents[1]}/"
# Whose an error is that is raised in a package or module of ours; the rest say nothing.
_OURS: Final = (
    ("holdfast.stream.sinks.ledger", FailureClass.SINK),
    ("holdfast.stream.sinks.database", FailureClass.SINK),
    ("holdfast.stream.sinks.mysql", FailureClass.SINK),
    ("holdfast.stream.sinks.postgresql", FailureClass.SINK),
    ("holdfast.stream.sinks.sqlite", FailureClass.SINK),
    ("holdfast.stream.sinks.record_repeats", FailureClass.SINK),
    ("holdfast.stream.sinks.kafka", FailureClass.SINK),
    ("holdfast.stream.sinks.put_back", FailureClass.SINK),
    ("holdfast.stream.sinks.query_sink", FailureClass.SINK),
    ("holdfast.stream.sinks.sinks", FailureClass.SINK),
    ("holdfast.stream.sinks.sql_table", FailureClass.SINK),
    ("holdfast.checkpoints", FailureClass.STATE),
    ("holdfast.formats", FailureClass.STATE),
    ("holdfast.savepoints", FailureClass.STATE),
    ("holdfast.changes.take_and_restore", FailureClass.STATE),
    ("holdfast.engine.queries.kafka", FailureClass.SINK),
    ("holdfast.engine", FailureClass.RESOURCES),
)
_PACKAGE: Final = __name__.partition(".")[0]


def cause_of(text: str) -> FailureClass:
    """Return who has to fix a failure, by the whole text of its error."""
    if _RESOURCES.search(text):
        return FailureClass.RESOURCES
    for cause, pattern in _CONDITIONS:
        if pattern.search(text):
            return cause
    in_java = _of_java(text)
    # An error of Java's that came up through somebody's Python function is not of that function's making.
    if in_java is not None and "Py4JJavaError" in text:
        return in_java
    return _of_python(text) or _of_sql(text) or in_java or FailureClass.UNKNOWN


def place_of(text: str) -> str | None:
    """Return the innermost line of user code in a Python traceback: file, line number and text."""
    lines = text.splitlines()
    place = None
    for number, line in enumerate(lines):
        frame = _PYTHON_FRAME.match(line)
        if frame is None or _NOT_OWN.search(frame["file"]) or frame["file"].startswith(_OWN_PACKAGE):
            continue
        code = lines[number + 1].strip() if number + 1 < len(lines) else ""
        place = f"{frame['file']}:{frame['line']}"
        if code and not _PYTHON_FRAME.match(lines[number + 1]):
            place += f": {code}"
    return place


def may_pass(text: str) -> bool:
    """Return True if a failure is temporary, for example an unavailable service or a full disk.

    Other failures are in the code, the settings or the files, and remain. Indented lines show code and calls,
    whose names say nothing about the error.
    """
    said = "\n".join(line for line in text.splitlines() if not line[:1].isspace())
    return _RESOURCES.search(text) is not None or _PASSES.search(said) is not None


def cause_of_own(trace: TracebackType | None) -> FailureClass:
    """Return who has to fix an error that Holdfast raised, by the module that raised it."""
    cause = FailureClass.UNKNOWN
    for module in _modules(trace):
        cause = cause_of_module(module) or cause
    return cause


def cause_of_module(name: str) -> FailureClass | None:
    """Return who has to fix an error of one of our modules, by the module's full name; None if undecided."""
    return next((cause for place, cause in _OURS if name == place or name.startswith(f"{place}.")), None)


def _modules(trace: TracebackType | None) -> Iterator[str]:
    """Yield the modules of a traceback, innermost last."""
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next


def _of_python(text: str) -> FailureClass | None:
    """Classify a Python error by the module that raised it."""
    if "Traceback (most recent call last)" not in text:
        return None
    frames = [frame["file"] for line in text.splitlines() if (frame := _PYTHON_FRAME.match(line))]
    raised_in = [file for file in frames if not _PASSING.search(file)]
    if not raised_in:
        return None
    ours = cause_of_module(_module_at(raised_in[-1]))
    return FailureClass.SINK if ours is FailureClass.SINK else FailureClass.USER_CODE


def _module_at(file: str) -> str:
    """The full name of the module in a file, if the file is one of ours."""
    _, package, path = file.rpartition(f"/{_PACKAGE}/")
    return f"{_PACKAGE}.{path.removesuffix('.py').replace('/', '.')}" if package else ""


def _of_sql(text: str) -> FailureClass | None:
    """Classify an SQL error of the query, for example a division by zero or a missing column."""
    return FailureClass.USER_CODE if _SQL_STATE_OF_THE_QUERY.search(text) else None


def _of_java(text: str) -> FailureClass | None:
    """Classify by the first known frame below the innermost error."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if _JAVA_BEGINS.match(line)]
    for line in lines[begins[-1] if begins else 0 :]:
        frame = _FRAME.match(line)
        if frame is None:
            continue
        for cause, pattern in _FRAMES:
            if pattern.search(frame[1]):
                return cause
    return None


_SINK_LOG: Final = re.compile(
    r"BATCH_METADATA_NOT_FOUND.* (?:file:(?://)?)?(?P<entry>\S+/_spark_metadata/(?P<batch>\d+))"
)
_HINTS: Final = (
    (
        re.compile(r"BATCH_METADATA_NOT_FOUND"),
        "the log of a source lacks a file; list the damage with `holdfast checkpoint verify CHECKPOINT`",
    ),
    (
        re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRange|offset was changed from|available in Kafka any more"),
        "set new offsets with `holdfast offsets set`: the topic was recreated, or records expired unread",
    ),
    (
        re.compile(r"UnknownTopicOrPartition|does not host this topic-partition"),
        "create the topic, or correct its name in the job",
    ),
    (
        re.compile(
            r"Timed out waiting for a node assignment|TimeoutException.*(?:[Nn]ode|describeTopics|metadata"
            r"|position|offset)|No resolvable bootstrap urls"
        ),
        "check that the brokers run and are reachable from this machine at their advertised addresses",
    ),
    (
        re.compile(r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE"),
        "restart the job to read the new columns; `holdfast check` shows whether its state accepts them",
    ),
    (
        re.compile(r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|PARQUET_CONVERSION_FAILURE"),
        "rewrite the file, or read the wider type: a column type of the file differs from the job's schema",
    ),
)

# What a cluster lacks is given by the whole text alone.
_CLUSTER: Final = (
    (
        re.compile(r"PYTHON_VERSION_MISMATCH"),
        "set spark.pyspark.python to an interpreter of the driver's version on the executors",
    ),
    (
        re.compile(r'Cannot run program "[^"]*python[^"]*"'),
        "set spark.pyspark.python to an interpreter on the executors, or ship one with spark.archives",
    ),
    (
        re.compile(r"(?s)/pyspark/.*worker\w*\.py.*^ModuleNotFoundError: No module named", re.MULTILINE),
        "ship the module to the executors with py_files of the job or spark.archives",
    ),
)


def hint_of(failure: str, text: str) -> str | None:
    """Return the next step for a failure, or None if none is known.

    Args:
        failure: The failure's class and line.
        text: The whole text of the error.
    """
    gap = _SINK_LOG.search(failure)
    if gap is not None:
        return (
            f"stop the query, write the line v1 to {gap['entry']}, which is missing from the sink's log,"
            " and restart the query; repeat this for each batch reported"
        )
    told = next((hint for pattern, hint in _HINTS if pattern.search(failure)), None)
    return told or next((hint for pattern, hint in _CLUSTER if pattern.search(text)), None)


# The label of what fails while a driver starts its queries.
START = "start"

_ERROR_LINE = re.compile(
    r"^(?P<name>[A-Za-z_][\w.$]*(?:Error|Exception|Interrupt|Exit|Warning)\w*)(?:: (?P<text>.*))?$"
)
# An error of ours in a traceback; what it found and its hint are the lines below.
_OWN_LINE = re.compile(r"^holdfast\.errors\.(?P<name>\w+): (?P<text>.*)$")
_OWN_HINT = re.compile(r"^hint: (?P<text>.*)$")
_CAUSE = re.compile(r"^Caused by: (?P<name>[\w.$]+)(?:: (?P<text>.*))?$")
# Py4J puts what Java threw after a line that names the call alone.
_CALL = "An error occurred while calling "
_FIRST = re.compile(r"^(?:: )?(?P<name>[\w.$]+(?:Error|Exception))(?:: (?P<text>.*))?$")
_CONDITION = re.compile(r"^\[(?P<name>[A-Z][A-Z0-9_.]+)\] ?(?P<text>.*)$")

# What differs between two occurrences of the same failure: ids of runs and tasks, addresses.
_VARIES = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\b(?:TID|task|stage) \d[\d.]*|0x[0-9a-f]{6,}|@[0-9a-f]{5,}"
)


def from_text(text: str, *, label: str, query: str | None = None) -> Failure:
    """Return the failure at the origin of a Java or Python error.

    If the text has a Python traceback of user code, that is the line to fix. Otherwise it is the last
    cause that Java reports.
    """
    name, line = _origin(text)
    line = _with_hint(name, _VARIES.sub("…", line), text)
    return Failure(label, name, line, query, text, cause_of(text).value, place_of(text))


def from_exception(error: BaseException, detail: str, *, label: str) -> Failure:
    """Return the failure of a caught exception; `detail` is its traceback as text."""
    if isinstance(error, HoldfastError):
        fact = error.fact if error.code is None else f"{error.fact} [{error.code}]"
        line = f"{fact} (hint: {error.hint})" if error.hint else fact
        cause = cause_of_own(error.__traceback__).value
        return Failure(label, type(error).__name__, line, detail=str(error), cause=cause)
    text = str(error)
    if "Traceback (most recent call last)" in text or "Caused by: " in text or text.startswith(_CALL):
        return from_text(text, label=label)
    name, line = type(error).__name__, next(iter(text.strip().splitlines()), "")
    condition = _CONDITION.match(line)
    if condition:
        name, line = condition["name"], condition["text"]
    cause = cause_of(detail if "Traceback" in detail else f"{name}: {text}").value
    line = _with_hint(name, _VARIES.sub("…", line), detail)
    return Failure(label, name, line, detail=detail, cause=cause, place=place_of(detail))


def not_begun(error: OSError) -> Failure:
    """Return the failure of a driver that could not open or create a file in the state home."""
    text = f"{type(error).__name__}: {error}"
    line = error.strerror or str(error)
    if error.filename is not None:
        line = f"{line}: {os.fsdecode(error.filename)}"
    line = f"the driver could not start: {line}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        line += " (hint: free disk space there)"
    return Failure(START, type(error).__name__, line, detail=text, cause=cause_of(text).value)


def comes_again(failure: Failure) -> bool:
    """Return True if the next start of the same job would fail in the same way.

    True for an error of its own code, settings or files during the start. False for a driver that was
    killed and for something temporarily unavailable: a server, memory, disk space.
    """
    if failure.label != START or failure.error_class == Unavailable.__name__:
        return False
    return failure.cause != FailureClass.RESOURCES.value and not may_pass(
        f"{failure.error_class}: {failure.line}\n{failure.detail}"
    )


def is_permanent(failure: Failure) -> bool:
    """Return True for a failure that repeats at every restart until a file is changed by hand."""
    sinks_log = failure.cause == FailureClass.SINK.value  # for a source's, a fallback may be configured
    return sinks_log and failure.error_class == "BATCH_METADATA_NOT_FOUND"


def killed(signal_number: int | None, exit_code: int | None) -> Failure:
    """Return the failure of a driver that ended without a report."""
    cause = FailureClass.RESOURCES.value
    if signal_number is not None:
        return Failure("process", f"signal {signal_number}", "the driver was killed", cause=cause)
    line = "the driver ended without reporting a result; read its log"
    return Failure("process", f"exit code {exit_code}", line, cause=cause)


def _with_hint(name: str, line: str, text: str) -> str:
    hint = hint_of(f"{name}: {line}", text)
    return line if hint is None or "(hint: " in line else f"{line} (hint: {hint})"


def _origin(text: str) -> tuple[str, str]:
    lines = text.splitlines()
    python = _after_traceback(lines)
    if python:
        return python
    causes = [cause for line in lines if (cause := _CAUSE.match(line.strip()))]
    if causes:
        return _split_exception(causes[-1])
    first = next((line.strip() for line in lines if line.strip() and not line.startswith(_CALL)), "")
    match = _FIRST.match(first)
    return _split_exception(match) if match else ("error", first)


def _after_traceback(lines: list[str]) -> tuple[str, str] | None:
    """Return the error line of the last Python traceback in a text."""
    last: tuple[str, str] | None = None
    inside = False
    for number, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and (own := _OWN_LINE.match(line)):
            last = own["name"], _with_own_hint(own["text"], lines[number + 1 :])
            inside = False
        elif inside and (match := _ERROR_LINE.match(line)):
            last = _split_exception(match)
            inside = False
            if last[0] == "Py4JJavaError":
                # What Python says of it is the name of a call; Java's own words come after that.
                last = _in_java(lines[number + 1 :]) or last
    return last


def _with_own_hint(fact: str, below: list[str]) -> str:
    for line in below:
        if hint := _OWN_HINT.match(line):
            return f"{fact} (hint: {hint['text']})"
        if not line.startswith("  "):
            break
    return fact


def _in_java(lines: list[str]) -> tuple[str, str] | None:
    causes = [cause for line in lines if (cause := _CAUSE.match(line.strip()))]
    first = next((match for line in lines if (match := _FIRST.match(line.strip()))), None)
    match = causes[-1] if causes else first
    return None if match is None else _split_exception(match)


def _split_exception(match: re.Match[str]) -> tuple[str, str]:
    name, text = match["name"].rsplit(".", 1)[-1], (match["text"] or "").strip()
    condition = _CONDITION.match(text)
    return (condition["name"], condition["text"]) if condition else (name, text)
