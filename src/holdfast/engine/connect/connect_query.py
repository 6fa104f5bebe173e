"""A query and a writer of Spark Connect, as far as a client can see them.

A client hears of batches through a listener that the server feeds over a stream of its own. Where that
breaks, PySpark takes all listeners away and only warns; so the newest progress is asked for as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.job.trigger import available_now
from holdfast.formats.logs.plan_note import PlanSink

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

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

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
            heard("started", {"id": str(event.id), "runId": str(event.runId)})

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
            heard("progress", json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
            """Nothing to tell: no batch ran."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
            ids = {"id": str(event.id), "runId": str(event.runId)}
            heard("terminated", {**ids, "exception": event.exception})

    listener = Listener()
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
    """Where a query keeps its checkpoint by the session's settings, which is all that a client can see."""
    root = _session_of(query).conf.get(_DEFAULT_PLACE, None)
    return f"{root.rstrip('/')}/{query.name}" if root and query.name else None


def written_remotely(writer: DataStreamWriter) -> tuple[PlanSink, str | None] | None:
    """Where a writer of Connect writes to, and its trigger if it has one, as far as its message says."""
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
