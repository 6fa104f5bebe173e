"""Measure a supervised job and deliver its alerts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.config.alert_settings import Alerts
from holdfast.errors import HoldfastError, NotFound, Unavailable
from holdfast.jobs.background import BackgroundWorker, Throttle, error_of, one_line
from holdfast.jobs.events import JobEvent
from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.model import BatchProgress, JobState
from holdfast.observe.alerting import (
    CLEARED,
    FIRING,
    GIVEN_UP,
    TOLD,
    Alert,
    AlertEvent,
    AlertStore,
    NotedEvent,
)
from holdfast.observe.files import FileFacts, look
from holdfast.observe.job_metrics import JobFacts, TakenSavepoint
from holdfast.observe.open_telemetry import Push, configured
from holdfast.observe.routes import REPEAT_MS, post_event, post_to_alertmanager
from holdfast.observe.rules import BY_RULE
from holdfast.observe.watcher import Watcher
from holdfast.savepoints.catalog import drills
from holdfast.storage import open_storage
from holdfast.storage.port import Storage


def facts_of(registry: Registry, job: str, *, saved: bool, drills_ms: Mapping[str, int]) -> JobFacts:
    """Return the facts about a job that its batches do not have.

    Args:
        registry: The registry.
        job: The job's name.
        saved: True if the job takes savepoints.
        drills_ms: The duration of the newest drill of each query.
    """
    record = registry.job(job)
    attempts, counts = registry.attempts(job), registry.attempt_counts(job)
    recovery_ms, since_ms = recoveries(attempts)
    kept = registry.recoveries(job)
    running = attempts[-1] if attempts and attempts[-1].ending is None else None
    taken = {
        note.query: TakenSavepoint(note.at_ms, note.took_ms, note.size_bytes)
        for note in registry.savepoints(job)
        if note.uri is not None
    }
    return JobFacts(
        name=job,
        up=not record.state.terminal,
        failed=record.state is JobState.FAILED,
        started_ms=record.started_ms,
        running_ms=None if running is None else running.running_ms,
        restarts=counts.restarts,
        failures=counts.causes,
        failed_ms=tuple(
            attempt.ended_ms
            for attempt in attempts
            if attempt.failure is not None and attempt.ended_ms is not None
        ),
        recovery_ms=kept[-1].recovery_ms if kept else recovery_ms,
        recovered_ms=kept[-1].at_ms + kept[-1].recovery_ms + kept[-1].idle_ms if kept else None,
        recovering_since_ms=None if record.state.terminal else since_ms,
        savepoints={query.name: taken.get(query.name) for query in registry.queries(job)} if saved else {},
        drills_ms=drills_ms,
    )


def recoveries(attempts: Sequence[Attempt]) -> tuple[int | None, int | None]:
    """Return the duration of the last recovery, and the start of an unfinished one, in milliseconds.

    A recovery begins with a failure and ends with the next commit, even if several drivers fail in between. A
    job that was started by hand after a failure is a new start, not a recovery.
    """
    last: int | None = None
    since: int | None = None
    for attempt in attempts:
        if not attempt.recovers:
            since = None
        if attempt.first_commit_ms is not None and since is not None:
            last, since = attempt.first_commit_ms - since, None
        if attempt.failure is not None and since is None:
            since = attempt.ended_ms
    return last, since


def newest_drills(catalog: str, queries: Mapping[str, str]) -> dict[str, int]:
    """Return the duration of the newest successful drill of each query.

    Args:
        catalog: The savepoint catalog.
        queries: The queries' names, by id.

    Raises:
        Unavailable: The catalog does not answer.
    """
    return {
        queries[drill.query_id]: drill.recovery_ms
        for drill in drills(open_storage(catalog, "savepoints"))
        if drill.query_id in queries and drill.job is not None
    }


TRIES: Final = 5
FIRST_PAUSE_S: Final = 1.0
# What could not be told for so long is news no more.
_STALE_MS: Final = 3_600_000
_LAST_TELL_S: Final = 10.0


class AlertDelivery:
    """Delivers a job's alerts to its webhook and its Alertmanager, each with a bounded number of tries.

    Events for the webhook are queued in the diary, so that they outlive a supervisor; open alerts are sent to
    the Alertmanager repeatedly, so they need no queue.

    Args:
        job: The job's name.
        alerts: The routes.
        diary: The queue of events; without it they are lost when this process ends.
        clock: Returns epoch milliseconds.
        first_pause_s: The pause after the first failure; each further one is twice as long.
        may: Returns False once another supervisor owns the job; called before each turn.
    """

    def __init__(
        self,
        job: str,
        alerts: Alerts,
        diary: AlertStore | None,
        clock: Callable[[], int],
        *,
        first_pause_s: float = FIRST_PAUSE_S,
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._job = job
        self._webhook = alerts.webhook
        self._alertmanager = alerts.alertmanager
        self._diary = diary
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._lock = threading.Lock()
        self._unkept: list[NotedEvent] = []
        self._firing: tuple[Alert, ...] = ()
        self._over: dict[tuple[str, tuple[str, ...]], AlertEvent] = {}
        self._news = False
        self._repeat = 0.0
        self._failed: dict[str, int] = {}
        self._next: dict[str, float] = {}
        self._worker = BackgroundWorker("holdfast-alerts", self._turn, may)

    @property
    def has_address(self) -> bool:
        """True if there is an address to deliver to."""
        return self._webhook is not None or self._alertmanager is not None

    def start(self) -> None:
        """Start, with the events that a former process left."""
        if self.has_address:
            self._worker.start()
            self._worker.wake()

    def now(self, standing: Sequence[Alert], events: Sequence[AlertEvent]) -> None:
        """Update the open alerts and queue new events, unless a diary already has them."""
        with self._lock:
            if self._diary is None and self._webhook is not None:
                self._unkept += [NotedEvent(0, event) for event in events]
            self._firing = tuple(alert for alert in standing if alert.firing)
            for event in events:
                if event.kind == CLEARED:
                    self._over[event.alert.key] = event
                else:
                    self._over.pop(event.alert.key, None)
            self._news = self._news or bool(events)
        if events:
            self._worker.wake()

    def heard(self) -> list[JobEvent]:
        """Return the failed deliveries."""
        return self._worker.heard()

    def abandon(self) -> None:
        """Stop without delivering the rest, which belongs to another process."""
        self._worker.abandon()

    def close(self) -> None:
        """Deliver the rest, as far as the receivers answer, and stop."""
        self._worker.close(_LAST_TELL_S)

    def _turn(self) -> float | None:
        waits = []
        try:
            if self._webhook is not None:
                waits.append(self._tell_webhook(self._webhook))
            if self._alertmanager is not None:
                waits.append(self._tell_alertmanager(self._alertmanager))
        except Exception as error:  # whatever it is, the job must not learn of it
            self._worker.say("untold", f"alerts cannot be delivered: {one_line(error_of(error))}")
            return REPEAT_MS / 1000
        return min((wait for wait in waits if wait is not None), default=None)

    def _tell_webhook(self, address: str) -> float | None:
        """Deliver events in order; a rejected one delays the later ones for a limited time."""
        wait = self._next.get(address, 0.0) - time.monotonic()
        if wait > 0:
            return wait
        for noted in self._waiting():
            try:
                post_event(address, noted.event)
            except HoldfastError as error:
                pause = self._failure(address, error)
                if pause is not None:
                    return pause
                self._settle(noted, GIVEN_UP)
                self._worker.say("untold", f"an alert could not be delivered: {one_line(error)}")
                continue
            self._failed.pop(address, None)
            self._settle(noted, TOLD)
        return None

    def _waiting(self) -> list[NotedEvent]:
        if self._diary is not None:
            return self._diary.waiting(self._job, self._clock() - _STALE_MS)
        with self._lock:
            return list(self._unkept)

    def _settle(self, noted: NotedEvent, told: int) -> None:
        if self._diary is not None:
            self._diary.settle(noted.id, told)
        else:
            with self._lock:
                self._unkept.remove(noted)

    def _tell_alertmanager(self, address: str) -> float | None:
        now = time.monotonic()
        with self._lock:
            firing, over = self._firing, list(self._over.values())
            due = max(0.0 if self._news else self._repeat, self._next.get(address, 0.0))
            if not firing and not over:
                return None
            if now < due:
                return due - now
            # News that comes while this is on its way has a turn of its own.
            self._news = False
        try:
            post_to_alertmanager(address, firing, over, self._clock())
        except HoldfastError as error:
            pause = self._failure(address, error)
            if pause is not None:
                with self._lock:
                    self._news = True
                return pause
            # It is told again anyway, as long as something is wrong.
            self._worker.say("untold", f"alerts could not be delivered: {one_line(error)}")
        else:
            self._failed.pop(address, None)
        with self._lock:
            for event in over:
                if self._over.get(event.alert.key) is event:
                    del self._over[event.alert.key]
            self._repeat = now + REPEAT_MS / 1000
        return REPEAT_MS / 1000 if firing else None

    def _failure(self, address: str, error: HoldfastError) -> float | None:
        """Return the pause before the next try, or None for no further try."""
        tries = self._failed.get(address, 0) + 1
        if tries >= TRIES or not isinstance(error, Unavailable):
            self._failed.pop(address, None)
            self._next.pop(address, None)
            return None
        self._failed[address] = tries
        pause = self._first_pause_s * float(1 << (tries - 1))
        self._next[address] = time.monotonic() + pause
        return pause


# Between two looks at the job where no batch commits, and the least time between two of them.
EVERY_S: Final = 5.0
SHORTEST_S: Final = 1.0
# Files are looked at for a small part of the time, and rarely: listing many partitions takes long.
FILES_SHARE: Final = 0.01
FILES_SHORTEST_S: Final = 30.0
FILES_LONGEST_S: Final = 600.0
_LAST_LOOK_S: Final = 10.0


class Observing:
    """Computes metrics and alerts of a job while its supervisor lives; its failures do not affect the job.

    Args:
        job: The job's name.
        alerts: The thresholds and routes.
        home: The state home.
        registry: The registry.
        catalog: The savepoint catalog, if the job takes savepoints.
        clock: Returns epoch milliseconds.
        may: Returns False once another supervisor owns the job; called before each check.
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
        self._files_pace = Throttle(FILES_SHARE, FILES_LONGEST_S)
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
        """Handle the start of queries with these checkpoints, by name."""
        for name, checkpoint in checkpoints.items():
            try:
                self._checkpoints[name] = open_storage(checkpoint)
            except HoldfastError as error:  # noqa: PERF203 - there are a few queries at most
                text = f"the checkpoint files of query {name} cannot be checked: {one_line(error)}"
                self._worker.say("unwatched", text, query=name)
        if not self._begun:
            self._begun = True
            try:
                self._watcher = Watcher(
                    self._job, self._alerts, self._diary, self._registry.batches(self._job)
                )
            except HoldfastError as error:
                self._worker.say("unwatched", f"the job has no metrics and alerts: {one_line(error)}")
                return
            self._push = self._pushing(self._watcher)
            self._worker.start()
            self._delivery.start()
        self._worker.wake()

    def committed(self, batch: BatchProgress) -> None:
        """Handle a committed batch."""
        if self._watcher is not None:
            self._watcher.committed(batch)
            self._worker.wake()

    def busy(self, query: str, *, busy: bool) -> None:
        """Handle that a query has begun a batch or is idle."""
        if self._watcher is not None:
            self._watcher.busy(query, self._clock() if busy else None)

    def ended(self) -> None:
        """Handle the end of the driver."""
        if self._watcher is not None:
            self._watcher.idle()

    def heard(self) -> list[JobEvent]:
        """Return the messages since the last call."""
        return [*self._worker.heard(), *self._delivery.heard()]

    def abandon(self) -> None:
        """Stop at once, because another supervisor watches the job."""
        self._worker.abandon()
        self._delivery.abandon()
        if self._push is not None:
            self._push.close()

    def close(self) -> None:
        """Check a last time, report resolved alerts and stop, after the job has ended."""
        if self._watcher is not None:
            self._ending = True
            self._worker.close(_LAST_LOOK_S)
            self._delivery.close()
            if self._push is not None:
                self._push.close()

    def _pushing(self, watcher: Watcher) -> Push | None:
        """Return the push to the collector named by OpenTelemetry's variables, if any."""
        endpoint = configured()
        if endpoint is None:
            return None
        try:
            return Push(lambda: watcher.samples, endpoint)
        except HoldfastError as error:
            self._worker.say("unwatched", f"metrics are not pushed to {endpoint}: {one_line(error)}")
            return None

    def _turn(self) -> float | None:
        """Check, unless the last check was recent; the final check is always made."""
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
                self._worker.say("unwatched", f"the job has no metrics and alerts: {text}")
        return EVERY_S

    def _look(self) -> None:
        if self._watcher is None or self._over:
            return
        ending = self._ending  # before the registry is read: the end must be judged by what it has at the end
        if time.monotonic() >= self._files_due and not ending:
            self._look_at_files(self._watcher)
        now = self._clock()
        facts = facts_of(
            self._registry, self._job, saved=self._catalog is not None, drills_ms=self._drills_ms
        )
        if ending:
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
    """Return an event's kind and its line of text."""
    if event.kind == FIRING:
        return "alert", f"alert: {event.alert.text}; {BY_RULE[event.alert.rule].advice}"
    return "cleared", f"alert resolved: {event.alert.text}"
