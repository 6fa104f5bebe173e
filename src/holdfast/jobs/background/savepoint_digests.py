"""A supervisor makes the digests of its job's savepoints, on a thread of its own: no take waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.checkpoints.checkpoint import read_query_id
from holdfast.checkpoints.logs.logs import Logs
from holdfast.errors import Corrupt, HoldfastError, Unsupported
from holdfast.jobs.background.worker import BackgroundWorker, error_of, one_line
from holdfast.jobs.events import Event
from holdfast.savepoints.proof.pending_digests import PendingDigests
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# After a catalog has not answered.
_AGAIN_S: Final = 60.0


class SavepointDigests:
    """Makes the pending digests of the savepoints of a job's queries, the newest first.

    What a killed supervisor has left pending is made by the next one.

    Args:
        catalog: The directory of savepoints, as a canonical URI.
        clock: The time in epoch milliseconds.
        longest_s: All pauses of one savepoint together.
        may: Asked before each savepoint, and while its rows are read.
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
        """A driver has started queries with these checkpoints, by name."""
        with self._lock:
            for checkpoint in checkpoints.values():
                if checkpoint not in self._checkpoints:
                    self._checkpoints[checkpoint] = open_storage(checkpoint)
        self._worker.start()
        self._worker.wake()

    def taken(self) -> None:
        """There is a new savepoint."""
        self._worker.wake()

    def heard(self) -> list[Event]:
        """What was done since the last call, and what could not be."""
        return self._worker.heard()

    def end(self) -> None:
        """End without waiting: what is not done stays pending."""
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
        self._worker.say("no-digests", f"no digests of a savepoint: {problem}", problem=problem)
