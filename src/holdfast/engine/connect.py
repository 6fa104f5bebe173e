"""Spark Connect: queries and writers on the client's side, and errors for unsupported calls.

A client of Spark Connect sends plans to a server and receives rows. It has no access to the server's JVM or
to the threads of a query there, so features that use Spark's internals are rejected with an error.

A client receives events of queries through a listener, to which the server sends them over a separate stream.
If the stream breaks, PySpark removes all listeners and only issues a warning; so the newest progress is
requested as well. The file reader of a server hides the `_spark_metadata` directory, in which a table records
its batches.
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


# The package of PySpark's classes for Connect; the classic classes are in a different one.
_PACKAGE: Final = "pyspark.sql.connect."


def is_connect(value: object) -> bool:
    """Return whether a frame, writer, query or session belongs to Spark Connect; imports nothing."""
    return any(kind.__module__.startswith(_PACKAGE) for kind in type(value).__mro__)


def refuse_connect(value: object, what: str, *, where: str, hint: str) -> None:
    """Raise an error for a frame, writer, query or session that belongs to Spark Connect.

    Args:
        value: The frame, writer, query or session.
        what: The unsupported feature, as a noun phrase: "the state of hot keys".
        where: The call, for the error message.
        hint: The alternative.

    Raises:
        Unsupported: The value belongs to Spark Connect.
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
    """Call `heard` for events of a session's queries, as `watch.listen_to` does for a classic session.

    `heard` is called on a thread of PySpark. A run started by a different client causes no "started" event.

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
            """Ignore the event, because no batch ran."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
            ids = {"id": str(event.id), "runId": str(event.runId)}
            heard("terminated", {**ids, "exception": event.exception})

    listener = ConnectListener()
    streams: Any = _session_of(query).streams
    streams.addListener(listener)
    return lambda: streams.removeListener(listener)


def progress_after(query: StreamingQuery, batch_id: int | None) -> list[Mapping[str, Any]]:
    """Return the server's progress reports for the batches after `batch_id`, the oldest first.

    Only the newest report is requested first, and all of them only if it is for a later batch.
    """
    newest = query.lastProgress
    if newest is None or (batch_id is not None and newest["batchId"] <= batch_id):
        return []
    return [json.loads(report.json) for report in query.recentProgress]


def default_checkpoint(query: StreamingQuery) -> str | None:
    """Return a query's checkpoint from the settings of its session, the only source for a client."""
    root = _session_of(query).conf.get(_DEFAULT_PLACE, None)
    return f"{root.rstrip('/')}/{query.name}" if root and query.name else None


def written_remotely(writer: DataStreamWriter) -> tuple[PlanSink, str | None] | None:
    """Return the target and the trigger of a Connect writer, as far as they are in its message."""
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
    # Connect has no public way to get the session of a query.
    remote: Any = query
    return remote._session


# Characters that Spark would treat as part of a pattern.
_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
_ABSENT: Final = "PATH_NOT_FOUND"


def read_bytes(spark: SparkSession, address: str) -> bytes | None:
    """Return the bytes of a file, or None if the file does not exist. Runs one small Spark job.

    Raises:
        Unavailable: The server or its storage does not answer.
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
