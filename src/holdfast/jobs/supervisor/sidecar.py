"""All that a supervisor does beside its job: it notes good batches, takes savepoints, and measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.jobs.background.checkpoint_recording import Recording
from holdfast.jobs.background.metrics_loop import Observing
from holdfast.jobs.background.savepoint_schedule import Savepointing
from holdfast.jobs.events import Event
from holdfast.jobs.processes.protocol import JobDefined
from holdfast.jobs.registry.registry import Registry
from holdfast.model import BatchProgress


class Sidecar:
    """The work beside one job. None of it can fail the job.

    Args:
        definition: What the job wants of it.
        home: The state home.
        registry: What is known of the job.
        clock: Epoch milliseconds.
        may: Asked before each piece of work: not if the job is somebody else's by now.
    """

    def __init__(
        self,
        definition: JobDefined,
        home: Path,
        registry: Registry,
        clock: Callable[[], int],
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._definition = definition
        self._home = home
        self._clock = clock
        self._may = may
        self.begin()
        wanted = definition.savepoints
        self._observing = Observing(
            definition.name,
            definition.alerts,
            home,
            registry,
            catalog=None if wanted is None else wanted.catalog,
            clock=clock,
            may=may,
        )

    def begin(self) -> None:
        """Begin to record and to take savepoints: at first, and once more after checkpoints were replaced."""
        wanted = self._definition.savepoints
        self._closed = False
        self._recording = Recording(self._home, self._may) if self._definition.record else None
        self._savepointing = None if wanted is None else Savepointing(wanted, self._clock, self._may)

    def started(self, checkpoints: Mapping[str, str], spark: str | None = None) -> None:
        """A driver has started queries with these checkpoints, by name, under this version of Spark."""
        if self._recording is not None:
            self._recording.started(checkpoints, spark)
        for worker in (self._savepointing, self._observing):
            if worker is not None:
                worker.started(checkpoints)

    def committed(self, batch: BatchProgress, *, first: bool) -> None:
        """A query has committed a batch, the first one of its driver or another."""
        if self._recording is not None:
            self._recording.committed(batch.query, batch.batch_id, first=first)
        self._observing.committed(batch)

    def busy(self, query: str, *, busy: bool) -> None:
        """A query begins to work on a batch, or has nothing to do."""
        self._observing.busy(query, busy=busy)

    def ended(self) -> None:
        """The driver and its JVM have ended."""
        for worker in (self._recording, self._savepointing, self._observing):
            if worker is not None:
                worker.ended()

    def heard(self) -> Iterator[Event]:
        """What was done since the last call, and what could not be."""
        for worker in (self._recording, self._savepointing, self._observing):
            if worker is not None:
                yield from worker.heard()

    def abandon(self) -> None:
        """End it at once: what is due is somebody else's to do."""
        for worker in (self._savepointing, self._recording, self._observing):
            if worker is not None:
                worker.abandon()

    def close(self) -> None:
        """End it but for measuring: the last batch is noted, a savepoint under way is finished."""
        if not self._closed:
            self._closed = True
            for worker in (self._savepointing, self._recording):
                if worker is not None:
                    worker.close()

    def close_observing(self) -> None:
        """End measuring too, once it is written down how the job has ended."""
        self._observing.close()
