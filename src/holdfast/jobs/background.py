"""Background work of a supervisor: integrity records and consumer groups."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.record import Recorder, RecordFile, in_use, record_path
from holdfast.errors import HoldfastError, Internal
from holdfast.extras import missing_package
from holdfast.jobs.events import JobEvent
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_NICE: Final = 10


class BackgroundWorker:
    """Runs work step by step on a low-priority thread.

    Args:
        name: The thread's name.
        step: Does the due work and returns the seconds until the next step, or None to wait for `wake`.
        may: Returns whether the next step may run; called before each. After False, the thread waits for
            `wake`.
    """

    def __init__(
        self, name: str, step: Callable[[], float | None], may: Callable[[], bool] = lambda: True
    ) -> None:
        self._step = step
        self._may = may
        self._abandoned = False
        self._wake = threading.Event()
        self._closing = False
        self._heard: queue.SimpleQueue[JobEvent] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; further calls do nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def wake(self) -> None:
        """Run the next step at once."""
        self._wake.set()

    def say(self, kind: str, text: str, **facts: Any) -> None:
        """Queue an event for the supervisor's own thread."""
        self._heard.put(JobEvent(kind, text, facts))

    def heard(self) -> list[JobEvent]:
        """Return the messages since the last call."""
        notices = []
        with suppress(queue.Empty):
            while True:
                notices.append(self._heard.get_nowait())
        return notices

    @property
    def alive(self) -> bool:
        """True if the thread was started and has not ended."""
        return self._thread.is_alive()

    def close(self, timeout_s: float) -> None:
        """Run the due work and stop; work that exceeds the timeout ends with the process."""
        if self.alive:
            self._closing = True
            self._wake.set()
            self._thread.join(timeout_s)

    def abandon(self) -> None:
        """Stop without waiting for the running step, which continues to its end."""
        self._abandoned = True
        self._closing = True
        self._wake.set()

    def _run(self) -> None:
        give_way()
        pause: float | None = None
        while True:
            self._wake.wait(pause)
            # In this order: what is asked for after the look wakes it once more.
            self._wake.clear()
            closing = self._closing
            pause = None if self._abandoned or not self._may() else self._step()
            if closing:
                return


def error_of(error: Exception) -> HoldfastError:
    """Return an error as a `HoldfastError`."""
    if isinstance(error, HoldfastError):
        return error
    return missing_package(error) or Internal(
        "internal error",
        code="HF-E9016",
        found=f"{type(error).__name__}: {error}",
        hint="please report this",
    )


def one_line(error: HoldfastError) -> str:
    """Return an error as one line."""
    return " ".join(line.strip() for line in str(error).splitlines())


class Throttle:
    """Limits repeated work to a share of the time.

    Args:
        share: The share, such as 0.05.
        longest_s: The longest pause, in seconds.
        shortest_s: The shortest pause, in seconds.
    """

    def __init__(self, share: float, longest_s: float, shortest_s: float = 0.0) -> None:
        self._share = share
        self._longest_s = longest_s
        self._shortest_s = shortest_s
        self._next = 0.0

    def wait_s(self) -> float:
        """Return how long to wait before the next run."""
        return max(self._next - time.monotonic(), 0.0)

    def took(self, seconds: float) -> None:
        """Record the duration of a run, in seconds."""
        pause = min(seconds * (1 / self._share - 1), self._longest_s)
        self._next = time.monotonic() + max(pause, self._shortest_s)


