"""Numbers and alerts of a query that runs elsewhere, from the files of its checkpoint alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.config.job.alert_settings import Alerts
from holdfast.errors import Conflict, NotFound
from holdfast.jobs.background.alert_delivery import AlertDelivery
from holdfast.jobs.background.metrics_loop import EVERY_S
from holdfast.jobs.background.worker import Pace
from holdfast.jobs.events import Event
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.observe.alert_store import AlertStore
from holdfast.observe.alerting import AlertEvent
from holdfast.observe.files import look
from holdfast.observe.job_numbers import JobFacts
from holdfast.observe.metrics import Sample
from holdfast.observe.watcher import Watcher
from holdfast.storage.port import Storage

_SHARE: Final = 0.05
_LONGEST_S: Final = 300.0


class CheckpointWatch:
    """Watches one checkpoint; what it knows is what files tell: sizes, partitions, watermark, format.

    Args:
        checkpoint: The checkpoint.
        name: What the job is called in numbers and alerts.
        alerts: Thresholds and routes.
        home: The state home.
        clock: Epoch milliseconds.

    Raises:
        Conflict: A supervisor watches a job of this name already.
    """

    def __init__(
        self, checkpoint: Storage, name: str, alerts: Alerts, home: Path, clock: Callable[[], int]
    ) -> None:
        if SupervisorLock(StateHome(home), name).taken():
            raise Conflict(
                "a supervisor watches a job of this name already",
                where=str(home),
                found=name,
                hint="its numbers are in `holdfast status`; give another name with --name",
            )
        self._checkpoint = checkpoint
        self._name = name
        self._clock = clock
        diary = AlertStore(home)
        self._watcher = Watcher(name, alerts, diary)
        self._delivery = AlertDelivery(name, alerts, diary, clock)
        self._delivery.start()
        self._pace = Pace(_SHARE, _LONGEST_S, EVERY_S)

    def look(self) -> tuple[AlertEvent, ...]:
        """Look at the files, unless that was done a moment ago, and hold the numbers against the rules.

        Raises:
            Corrupt: A file that was read is damaged.
            Unavailable: The storage or the diary does not answer.
        """
        if self._pace.wait_s():
            return ()
        began = time.monotonic()
        try:
            facts = look(self._checkpoint, self._clock())
        except NotFound:
            return ()
        finally:
            self._pace.took(time.monotonic() - began)
        self._watcher.looked(self._name, facts)
        events = self._watcher.evaluate(JobFacts(self._name), self._clock())
        self._delivery.now(self._watcher.alerts, events)
        return events

    def samples(self) -> tuple[Sample, ...]:
        """The newest numbers, with ages of this moment."""
        return self._watcher.measure(JobFacts(self._name), self._clock())

    def heard(self) -> list[Event]:
        """What could not be told elsewhere."""
        return self._delivery.heard()

    def close(self) -> tuple[AlertEvent, ...]:
        """Watch no more: what stood wrong is over."""
        events = self._watcher.end(JobFacts(self._name, up=False), self._clock())
        self._delivery.now((), events)
        self._delivery.close()
        return events
