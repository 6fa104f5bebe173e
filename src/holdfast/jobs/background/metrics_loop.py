"""A supervisor measures its job and tells of what goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.config.job.alert_settings import Alerts
from holdfast.errors import HoldfastError, NotFound
from holdfast.jobs.background.alert_delivery import AlertDelivery
from holdfast.jobs.background.job_facts import facts_of, newest_drills
from holdfast.jobs.background.worker import BackgroundWorker, Pace, error_of, one_line
from holdfast.jobs.events import Event
from holdfast.jobs.registry.registry import Registry
from holdfast.model import BatchProgress
from holdfast.observe.alert_store import AlertStore
from holdfast.observe.alerting import FIRING, AlertEvent
from holdfast.observe.export.open_telemetry import Push, configured
from holdfast.observe.files import FileFacts, look
from holdfast.observe.rules import BY_RULE
from holdfast.observe.watcher import Watcher
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# Between two looks at the job where no batch commits, and the least time between two of them.
EVERY_S: Final = 5.0
SHORTEST_S: Final = 1.0
# Files are looked at for a small part of the time, and rarely: listing many partitions takes long.
FILES_SHARE: Final = 0.01
FILES_SHORTEST_S: Final = 30.0
FILES_LONGEST_S: Final = 600.0
_LAST_LOOK_S: Final = 10.0


class Observing:
    """Keeps the numbers and alerts of a job while its supervisor lives. No failure of it hurts the job.

    Args:
        job: The job's name.
        alerts: Its thresholds and routes.
        home: The state home.
        registry: What is known of the job beside its batches.
        catalog: Where its savepoints are, if it has some taken.
        clock: Epoch milliseconds.
        may: Asked before each look: not if the job is somebody else's by now.
    """

    def __init__(
        self,
        job: str,
        alerts: Alerts,
        home: Path,
        registry: Registry,
        *,
        catalog: str | None,
        clock: Callable[[], int],
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._job = job
        self._alerts = alerts
        self._diary = AlertStore(home)
        self._registry = registry
        self._catalog = catalog
        self._clock = clock
        self._watcher: Watcher | None = None
        self._checkpoints: dict[str, Storage] = {}
        self._drills_ms: Mapping[str, int] = {}
        self._files_pace = Pace(FILES_SHARE, FILES_LONGEST_S)
        self._files_due = 0.0
        self._due = 0.0
        self._ending = False
        self._over = False
        self._told = ""
        self._begun = False
        self._worker = BackgroundWorker("holdfast-observe", self._turn, may)
        self._delivery = AlertDelivery(job, alerts, self._diary, clock, may=may)
        self._push: Push | None = None

    def started(self, checkpoints: Mapping[str, str]) -> None:
        """A driver has started queries with these checkpoints, by name."""
        for name, checkpoint in checkpoints.items():
            try:
                self._checkpoints[name] = open_storage(checkpoint)
            except HoldfastError as error:  # noqa: PERF203 - there are a few queries at most
                text = f"the files of query {name} are not looked at: {one_line(error)}"
                self._worker.say("unwatched", text, query=name)
        if not self._begun:
            self._begun = True
            try:
                self._watcher = Watcher(
                    self._job, self._alerts, self._diary, self._registry.batches(self._job)
                )
            except HoldfastError as error:
                self._worker.say("unwatched", f"the job is not watched: {one_line(error)}")
                return
            self._push = self._pushing(self._watcher)
            self._worker.start()
            self._delivery.start()
        self._worker.wake()

    def committed(self, batch: BatchProgress) -> None:
        """A query has committed a batch."""
        if self._watcher is not None:
            self._watcher.committed(batch)
            self._worker.wake()

    def busy(self, query: str, *, busy: bool) -> None:
        """A query begins to work on a batch, or has nothing to do."""
        if self._watcher is not None:
            self._watcher.busy(query, self._clock() if busy else None)

    def ended(self) -> None:
        """The driver has ended."""
        if self._watcher is not None:
            self._watcher.idle()

    def heard(self) -> list[Event]:
        """What there is to tell since the last call."""
        return [*self._worker.heard(), *self._delivery.heard()]

    def abandon(self) -> None:
        """End it at once: the job is watched by somebody else."""
        self._worker.abandon()
        self._delivery.abandon()
        if self._push is not None:
            self._push.close()

    def close(self) -> None:
        """The job has ended for good: look a last time, tell what is over, and end."""
        if self._watcher is not None:
            self._ending = True
            self._worker.close(_LAST_LOOK_S)
            self._delivery.close()
            if self._push is not None:
                self._push.close()

    def _pushing(self, watcher: Watcher) -> Push | None:
        """Push to the collector that OpenTelemetry's own variables name, if they name one."""
        endpoint = configured()
        if endpoint is None:
            return None
        try:
            return Push(lambda: watcher.samples, endpoint)
        except HoldfastError as error:
            self._worker.say("unwatched", f"nothing is pushed to {endpoint}: {one_line(error)}")
            return None

    def _turn(self) -> float | None:
        """Look, unless that was done a moment ago; the last look is made in any case."""
        wait = self._due - time.monotonic()
        if wait > 0 and not self._ending:
            return wait
        self._due = time.monotonic() + SHORTEST_S
        try:
            self._look()
            self._told = ""
        except Exception as error:  # whatever it is, the job must not learn of it
            text = one_line(error_of(error))
            if text != self._told:
                self._told = text
                self._worker.say("unwatched", f"the job is not watched: {text}")
        return EVERY_S

    def _look(self) -> None:
        if self._watcher is None or self._over:
            return
        if time.monotonic() >= self._files_due and not self._ending:
            self._look_at_files(self._watcher)
        now = self._clock()
        facts = facts_of(
            self._registry, self._job, saved=self._catalog is not None, drills_ms=self._drills_ms
        )
        if self._ending:
            self._over = True
            events = self._watcher.end(facts, now)
        else:
            events = self._watcher.evaluate(facts, now)
        for event in events:
            self._worker.say(*spoken(event), at_ms=event.at_ms, alert=event.alert.as_dict())
        self._delivery.now(self._watcher.alerts, events)

    def _look_at_files(self, watcher: Watcher) -> None:
        began = time.monotonic()
        looked_at: dict[str, FileFacts] = {}
        try:
            for name, checkpoint in self._checkpoints.items():
                with suppress(NotFound):
                    looked_at[name] = look(checkpoint, self._clock())
            for name, facts in looked_at.items():
                watcher.looked(name, facts)
            if self._catalog is not None:
                queries = {query.query_id: query.name for query in self._registry.queries(self._job)}
                self._drills_ms = newest_drills(self._catalog, queries)
        finally:
            self._files_pace.took(time.monotonic() - began)
            # A query that has committed nothing yet is looked at again as soon as it has.
            pause = (
                FILES_SHORTEST_S
                if any(facts.batch_id is not None for facts in looked_at.values())
                else EVERY_S
            )
            self._files_due = time.monotonic() + max(self._files_pace.wait_s(), pause)


def spoken(event: AlertEvent) -> tuple[str, str]:
    """An event as it is told: its kind, and a line."""
    if event.kind == FIRING:
        return "alert", f"alert: {event.alert.text}; {BY_RULE[event.alert.rule].advice}"
    return "cleared", f"alert over: {event.alert.text}"
