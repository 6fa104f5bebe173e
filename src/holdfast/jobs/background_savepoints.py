"""Periodic savepoints of a supervised job, and their digests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from holdfast.changes.take_and_restore import without_expired
from holdfast.checkpoints.checkpoint import read_query_id
from holdfast.checkpoints.logs import Logs
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.external.view import with_state
from holdfast.jobs.background import BackgroundWorker, error_of, one_line
from holdfast.jobs.definition import Periodic
from holdfast.jobs.events import JobEvent
from holdfast.jobs.registry.registry import note_of
from holdfast.model import SavepointNote
from holdfast.savepoints.digests import PendingDigests
from holdfast.savepoints.periodic import newest_ms, take_and_retain
from holdfast.savepoints.taking import Taken
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# After a catalog has not answered.
_AGAIN_S: Final = 60.0


class SavepointDigests:
    """Computes pending digests of the savepoints of a job's queries, newest first.

    Digests that a killed supervisor left pending are computed by the next one.

    Args:
        catalog: The savepoint directory, as a canonical URI.
        clock: Returns epoch milliseconds.
        longest_s: The limit of all pauses for one savepoint together.
        may: Returns whether the work may continue; called before each savepoint, and while its rows are read.
    """

    def __init__(
        self,
        catalog: str,
        clock: Callable[[], int],
        longest_s: float,
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._checkpoints: dict[str, Storage] = {}
        self._closed = threading.Event()
        self._digests = PendingDigests(
            clock,
            lambda: may() and not self._closed.is_set(),
            pause=self._closed.wait,
            longest_s=longest_s,
        )
        self._worker = BackgroundWorker("holdfast-savepoint-digests", self._turn, may)

    def started(self, checkpoints: Mapping[str, str]) -> None:
        """Handle the start of queries with these checkpoints, by name."""
        with self._lock:
            for checkpoint in checkpoints.values():
                if checkpoint not in self._checkpoints:
                    self._checkpoints[checkpoint] = open_storage(checkpoint)
        self._worker.start()
        self._worker.wake()

    def note_savepoint(self) -> None:
        """Wake the worker for a new savepoint."""
        self._worker.wake()

    def heard(self) -> list[JobEvent]:
        """Return the successes and failures since the last call."""
        return self._worker.heard()

    def end(self) -> None:
        """Stop without waiting; unfinished digests stay pending."""
        self._closed.set()
        self._worker.abandon()

    def _turn(self) -> float | None:
        with self._lock:
            checkpoints = list(self._checkpoints.values())
        try:
            catalog = open_storage(self._catalog, "savepoints")
            queries = [read_query_id(checkpoint, Logs(checkpoint)) for checkpoint in checkpoints]
        except Exception as error:  # as below
            self._failed(error_of(error))
            return _AGAIN_S
        while not self._closed.is_set():
            try:
                made = self._digests.newest(catalog, queries)
            except (Corrupt, Unsupported) as error:
                self._failed(error)
                continue  # it is passed over from now on
            except Exception as error:  # whatever it is, the job must not learn of it
                self._failed(error_of(error))
                return _AGAIN_S
            if made is None:
                return None
            text = f"digests of {made.rows or 0:,} rows recorded: {made.uri}"
            self._worker.say("digests", text, **made.as_dict())
        return None

    def _failed(self, error: HoldfastError) -> None:
        problem = one_line(error)
        text = f"the digests of a savepoint could not be computed: {problem}"
        self._worker.say("no-digests", text, problem=problem)


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
    """Takes savepoints of a job's queries while they run, and has their digests computed.

    The first savepoint of a query in a catalog is taken at once, each further one after a fixed interval. A
    batch gets one savepoint. Every failure is reported, and the job continues.

    Args:
        settings: The schedule.
        clock: Returns epoch milliseconds.
        may: Returns whether the work may continue; called before each turn.
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
        """Handle the start of queries with these checkpoints, by name."""
        with self._lock:
            self._running = True
            for name, checkpoint in checkpoints.items():
                if name not in self._queries:
                    self._queries[name] = _Query(name, open_storage(checkpoint))
        self._worker.start()
        self._worker.wake()
        self._digests.started(checkpoints)

    def ended(self) -> None:
        """Handle the end of the driver; no savepoint is taken until the next one has started."""
        with self._lock:
            self._running = False

    def heard(self) -> list[JobEvent]:
        """Return the messages since the last call."""
        return [*self._worker.heard(), *self._digests.heard()]

    def abandon(self) -> None:
        """Stop without waiting for a savepoint in progress."""
        self.ended()
        self._digests.end()
        self._worker.abandon()

    def close(self) -> None:
        """Finish a savepoint in progress and stop; unfinished digests stay pending."""
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
                without_expired=without_expired() if self._settings.drop_expired else None,
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
                f"query {query.name} has no new batch since the savepoint of batch {made.batch_id}"
                f" ({made.existing}); the next savepoint is taken after a new batch"
            )
            self._worker.say(UNCHANGED, text, query=query.name, batch_id=made.batch_id)

    def _took(self, query: _Query, taken: Taken, problem: str | None, took_ms: int) -> None:
        at_ms = taken.manifest.created_ms
        note = note_of(query.name, taken.uri, taken.manifest, at_ms=at_ms, took_ms=took_ms, problem=problem)
        self._digests.note_savepoint()
        text = f"savepoint of query {query.name} at batch {taken.manifest.batch_id}: {taken.uri}"
        self._worker.say(TAKEN, text, **asdict(note))

    def _failed(self, query: _Query, error: HoldfastError) -> None:
        query.due_ms = self._clock() + max(self._settings.every_ms // _AGAIN, int(_SHORTEST_S * 1000))
        problem = one_line(error)
        note = SavepointNote(query.name, self._clock(), None, None, None, None, None, problem)
        text = f"the savepoint of query {query.name} failed: {problem}"
        self._worker.say(NOT_TAKEN, text, **asdict(note))
