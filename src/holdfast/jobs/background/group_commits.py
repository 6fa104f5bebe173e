"""Commit where a query has read its topics to a consumer group, beside the query."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.jobs.background.worker import BackgroundWorker, error_of, one_line
from holdfast.jobs.events import Event

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LAST_COMMIT_S: Final = 15.0


class GroupCommits:
    """Commits the offsets of each query's newest batch; those of batches between are passed over.

    The query waits for nothing, and no failure in here reaches it: each is told once, until one succeeds.

    Args:
        group: The name of the consumer group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[StreamingQuery, Mapping[str, Any]]] = {}
        self._told: str | None = None
        self._worker = BackgroundWorker("holdfast-consumer-group", self._commit)
        self._worker.start()

    def committed(self, query: StreamingQuery, progress: Mapping[str, Any]) -> None:
        """A batch has been committed, as Spark reports it."""
        with self._lock:
            self._newest[str(progress["runId"])] = (query, progress)
        self._worker.wake()

    def heard(self) -> list[Event]:
        """What was said since the last call."""
        return self._worker.heard()

    def close(self) -> None:
        """Commit what is due, and end."""
        self._worker.close(_LAST_COMMIT_S)

    def _commit(self) -> float | None:
        from holdfast.engine.queries.consumer_group import commit_offsets, read_offsets

        with self._lock:
            newest, self._newest = self._newest, {}
        try:
            for query, progress in newest.values():
                for read in read_offsets(query, progress):
                    commit_offsets(self._group, read)
        except Exception as error:  # whatever it is, the query must not learn of it
            text = one_line(error_of(error))
            if text != self._told:
                self._told = text
                self._worker.say("consumer_group", text)
        else:
            self._told = None
        return None
