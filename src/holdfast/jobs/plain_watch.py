"""Metrics and alerts of the queries that a server knows from their checkpoints alone.

One low-priority thread reads one checkpoint after the other. Metrics and alerts are those of
`holdfast watch CHECKPOINT` with the default thresholds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.config.alert_settings import Alerts
from holdfast.errors import HoldfastError
from holdfast.external.view import open_checkpoint
from holdfast.jobs.background import BackgroundWorker, Throttle
from holdfast.jobs.registry.client import Control, JobStatus
from holdfast.jobs.registry.plain_queries import PlainQuery
from holdfast.model import JobKind
from holdfast.observe.alerting import AlertStore
from holdfast.observe.files import look
from holdfast.observe.job_metrics import JobFacts
from holdfast.observe.watcher import Watcher

# The time between two rounds, and between two records of a query without a new batch.
_ROUND_S: Final = 5.0
_UNCHANGED_MS: Final = 30_000
_SHARE: Final = 0.05
_LONGEST_S: Final = 30.0
_LAST_LOOK_S: Final = 5.0


class PlainWatch:
    """Watches the queries at a server's addresses until it is closed.

    Args:
        control: The jobs of the state home, and the queries.
        home: The state home, which keeps metrics and alerts.
        clock: Returns epoch milliseconds.
    """

    def __init__(self, control: Control, home: Path, clock: Callable[[], int]) -> None:
        self._control = control
        self._home = home
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._due: deque[JobStatus] = deque()
        self._pace = Throttle(_SHARE, _LONGEST_S)
        self._worker = BackgroundWorker("holdfast-plain-watch", self.step)

    def start(self) -> None:
        """Begin, on a thread."""
        self._worker.start()
        self._worker.wake()

    def close(self) -> None:
        """Stop; open alerts stay as they are until a server or a watch looks again."""
        self._worker.abandon()
        self._worker.close(_LAST_LOOK_S)

    def step(self) -> float:
        """Look at the next query, if it has committed a batch since the last look.

        Returns:
            The seconds until the next look.
        """
        with suppress(HoldfastError):  # the registry is busy, or the page of the query shows the error
            if not self._due:
                self._begin_round()
            if self._due:
                self._look(self._due.popleft())
        return self._pace.wait_s() if self._due else _ROUND_S

    def _begin_round(self) -> None:
        statuses = [status for status in self._control.jobs() if status.job.kind is JobKind.CHECKPOINT]
        self._due.extend(statuses)
        for name in self._watched.keys() - {status.job.name for status in statuses}:
            self._watched.pop(name).end(self._clock())

    def _look(self, status: JobStatus) -> None:
        found = self._control.plain(status.job.name)
        if found is None:
            return
        name, query = found
        watched = self._watched.get(name)
        if watched is None or watched.query is not query:
            watched = self._watched[name] = _Watched(name, query, self._home)
        began = time.monotonic()
        try:
            watched.look(self._clock(), runs=not status.job.state.terminal)
        finally:
            self._pace.took(time.monotonic() - began)


class _Watched:
    """The metrics and alerts of one query."""

    def __init__(self, name: str, query: PlainQuery, home: Path) -> None:
        self._name = name
        self.query = query
        self._watcher = Watcher(name, Alerts(), AlertStore(home))
        self._batch_id: int | None = None
        self._at_ms = 0

    def look(self, now_ms: int, *, runs: bool) -> None:
        newest = self.query.look().batch_id
        if newest is None or (newest == self._batch_id and now_ms - self._at_ms < _UNCHANGED_MS):
            return
        if newest != self._batch_id:
            self._watcher.looked(self._name, look(open_checkpoint(self.query.uri), now_ms))
        self._batch_id, self._at_ms = newest, now_ms
        self._watcher.evaluate(JobFacts(self._name, up=runs), now_ms)

    def end(self, now_ms: int) -> None:
        self._watcher.end(JobFacts(self._name, up=False), now_ms)
