"""Spark Connect: queries, writers and files as a client sees them, and errors for unsupported calls.

A client of Spark Connect sends plans to a server and gets rows back. It reaches neither the server's JVM nor
the threads of a query there, so features that use Spark's internals are refused with an error.

A client learns of batches through a listener that the server feeds over a separate stream. If that breaks,
PySpark removes all listeners and only warns; so the newest progress is requested as well. The file reader of
a server hides the `_spark_metadata` directory, in which a table records its batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.policies import available_now
from holdfast.errors import Unavailable, Unsupported
from holdfast.formats.logs.notes import PlanSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# Where PySpark keeps the frames, writers, queries and sessions of Connect; the classic ones are elsewhere.
_PACKAGE: Final = "pyspark.sql.connect."


def is_connect(value: object) -> bool:
    """Return True if a frame, writer, query or session is of Spark Connect; imports nothing."""
    return any(kind.__module__.startswith(_PACKAGE) for kind in type(value).__mro__)


def refuse_connect(value: object, what: str, *, where: str, hint: str) -> None:
    """Raise an error for a frame, writer, query or session of Spark Connect.

    Args:
        value: The frame, writer, query or session.
        what: The unsupported feature, as a noun phrase: "the state of hot keys".
        where: The call, for the error.
        hint: The alternative.

    Raises:
        Unsupported: The value is of Spark Connect.
    """
    if is_connect(value):
        raise Unsupported(
            f"Spark Connect does not support {what}",
            code="HF-E7042",
            where=where,
            found=type(value).__name__,
            hint=hint,
        )


_DEFAULT_PLACE: Final = "spark.sql.streaming.checkpointLocation"
_AVAILABLE_NOW: Final = "available_now"


def listen_to_server(
    query: StreamingQuery, heard: Callable[[str, Mapping[str, Any]], None]
) -> Callable[[], None]:
    """Call `heard` for events of the queries of a session, as `watch.listen_to` does for a classic one.

    It is called on a thread of PySpark. Runs started by a different client cause no "started" event.

    Returns:
        The function that removes the listener.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class ConnectListener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
            heard("started", {"id": str(event.id), "runId": str(event.runId)})

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
            heard("progress", json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
            """Ignore the event: no batch ran."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
            ids = {"id": str(event.id), "runId": str(event.runId)}
            heard("terminated", {**ids, "exception": event.exception})

    listener = ConnectListener()
    streams: Any = _session_of(query).streams
    streams.addListener(listener)
    return lambda: streams.removeListener(listener)


def progress_after(query: StreamingQuery, batch_id: int | None) -> list[Mapping[str, Any]]:
    """Return the server's progress of the batches after one, oldest first.

    Requests the newest one, and all only if that is a later batch.
    """
    newest = query.lastProgress
    if newest is None or (batch_id is not None and newest["batchId"] <= batch_id):
        return []
    return [json.loads(report.json) for report in query.recentProgress]


def default_checkpoint(query: StreamingQuery) -> str | None:
    """Return a query's checkpoint from the session's settings, the only source for a client."""
    root = _session_of(query).conf.get(_DEFAULT_PLACE, None)
    return f"{root.rstrip('/')}/{query.name}" if root and query.name else None


def written_remotely(writer: DataStreamWriter) -> tuple[PlanSink, str | None] | None:
    """Return the target and the trigger of a Connect writer, as far as its message has them."""
    remote: Any = writer
    try:
        message = remote._write_proto
        options = {str(key).lower(): str(value) for key, value in message.options.items()}
        target = message.path or message.table_name or options.get("path") or options.get("topic")
        if message.HasField("foreach_batch"):
            kind = "foreachBatch"
        else:
            kind = "foreach" if message.HasField("foreach_writer") else message.format
        chosen = message.WhichOneof("trigger")
        trigger = str(available_now()) if chosen == _AVAILABLE_NOW else chosen
        return PlanSink(kind or "unknown", message.output_mode or "append", target or None), trigger
    except (AttributeError, ValueError):
        return None


def _session_of(query: StreamingQuery) -> Any:
    # A query of Connect offers no public way to its session.
    remote: Any = query
    return remote._session


# What Spark would take for a pattern of names.
_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
_ABSENT: Final = "PATH_NOT_FOUND"


def read_bytes(spark: SparkSession, address: str) -> bytes | None:
    """Return a file's bytes, or None if the file does not exist. Runs one small Spark job.

    Raises:
        Unavailable: The server, or its storage, does not answer.
    """
    from pyspark.errors import AnalysisException, PySparkException

    reader = spark.read.format("binaryFile").load(_PATTERN.sub(r"\\\1", address))
    try:
        rows = reader.select("content").collect()
    except AnalysisException as error:
        if error.getCondition() == _ABSENT:
            return None
        raise _unavailable(address, error) from error
    except PySparkException as error:
        raise _unavailable(address, error) from error
    return bytes(rows[0][0]) if rows else None


def _unavailable(address: str, error: Exception) -> Unavailable:
    return Unavailable(
        "the Spark Connect server cannot read a file",
        code="HF-E5010",
        where=address,
        found=next(iter(str(error).splitlines()), type(error).__name__),
        hint="check that the server is running and is allowed to read this file, then start the query again",
    )
