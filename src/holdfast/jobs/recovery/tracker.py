"""A job on its way back after a failure: what it may start from, and what that takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.config.job.recovery import Recovery as Settings
from holdfast.jobs.events import Say
from holdfast.jobs.recovery.prediction import size_of
from holdfast.jobs.recovery.rollback import Damage, Rollback, done, finish, go_back, look, under_way
from holdfast.jobs.recovery.timings import Recovery, Stopwatch
from holdfast.model import BatchProgress


class RecoveryTracker:
    """The recovery of one job, from a failure to the first commit after it, and the next one.

    Args:
        home: The state home.
        target: The job file, for hints.
        clock: Epoch milliseconds.
        say: Tells people what happens.
    """

    def __init__(self, home: Path, target: str, clock: Callable[[], int], say: Say) -> None:
        self._home = home
        self._target = target
        self._clock = clock
        self._say = say
        self._watch: Stopwatch | None = None
        self._ways: list[Rollback] = []

    @property
    def under_way(self) -> bool:
        """Whether the job has failed and not committed a batch since."""
        return self._watch is not None

    def failed(self, cause: str, failed_ms: int, ended_ms: int) -> None:
        """Note a failure, and when nothing was left of the driver any more."""
        self._watch = Stopwatch(failed_ms, cause, ended_ms)

    def resumed(self) -> None:
        """Note that the strategy's pause is over."""
        if self._watch is not None:
            self._watch.resumed = self._clock()

    def session(self, slots: int) -> None:
        """Note how many tasks can run at the same time."""
        if self._watch is not None:
            self._watch.slots = slots

    def running(self) -> None:
        """Note that the queries have been started."""
        if self._watch is not None:
            self._watch.running = self._clock()

    def first_commit(self, attempt: int, batch: BatchProgress) -> Recovery | None:
        """What the recovery took, at its first committed batch; else None."""
        watch, self._watch = self._watch, None
        return None if watch is None else watch.recovery(attempt, batch)

    def prepare(
        self, checkpoint: str, queries: Mapping[str, str], settings: Settings, catalogs: tuple[str, ...]
    ) -> None:
        """Make sure before a start that there is something whole to start from. Nobody uses it meanwhile.

        A way back that was begun and not finished is finished. After a failure the checkpoints are looked at.

        Args:
            checkpoint: The job's checkpoint; those of several queries are below it.
            queries: The checkpoints of the job's queries by name, as far as they are known.
            settings: What may be done.
            catalogs: Where the job's savepoints are.

        Raises:
            Corrupt: One is damaged, and going back was not asked for, or is not possible.
        """
        self._ways = under_way(checkpoint)
        for way in self._ways:
            finish(way, catalogs)
        if self._watch is None:
            return
        began = time.monotonic()
        if settings.verify_ms is not None:
            damaged, notes = look(queries, self._home, settings.verify_ms)
            for note in notes:
                self._say("looked", note)
            for damage in damaged:
                self._go_back(damage, settings, catalogs, self._watch)
        self._watch.size = size_of(queries.values())
        self._watch.verify_ms = int((time.monotonic() - began) * 1000)

    def to_repeat(self) -> dict[str, str]:
        """The damaged checkpoints whose batches are to be run again, by query."""
        return {way.query: way.aside for way in self._ways}

    def repeated(self, query: str, last: int | None, promise: str) -> None:
        """A query's lost batches have been run again up to a last one, as far as their input is known."""
        for way in [way for way in self._ways if way.query == query]:
            self._ways.remove(way)
            done(way)
            lost = way.newest - way.batch_id
            # A batch that was planned and not committed runs again too; it was not lost.
            batches = 0 if last is None else min(last, way.newest) - way.batch_id
            text = f"query {query}: {batches} of {lost} lost batches were run again with the same input"
            if batches < lost:
                text += "; what the others had written may come a second time"
            elif promise != "exactly once":
                text += f"; its sink promises {promise}, so it may hold rows of them twice"
            self._say("repeated", text, query=query, batches=batches, lost=lost)

    def _go_back(
        self, damage: Damage, settings: Settings, catalogs: tuple[str, ...], watch: Stopwatch
    ) -> None:
        if settings.fallback is None:
            raise damage.error(self._target)
        what = f"{damage.problem.file}: {damage.problem.what}"
        self._say("damaged", f"query {damage.query}: {what}", query=damage.query, **damage.problem.as_dict())
        way = go_back(damage, settings.fallback, catalogs, self._clock(), self._target)
        self._ways.append(way)
        watch.went_back = str(way)
        self._say("went-back", f"query {way.query} goes back to {way}", **way.as_dict())
