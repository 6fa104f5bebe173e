"""Spark Connect: queries, writers and files as a client sees them, and what a client cannot do.

A client of Spark Connect sends plans to a server and gets rows back. It reaches neither the server's JVM nor
the threads of a query there, so whatever uses Spark's internals ends at a call of ours, with a reason.

A client hears of batches through a listener that the server feeds over a stream of its own. Where that
breaks, PySpark takes all listeners away and only warns; so the newest progress is asked for as well.

The reader of files on a server shows nothing of a `_spark_metadata` folder, where a table notes its batches.
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
    """Return whether a frame, writer, query or session is of Spark Connect; loads nothing."""
    return any(kind.__module__.startswith(_PACKAGE) for kind in type(value).__mro__)


def refuse_connect(value: object, what: str, *, where: str, hint: str) -> None:
    """Refuse a frame, writer, query or session of Spark Connect.

    Args:
        value: What was given.
        what: What cannot be had there, as the beginning of a sentence: "the state of hot keys".
        where: The call, for the error.
        hint: What to do in its place.

    Raises:
        Unsupported: It is one of Spark Connect.
    """
    if is_connect(value):
        raise Unsupported(
            f"{what} cannot be had over Spark Connect",
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
    """Call `heard` for what the queries of a query's session do, as `watch.listen_to` does for a classic one.

    It is called on a thread of PySpark's. A run that was started by another client is not told as started.

    Returns:
        What ends it.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class ConnectListener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
            heard("started", {"id": str(event.id), "runId": str(event.runId)})

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
            heard("progress", json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
            """Nothing to tell: no batch ran."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
            ids = {"id": str(event.id), "runId": str(event.runId)}
            heard("terminated", {**ids, "exception": event.exception})

    listener = ConnectListener()
    streams: Any = _session_of(query).streams
    streams.addListener(listener)
    return lambda: streams.removeListener(listener)


def progress_after(query: StreamingQuery, batch_id: int | None) -> list[Mapping[str, Any]]:
    """The progress that the server has of later batches than one, oldest first.

    Asks for the newest one, and for all only where that is a later batch.
    """
    newest = query.lastProgress
    if newest is None or (batch_id is not None and newest["batchId"] <= batch_id):
        return []
    return [json.loads(report.json) for report in query.recentProgress]


def default_checkpoint(query: StreamingQuery) -> str | None:
    """Return a query's checkpoint by the session's settings, which is all that a client can see."""
    root = _session_of(query).conf.get(_DEFAULT_PLACE, None)
    return f"{root.rstrip('/')}/{query.name}" if root and query.name else None


def written_remotely(writer: DataStreamWriter) -> tuple[PlanSink, str | None] | None:
    """Return the target of a Connect writer, and its trigger if it has one, as far as its message shows."""
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
    """A file's bytes, or None if there is none. Costs one small Spark job.

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
        "the server of Spark Connect cannot read a file",
        code="HF-E5010",
        where=address,
        found=next(iter(str(error).splitlines()), type(error).__name__),
        hint="see that the server runs and that it reaches the address, then start again",
    )
