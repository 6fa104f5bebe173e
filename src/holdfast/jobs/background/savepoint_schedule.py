"""A supervisor takes savepoints of its job again and again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from holdfast.checkpoints.checkpoint import read_query_id
from holdfast.checkpoints.logs.logs import Logs
from holdfast.errors import HoldfastError, NotFound
from holdfast.external.view import with_state
from holdfast.jobs.background.savepoint_digests import SavepointDigests
from holdfast.jobs.background.worker import BackgroundWorker, error_of, one_line
from holdfast.jobs.definition import Periodic
from holdfast.jobs.events import Event
from holdfast.jobs.registry.registry import note_of
from holdfast.model import SavepointNote
from holdfast.savepoints.periodic import newest_ms, take_and_retain
from holdfast.savepoints.taking.taking import Taken
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# What is told of a savepoint comes with a `SavepointNote`.
TAKEN: Final = "savepoint"
NOT_TAKEN: Final = "no-savepoint"
# What is reported, once a batch, where the newest batch has a savepoint already.
UNCHANGED: Final = "savepoint-unchanged"
_LAST_TAKE_S: Final = 60.0
# A take that failed is tried again after a part of the time between two.
_AGAIN: Final = 10
_SHORTEST_S: Final = 1.0


@dataclass(slots=True)
class _Query:
    name: str
    checkpoint: Storage
    due_ms: int | None = None
    unchanged_batch: int | None = None


class Savepointing:
    """Takes savepoints of a job's queries while they run, and has their rows digested.

    The first savepoint of a query in a catalog is taken at once, each other one a fixed time after the one
    before it. A batch gets one savepoint. Every failure is reported, and the job continues.

    Args:
        settings: What the job wants.
        clock: The time in epoch milliseconds.
        may: Asked before each turn.
    """

    def __init__(
        self, settings: Periodic, clock: Callable[[], int], may: Callable[[], bool] = lambda: True
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._running = False
        self._worker = BackgroundWorker("holdfast-savepoints", self._turn, may)
        longest_s = settings.every_ms * settings.retained / 2000
        self._digests = SavepointDigests(settings.catalog, clock, longest_s, may)

    def started(self, checkpoints: Mapping[str, str]) -> None:
        """A driver has started queries with these checkpoints, by name."""
        with self._lock:
            self._running = True
            for name, checkpoint in checkpoints.items():
                if name not in self._queries:
                    self._queries[name] = _Query(name, open_storage(checkpoint))
        self._worker.start()
        self._worker.wake()
        self._digests.started(checkpoints)

    def ended(self) -> None:
        """The driver has ended: there is nothing new to take until the next one has started."""
        with self._lock:
            self._running = False

    def heard(self) -> list[Event]:
        """What there is to tell since the last call."""
        return [*self._worker.heard(), *self._digests.heard()]

    def abandon(self) -> None:
        """End without waiting for a take that is under way."""
        self.ended()
        self._digests.end()
        self._worker.abandon()

    def close(self) -> None:
        """End; a take that is under way is finished first. Digests that are not done stay pending."""
        self.ended()
        self._digests.end()
        self._worker.close(_LAST_TAKE_S)

    def _turn(self) -> float | None:
        with self._lock:
            queries = list(self._queries.values()) if self._running else []
        for query in queries:
            try:
                self._take_if_due(query)
            except Exception as error:  # noqa: PERF203 - whatever it is, the job must not learn of it
                self._failed(query, error_of(error))
        waits = [(query.due_ms or 0) - self._clock() for query in queries]
        return max(min(waits) / 1000, _SHORTEST_S) if waits else None

    def _take_if_due(self, query: _Query) -> None:
        catalog = open_storage(self._settings.catalog, "savepoints")
        if query.due_ms is None:
            newest = newest_ms(
                catalog, read_query_id(query.checkpoint, Logs(query.checkpoint)), query.checkpoint.uri
            )
            now = self._clock()
            # A clock that went back must not put it off for longer than usual.
            query.due_ms = now if newest is None else min(now, newest) + self._settings.every_ms
        if self._clock() < query.due_ms:
            return
        began = time.monotonic()
        try:
            made = take_and_retain(
                with_state(query.checkpoint),
                catalog,
                retained=self._settings.retained,
                clock=self._clock,
                chance=os.urandom,
            )
        except NotFound:
            # Before the first commit there is nothing to take.
            if Logs(query.checkpoint).newest is not None:
                raise
            made = None
        query.due_ms = self._clock() + self._settings.every_ms
        if made is None:
            return
        if made.taken is not None:
            self._took(query, made.taken, made.left, int((time.monotonic() - began) * 1000))
        elif query.unchanged_batch != made.batch_id:
            query.unchanged_batch = made.batch_id
            text = (
                f"no new batch of query {query.name} since the savepoint of batch {made.batch_id}"
                f" ({made.existing}); the next savepoint is taken after a new batch"
            )
            self._worker.say(UNCHANGED, text, query=query.name, batch_id=made.batch_id)

    def _took(self, query: _Query, taken: Taken, problem: str | None, took_ms: int) -> None:
        at_ms = taken.manifest.created_ms
        note = note_of(query.name, taken.uri, taken.manifest, at_ms=at_ms, took_ms=took_ms, problem=problem)
        self._digests.taken()
        text = f"savepoint of query {query.name} at batch {taken.manifest.batch_id}: {taken.uri}"
        self._worker.say(TAKEN, text, **asdict(note))

    def _failed(self, query: _Query, error: HoldfastError) -> None:
        query.due_ms = self._clock() + max(self._settings.every_ms // _AGAIN, int(_SHORTEST_S * 1000))
        problem = one_line(error)
        note = SavepointNote(query.name, self._clock(), None, None, None, None, None, problem)
        text = f"no savepoint of query {query.name}: {problem}"
        self._worker.say(NOT_TAKEN, text, **asdict(note))
