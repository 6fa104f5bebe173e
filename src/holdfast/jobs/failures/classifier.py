"""Who has to fix a failure, by the text of its error.

What the text names outright decides first: the memory or the disk, then the conditions that Spark gives its
errors. A Python error belongs to whoever's function raised it. What is left is told from the innermost frames
of Java that are known to belong to one side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final


class FailureClass(str, Enum):
    """Who has to fix a failure."""

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
_OWN_PACKAGE: Final = f"{Path(__file__).parents[2]}/"
# Whose an error is that is raised in a package or module of ours; the rest say nothing.
_OURS: Final = (
    ("holdfast.stream.sinks.ledger", FailureClass.SINK),
    ("holdfast.stream.sinks.databases", FailureClass.SINK),
    ("holdfast.stream.sinks.kafka", FailureClass.SINK),
    ("holdfast.stream.sinks.put_back", FailureClass.SINK),
    ("holdfast.stream.sinks.query_sink", FailureClass.SINK),
    ("holdfast.stream.sinks.sinks", FailureClass.SINK),
    ("holdfast.stream.sinks.sql_table", FailureClass.SINK),
    ("holdfast.checkpoints", FailureClass.STATE),
    ("holdfast.formats", FailureClass.STATE),
    ("holdfast.savepoints", FailureClass.STATE),
    ("holdfast.engine.queries.kafka_topics", FailureClass.SINK),
    ("holdfast.engine", FailureClass.RESOURCES),
)
_PACKAGE: Final = __name__.partition(".")[0]


def cause_of(text: str) -> FailureClass:
    """Who has to fix a failure, by the whole text of its error."""
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
    """The innermost line of a person's own code in a Python traceback: file, number, and what it says."""
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
    """Whether a failure may be over by the next try: something that was not there at the moment, or no room.

    What is left is wrong in the code, the settings or the files, and stays so. Lines that are indented show
    code and calls, whose names say nothing of the error.
    """
    said = "\n".join(line for line in text.splitlines() if not line[:1].isspace())
    return _RESOURCES.search(text) is not None or _PASSES.search(said) is not None


def cause_of_own(trace: TracebackType | None) -> FailureClass:
    """Who has to fix an error that Holdfast itself has raised, by where it was raised."""
    cause = FailureClass.UNKNOWN
    for module in _modules(trace):
        cause = cause_of_module(module) or cause
    return cause


def cause_of_module(name: str) -> FailureClass | None:
    """Whose an error of one of our modules is, by the module's full name; None if that says nothing."""
    return next((cause for place, cause in _OURS if name == place or name.startswith(f"{place}.")), None)


def _modules(trace: TracebackType | None) -> Iterator[str]:
    """The modules that an error has come through, the innermost last."""
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next


def _of_python(text: str) -> FailureClass | None:
    """By the module of the function that raised it, if it is a Python error."""
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
    """What the query itself asks for, and cannot be done: a division by zero, a column that is not there."""
    return FailureClass.USER_CODE if _SQL_STATE_OF_THE_QUERY.search(text) else None


def _of_java(text: str) -> FailureClass | None:
    """By the first known frame below the innermost error."""
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
