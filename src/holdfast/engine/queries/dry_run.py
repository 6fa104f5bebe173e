"""A dry run of a query: a batch is planned without reading or writing, and code is loaded without starting
queries.

Each source is replaced by an empty directory of files with the same columns, and the sink by a function that
ends the query when it is called. By that time Spark has planned the batch: it has compared the query's
operators and their schemas with the checkpoint, and raised the errors that it would raise in a real run. No
task has run, so no state is read, and the checkpoint needs no state files.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.spark_versions import minor
from holdfast.engine.described import RELATIONS
from holdfast.engine.file_manager import choose_file_manager
from holdfast.engine.queries.watch import await_end, failure_text
from holdfast.errors import Invalid, Unsupported
from holdfast.model import Try

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@contextmanager
def nothing_starts() -> Iterator[None]:
    """Raise an error for every start of a streaming query on this thread within the block.

    A script that starts its query itself would run on its real sources before its plan could be checked.
    PySpark has no setting to prevent that, so the methods that start a query are replaced and then restored.
    Other threads of the process are not affected.

    Raises:
        Invalid: The code started a query.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    here = threading.get_ident()

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def start(writer: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != here:
                return real(writer, *args, **kwargs)
            raise Invalid(
                "the code starts the query instead of returning it",
                code="HF-E2188",
                found=f"DataStreamWriter.{real.__name__}()",
                expected="a function that returns the unstarted writer",
                hint='put the query into a function with @holdfast.job(name="…", checkpoint="…") that ends'
                " with `return df.writeStream…` or `return hf.sink(df)…`",
            )

        return start

    methods = {name: getattr(DataStreamWriter, name) for name in ("start", "toTable")}
    for name, real in methods.items():
        setattr(DataStreamWriter, name, guarded(real))
    try:
        yield
    finally:
        for name, real in methods.items():
            setattr(DataStreamWriter, name, real)


_OTHER_SOURCE: Final = (
    "read the stream with spark.readStream; other streams can be tested only in a running query"
)
_PLANNED: Final = "the batch was planned, and that was all that was wanted"
# Spark's message when a task reads state that is missing on purpose, which is after planning.
_NO_STATE: Final = ("CANNOT_LOAD_STATE_STORE", "STATE_STORE_", "TASK_FAILED")
_RAN: Final = "Job aborted due to stage failure"
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
# Error classes that only wrap the cause.
_WRAPPERS: Final = frozenset({"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"})
_ASSERTION = re.compile(r"assertion failed: .*")
_STREAMING_LOGGER: Final = "org.apache.spark.sql.execution.streaming"
_PROXY_LOGGER: Final = "py4j.clientserver"
# The first Spark that compares the schemas of state when it plans a batch, and writes them before it runs.
_COMPARES_WHEN_PLANNING: Final = (4, 0)
# Sorting needs rows to choose its ranges, and has no effect on the state.
_SORT: Final = "Sort"


def without_sources(frame: DataFrame, empty: Path) -> tuple[DataFrame, int]:
    """Return the query with its sources replaced by empty ones.

    Args:
        frame: A streaming frame.
        empty: An empty directory.

    Returns:
        The frame, and the number of its sources.

    Raises:
        Unsupported: The plan has a stream that cannot be replaced, or the internals of this version of Spark
            differ.
    """
    spark = frame.sparkSession
    nothing: Any = spark.readStream.schema("nothing int").json(empty.as_uri())._jdf
    return _replaced(frame, lambda _: nothing.queryExecution().analyzed())


def with_files(
    frame: DataFrame, folder_of: Callable[[StructType], str], most_files: int | None = None
) -> DataFrame:
    """Return the query with its sources replaced by files.

    Args:
        frame: A streaming frame.
        folder_of: Takes the schema of a source and returns a directory of Parquet files with its columns;
            called for each source in the order of `relations`.
        most_files: The maximum number of files of a source that one batch reads, or None for all.

    Raises:
        Unsupported: The plan has a stream that cannot be replaced, or the internals of this version of Spark
            differ.
    """
    from pyspark.sql.types import StructType

    spark = frame.sparkSession
    options = {} if most_files is None else {"maxFilesPerTrigger": str(most_files)}

    def files(relation: Any) -> Any:
        schema = StructType.fromJson(json.loads(relation.schema().json()))
        read: Any = spark.readStream.options(**options).schema(schema).parquet(folder_of(schema))._jdf
        return read.queryExecution().analyzed()

    return _replaced(frame, files)[0]


def _replaced(frame: DataFrame, stands_in: Callable[[Any], Any]) -> tuple[DataFrame, int]:
    from py4j.protocol import Py4JError
    from pyspark.sql import DataFrame as Frame

    spark = frame.sparkSession
    jvm: Any = spark._jvm
    try:
        replaced = _Replaced(jvm, stands_in)
        plan = replaced.of(frame._jdf.queryExecution().analyzed())
        # The class of a frame, whose package Spark 4.0 has moved.
        made = reduce(getattr, str(frame._jdf.getClass().getName()).split("."), jvm).ofRows(
            spark._jsparkSession, plan
        )
    except (Py4JError, TypeError) as error:
        raise Unsupported(
            "the sources of this plan cannot be replaced for a dry run",
            code="HF-E7044",
            where=f"Spark {spark.version}",
            found=str(error).splitlines()[0],
            hint=_OTHER_SOURCE,
        ) from error
    return Frame(made, spark), len(replaced.done)


class _Replaced:
    """The replacement of the sources in one plan."""

    def __init__(self, jvm: Any, stands_in: Callable[[Any], Any]) -> None:
        self.done: list[tuple[Any, Any]] = []
        self._jvm = jvm
        self._stands_in = stands_in

    def of(self, node: Any) -> Any:
        kind = str(node.nodeName())
        children: Any = node.children()
        if kind in RELATIONS:
            return self._source(node)
        if children.size() == 0:
            if node.isStreaming():
                raise Unsupported(
                    "the source of this stream cannot be replaced for a dry run",
                    code="HF-E7045",
                    found=kind,
                    hint=_OTHER_SOURCE,
                )
            return node
        parts = [self.of(children.apply(at)) for at in range(children.size())]
        if kind == _SORT and node.isStreaming():
            return parts[0]
        return node.withNewChildren(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(parts))

    def _source(self, relation: Any) -> Any:
        for known, made in self.done:
            if known.equals(relation):
                return made
        other = self._stands_in(relation)
        parts = [other.dataSource(), other.sourceName(), relation.output()]
        if int(other.productArity()) > len(parts):  # since Spark 4.2 a source has a name of its own
            parts.append(relation.sourceIdentifyingName())
        made = other.copy(*parts)
        self.done.append((relation, made))
        return made


def rehearse(frame: DataFrame, checkpoint: Path, mode: str) -> Try:
    """Make Spark plan the batch that a checkpoint has in its offset log but not in its commit log.

    It takes one or two seconds and no Spark job. As at every start, the `init` method of a transformWithState
    processor is called, in a separate process.

    Args:
        frame: The frame from `without_sources`.
        checkpoint: A local directory of the caller, into which Spark writes.
        mode: The output mode.

    Raises:
        Unsupported: This Spark compares schemas of state only when a batch runs.
    """
    if minor(frame.sparkSession.version) < _COMPARES_WHEN_PLANNING:
        raise Unsupported(
            "this Spark does not show in a plan which state it refuses",
            code="HF-E7136",
            where="the check of new code",
            found=f"Spark {frame.sparkSession.version}, which compares schemas of state only in a batch",
            expected="Spark 4.0 or newer",
            hint="run the check in an environment with Spark 4.0 or newer, or start the new code on a copy of"
            " the checkpoint: `holdfast restore SAVEPOINT DIRECTORY`",
        )
    planned = Event()

    def end(_batch: DataFrame, _batch_id: int) -> None:
        planned.set()
        raise RuntimeError(_PLANNED)

    writer = frame.writeStream.outputMode(mode).foreachBatch(end)
    address = checkpoint.as_uri()
    with _in_silence(frame.sparkSession):
        with choose_file_manager(frame.sparkSession, address):
            try:
                query = writer.option("checkpointLocation", address).trigger(availableNow=True).start()
            except Exception as error:
                return _refused(str(error))
        await_end(query)
        text = failure_text(query)
    if planned.is_set():
        return Try(ran=True, accepted=True)
    if text is None:
        return Try(ran=True, accepted=False, message="Spark ended the query without planning a batch")
    if _RAN in text and any(condition in text for condition in _NO_STATE):
        return Try(ran=True, accepted=True)
    return _refused(text)


def _refused(text: str) -> Try:
    conditions = [condition for condition in _CONDITION.findall(text) if condition not in _WRAPPERS]
    assertion = _ASSERTION.search(text)
    if conditions:
        line = next(line for line in text.splitlines() if f"[{conditions[0]}]" in line)
        message = line[line.index(f"[{conditions[0]}]") + len(conditions[0]) + 2 :].strip()
        return Try(ran=True, accepted=False, spark_error=conditions[0], message=message)
    if assertion is not None:
        return Try(ran=True, accepted=False, spark_error=assertion[0], message=assertion[0])
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")] or text.splitlines()[:1]
    last = causes[-1].removeprefix("Caused by: ") if causes else ""
    return Try(ran=True, accepted=False, spark_error=last.partition(":")[0], message=last)


def _not_ours(record: logging.LogRecord) -> bool:
    return record.exc_info is None or _PLANNED not in str(record.exc_info[1])


@contextmanager
def _in_silence(spark: SparkSession) -> Iterator[None]:
    """Suppress the stack traces that Spark and Py4J log for failed queries, because every dry run fails."""
    python = logging.getLogger(_PROXY_LOGGER)
    jvm: Any = spark._jvm
    log4j: Any = jvm.org.apache.logging.log4j
    loggers = log4j.LogManager.getContext(False)
    own = loggers.getConfiguration().getLoggerConfig(_STREAMING_LOGGER)
    before = own.getLevel() if str(own.getName()) == _STREAMING_LOGGER else None
    log4j.core.config.Configurator.setLevel(_STREAMING_LOGGER, log4j.Level.OFF)
    python.addFilter(_not_ours)
    try:
        yield
    finally:
        python.removeFilter(_not_ours)
        if before is not None:
            log4j.core.config.Configurator.setLevel(_STREAMING_LOGGER, before)
        else:
            # With a level of its own, the logger would pass the limit that Spark's shell sets for all others.
            loggers.getConfiguration().removeLogger(_STREAMING_LOGGER)
            loggers.updateLoggers()
