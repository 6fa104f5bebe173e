"""All that a supervisor does beside its job: it notes good batches and takes savepoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.jobs.aside import Heard
from holdfast.jobs.attempt import Definition
from holdfast.jobs.recording import Recording
from holdfast.jobs.savepointing import Savepointing
from holdfast.model import SavepointNote


class Beside:
    """The work beside one job. None of it can fail the job.

    Args:
        definition: What the job wants of it.
        home: The state home.
        clock: Epoch milliseconds.
        may: Asked before each piece of work: not if the job is somebody else's by now.
    """

    def __init__(
        self,
        definition: Definition,
        home: Path,
        clock: Callable[[], int],
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._recording = Recording(home, may) if definition.record else None
        wanted = definition.savepoints
        self._savepointing = None if wanted is None else Savepointing(wanted, clock, may)

    def started(self, checkpoints: Mapping[str, str]) -> None:
        """A driver has started queries with these checkpoints, by name."""
        for each in (self._recording, self._savepointing):
            if each is not None:
                each.started(checkpoints)

    def committed(self, query: str, batch_id: int, *, first: bool) -> None:
        """A query has committed a batch, the first one of its driver or another."""
        if self._recording is not None:
            self._recording.committed(query, batch_id, first=first)

    def ended(self) -> None:
        """The driver and its JVM have ended."""
        for each in (self._recording, self._savepointing):
            if each is not None:
                each.ended()

    def heard(self) -> Iterator[tuple[Heard, SavepointNote | None]]:
        """What was done since the last call, and what could not be; of a savepoint with its note."""
        for each in [] if self._recording is None else self._recording.heard():
            yield each, None
        for each in [] if self._savepointing is None else self._savepointing.heard():
            yield each, SavepointNote(**each.facts)

    def abandon(self) -> None:
        """End it at once: what is due is somebody else's to do."""
        for each in (self._savepointing, self._recording):
            if each is not None:
                each.abandon()

    def close(self) -> None:
        """End it: the last batch is noted, a savepoint under way is finished."""
        for each in (self._savepointing, self._recording):
            if each is not None:
                each.close()
