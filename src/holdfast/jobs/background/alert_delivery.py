"""Tells alerts elsewhere, on a thread of its own: an address that does not answer delays nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.config.job.alert_settings import Alerts
from holdfast.errors import HoldfastError, Unavailable
from holdfast.jobs.background.worker import BackgroundWorker, error_of, one_line
from holdfast.jobs.events import Event
from holdfast.observe.alert_store import GIVEN_UP, TOLD, AlertStore, NotedEvent
from holdfast.observe.alerting import CLEARED, FIRING, Alert, AlertEvent
from holdfast.observe.routes import REPEAT_MS, post_event, post_to_alertmanager

TRIES: Final = 5
FIRST_PAUSE_S: Final = 1.0
# What could not be told for so long is news no more.
_STALE_MS: Final = 3_600_000
_LAST_TELL_S: Final = 10.0


class AlertDelivery:
    """Tells a job's alerts to its webhook and its Alertmanager, each with bounded tries.

    Events for the webhook wait in the diary, so that they outlive a supervisor; the Alertmanager is told
    again and again what is wrong, and needs no memory of ours.

    Args:
        job: The job's name.
        alerts: Its routes.
        diary: Where events wait; without one they wait no longer than this process lives.
        clock: Epoch milliseconds.
        first_pause_s: The pause after the first failure; each further one is twice as long.
        may: Asked before each turn.
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
    def wanted(self) -> bool:
        """Whether there is anybody to tell."""
        return self._webhook is not None or self._alertmanager is not None

    def start(self) -> None:
        """Begin, with what a former process has left to tell."""
        if self.wanted:
            self._worker.start()
            self._worker.wake()

    def now(self, standing: Sequence[Alert], events: Sequence[AlertEvent]) -> None:
        """Take in what stands now, and what has happened; what a diary keeps is in it already."""
        with self._lock:
            if self._diary is None and self._webhook is not None:
                self._unkept += [NotedEvent(0, event) for event in events]
            self._firing = tuple(alert for alert in standing if alert.phase == FIRING)
            for event in events:
                if event.kind == CLEARED:
                    self._over[event.alert.key] = event
                else:
                    self._over.pop(event.alert.key, None)
            self._news = self._news or bool(events)
        if events:
            self._worker.wake()

    def heard(self) -> list[Event]:
        """What could not be told."""
        return self._worker.heard()

    def abandon(self) -> None:
        """End without telling what is left: it is somebody else's to tell."""
        self._worker.abandon()

    def close(self) -> None:
        """Tell what is left, as far as somebody answers, and end."""
        self._worker.close(_LAST_TELL_S)

    def _turn(self) -> float | None:
        waits = []
        try:
            if self._webhook is not None:
                waits.append(self._tell_webhook(self._webhook))
            if self._alertmanager is not None:
                waits.append(self._tell_alertmanager(self._alertmanager))
        except Exception as error:  # whatever it is, the job must not learn of it
            self._worker.say("untold", f"alerts cannot be told: {one_line(error_of(error))}")
            return REPEAT_MS / 1000
        return min((wait for wait in waits if wait is not None), default=None)

    def _tell_webhook(self, address: str) -> float | None:
        """Tell events in their order; one that is not taken holds the later ones back, for a while."""
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
                self._worker.say("untold", f"an alert could not be told: {one_line(error)}")
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
            self._worker.say("untold", f"alerts could not be told: {one_line(error)}")
        else:
            self._failed.pop(address, None)
        with self._lock:
            for event in over:
                if self._over.get(event.alert.key) is event:
                    del self._over[event.alert.key]
            self._repeat = now + REPEAT_MS / 1000
        return REPEAT_MS / 1000 if firing else None

    def _failure(self, address: str, error: HoldfastError) -> float | None:
        """How long to wait for another try; None where there is to be none."""
        tries = self._failed.get(address, 0) + 1
        if tries >= TRIES or not isinstance(error, Unavailable):
            self._failed.pop(address, None)
            self._next.pop(address, None)
            return None
        self._failed[address] = tries
        pause = self._first_pause_s * float(1 << (tries - 1))
        self._next[address] = time.monotonic() + pause
        return pause
