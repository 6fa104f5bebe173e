"""A supervisor notes what good batches of its job have left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.checkpoints.record import RecordFile, in_use, record_path
from holdfast.checkpoints.recording import Recorder
from holdfast.errors import HoldfastError
from holdfast.jobs.background.worker import BackgroundWorker, Pace, error_of, one_line
from holdfast.jobs.events import Event
from holdfast.storage import open_storage

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
    pace: Pace = field(default_factory=lambda: Pace(_SHARE, _LONGEST_PAUSE_S))
    ran_from: int | None = None
    due: bool = False
    ended: bool = False
    told: str = ""


class Recording:
    """Keeps the records of a job's queries. Every failure is told once, and hurts nobody.

    Args:
        home: The state home.
        may: Asked before each look.
    """

    def __init__(self, home: Path, may: Callable[[], bool] = lambda: True) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._worker = BackgroundWorker("holdfast-record", self._look, may)

    def started(self, checkpoints: Mapping[str, str], spark: str | None = None) -> None:
        """A driver has started queries with these checkpoints, by name, under this version of Spark."""
        for name, checkpoint in checkpoints.items():
            if name in self._queries:
                self._queries[name].recorder.spark = spark
                continue
            try:
                self._add(name, checkpoint, spark)
            except HoldfastError as error:
                self._worker.say("unrecorded", f"query {name} is not recorded: {one_line(error)}", query=name)
        self._worker.start()

    def committed(self, name: str, batch_id: int, *, first: bool) -> None:
        """A query has committed a batch, the first one of its driver or another."""
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
        """The driver and its JVM have ended: nobody writes to the checkpoints any more."""
        with self._lock:
            for query in self._queries.values():
                query.due = query.ended = True
        self._worker.wake()

    def heard(self) -> list[Event]:
        """What there is to tell since the last call."""
        return self._worker.heard()

    def abandon(self) -> None:
        """End without a last look."""
        self._worker.abandon()
        for query in self._queries.values():
            query.file.unlock()

    def close(self) -> None:
        """Note the last batch, and end."""
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
                    "unrecorded", f"query {query.name} is not recorded: {text}", query=query.name
                )
        query.pace.took(time.monotonic() - began)
        return None