def give_way() -> None:
    """Lower the priority of this thread, on Linux."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


# Listing many partitions takes long; then not every batch is looked at by itself.
_SHARE: Final = 0.05
_LONGEST_PAUSE_S: Final = 30.0
_LAST_LOOK_S: Final = 30.0


@dataclass(slots=True)
class _Query:
    """A query whose checkpoint is recorded."""

    name: str
    recorder: Recorder
    file: RecordFile
    pace: Throttle = field(default_factory=lambda: Throttle(_SHARE, _LONGEST_PAUSE_S))
    ran_from: int | None = None
    due: bool = False
    ended: bool = False
    told: str = ""


class Recording:
    """Keeps the integrity records of a job's queries; its failures do not affect the job.

    Args:
        home: The state home.
        may: Returns whether the next check may run; called before each.
    """

    def __init__(self, home: Path, may: Callable[[], bool] = lambda: True) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._worker = BackgroundWorker("holdfast-record", self._look, may)

    def started(self, checkpoints: Mapping[str, str], spark: str | None = None) -> None:
        """Handle the start of queries with these checkpoints, by name, under this version of Spark."""
        for name, checkpoint in checkpoints.items():
            if name in self._queries:
                self._queries[name].recorder.spark = spark
                continue
            try:
                self._add(name, checkpoint, spark)
            except HoldfastError as error:
                text = f"query {name} has no integrity record: {one_line(error)}"
                self._worker.say("unrecorded", text, query=name)
        self._worker.start()

    def committed(self, name: str, batch_id: int, *, first: bool) -> None:
        """Handle a committed batch; `first` is True for the first one of a driver."""
        query = self._queries.get(name)
        if query is None:
            return
        with self._lock:
            query.due = True
            query.ended = False
            if first:
                query.ran_from = batch_id
        self._worker.wake()

    def ended(self) -> None:
        """Handle the end of the driver and its JVM, after which the checkpoints do not change."""
        with self._lock:
            for query in self._queries.values():
                query.due = query.ended = True
        self._worker.wake()

    def heard(self) -> list[JobEvent]:
        """Return the messages since the last call."""
        return self._worker.heard()

    def abandon(self) -> None:
        """Stop without recording the last batch."""
        self._worker.abandon()
        for query in self._queries.values():
            query.file.unlock()

    def close(self) -> None:
        """Record the last batch and stop."""
        self._worker.close(_LAST_LOOK_S)
        for query in self._queries.values():
            query.file.unlock()

    def _add(self, name: str, checkpoint: str, spark: str | None) -> None:
        storage = open_storage(checkpoint)
        file = RecordFile(record_path(self._home, storage.uri))
        if not file.lock():
            raise in_use(file.path)
        self._queries[name] = _Query(name, Recorder(storage, file, spark), file)

    def _look(self) -> float | None:
        waits = [wait for query in list(self._queries.values()) if (wait := self._look_at(query)) is not None]
        return min(waits, default=None)

    def _look_at(self, query: _Query) -> float | None:
        with self._lock:
            due, ended, ran_from = query.due, query.ended, query.ran_from
            wait = query.pace.wait_s()
            if not due or (wait and not ended):
                return wait if due else None
            query.due = False
            query.ran_from = None
        began = time.monotonic()
        try:
            if ran_from is not None:
                query.recorder.ran_from(ran_from)
            query.recorder.look(ended=ended)
            query.told = ""
        except Exception as error:  # whatever it is, the job must not learn of it
            text = one_line(error_of(error))
            if text != query.told:
                query.told = text
                self._worker.say(
                    "unrecorded", f"query {query.name} has no integrity record: {text}", query=query.name
                )
        query.pace.took(time.monotonic() - began)
        return None


_LAST_COMMIT_S: Final = 15.0


class GroupCommits:
    """Commits the offsets of each query's newest batch; batches in between are skipped.

    The query never waits for it, and failures do not reach it: each is reported once, until one succeeds.

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
        """Handle a batch that Spark reports as committed."""
        with self._lock:
            self._newest[str(progress["runId"])] = (query, progress)
        self._worker.wake()

    def heard(self) -> list[JobEvent]:
        """Return the messages since the last call."""
        return self._worker.heard()

    def close(self) -> None:
        """Commit the due offsets and stop."""
        self._worker.close(_LAST_COMMIT_S)

    def _commit(self) -> float | None:
        from holdfast.engine.queries.kafka import commit_offsets, read_offsets

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
