"""The record of a query that its own process watches, and the requests to it.

A query under `hf.watch` or `hf.guard` is in the registry like a job, so that `list`, `status`, `stop`, REST
and the dashboard show it. Its process holds a lock while it watches; the kernel releases the lock with the
process, so the record is right after a kill as well.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.clock import now_ms
from holdfast.errors import HoldfastError
from holdfast.jobs.background import BackgroundWorker, error_of, one_line
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import QueryLock, StateHome
from holdfast.model import BatchProgress, Failure, JobKind, JobState, QueryStarted

STOP: Final = "stop"
PROMISE: Final = "unknown: the program describes its sink to Spark alone"
_LOOK_S: Final = 0.5
_PATIENCE_S: Final = 1.0
_LAST_S: Final = 5.0
_PROCESS_ENDED: Final = "its process has ended"


class QueryRecord:
    """The record of one query of this process. No call raises or waits for the registry.

    Args:
        home: The state home.
        name: The query's name in other commands.
        kind: `watched` or `guarded`.
        query: The query, as Spark reports it.
        on_stop: Called on the record's thread when somebody asks the query to stop.
        say: Reports what cannot be recorded.
    """

    def __init__(
        self,
        home: Path,
        name: str,
        kind: JobKind,
        query: QueryStarted,
        on_stop: Callable[[], object],
        say: Callable[[str], object],
    ) -> None:
        place = StateHome(home)
        self._registry = Registry(place.registry, patience_s=_PATIENCE_S)
        self._lock = QueryLock(place, name)
        self._name = name
        self._kind = kind
        self._query = query
        self._on_stop = on_stop
        self._say = say
        self._attempt: int | None = None
        self._asked = self._ended = self._closed = False
        self._writes: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._worker = BackgroundWorker("holdfast-record", self._step)

    def start(self) -> None:
        """Begin to record, unless a job or a different process has the name."""
        try:
            taken = self._lock.take()
        except OSError as error:
            self._say(f"the query is not recorded in the state home: {error}")
            return
        if not taken:
            self._say("a different process watches a query of this name; this one is not in `holdfast list`")
            return
        self._writes.put(self._begin)
        atexit.register(self._at_exit)
        self._worker.start()
        self._worker.wake()

    def restarted(self, run_id: str, *, recovers: bool) -> None:
        """Record that the query was started again in this process."""
        self._ended = False
        self._writes.put(partial(self._start_attempt, run_id, recovers))

    def committed(self, batch: BatchProgress) -> None:
        """Record a committed batch."""
        self._writes.put(partial(self._add_batch, batch))

    def terminated(self, failure: Failure | None) -> None:
        """Record that the query has ended, with its failure if it failed."""
        if not self._ended:
            self._ended = True
            self._writes.put(partial(self._end, failure, None))

    def close(self, *, active: bool, failure: Failure | None = None) -> None:
        """Write what is left, and end the record.

        Args:
            active: Whether the query continues without being watched.
            failure: The failure of a query that has ended.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        if not self._ended:
            reason = "no longer watched; the query may continue" if active else None
            self._writes.put(partial(self._end, failure, reason))
        self._worker.close(_LAST_S)
        self._lock.release()

    def _at_exit(self) -> None:
        if not self._ended:
            self._ended = True
            self._writes.put(partial(self._end, None, None if self._asked else _PROCESS_ENDED))
        self._worker.close(_LAST_S)

    def _step(self) -> float:
        with suppress(queue.Empty):
            while True:
                write = self._writes.get_nowait()
                try:
                    write()
                except Exception as error:  # whatever it is, the query must not learn of it
                    self._say(f"the query's record is incomplete: {one_line(error_of(error))}")
        if self._attempt is not None and not self._closed:
            with suppress(HoldfastError):  # the registry is busy; it is asked again
                if STOP in self._registry.take_requests(self._name, now_ms()) and not self._asked:
                    self._asked = True
                    self._on_stop()
        return _LOOK_S

    def _begin(self) -> None:
        known = {record.name: record for record in self._registry.jobs()}.get(self._name)
        if known is not None and known.kind is JobKind.JOB:
            self._say("a job of this name is in the state home, so the query is not in `holdfast list`")
            return
        now = now_ms()
        record = JobRecord.begun(
            self._name, _program(), self._query.checkpoint, "retain", now, None, kind=self._kind
        )
        self._registry.start_job(record)
        self._start_attempt(self._query.run_id, recovers=False, begun=True)

    def _start_attempt(self, run_id: str, recovers: bool, begun: bool = False) -> None:
        if self._attempt is None and not begun:
            return
        now = now_ms()
        self._attempt = self._registry.start_attempt(self._name, os.getpid(), now, recovers=recovers)
        query = QueryStarted(
            self._query.name, self._query.query_id, run_id, self._query.checkpoint, self._query.promise
        )
        self._registry.queries_started(self._name, self._attempt, [query], now)
        self._registry.set_state(self._name, JobState.RUNNING, now)

    def _add_batch(self, batch: BatchProgress) -> None:
        if self._attempt is not None:
            self._registry.add_batch(self._name, self._attempt, batch)

    def _end(self, failure: Failure | None, reason: str | None) -> None:
        if self._attempt is None:
            return
        now = now_ms()
        ending = "failed" if failure is not None else "stopped" if self._asked else "finished"
        self._registry.end_attempt(self._name, self._attempt, ending, failure, now)
        state = JobState.FINISHED if failure is None else JobState.FAILED
        self._registry.set_state(self._name, state, now, str(failure) if failure is not None else reason)


def _program() -> str:
    """Return the program of this process, as its user started it."""
    return str(Path(sys.argv[0]).absolute()) if sys.argv and sys.argv[0] not in ("", "-c") else "python"
