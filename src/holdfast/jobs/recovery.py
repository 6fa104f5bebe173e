"""The phases of a recovery: measured, stored, and predicted.

The model is simple on purpose. Each phase is expected to take what it took in the median of the newest
samples; only loading depends on the state: so long for each byte that is read, and so long for each file of
changes that is replayed, both fitted by least squares. The error is what the model would have been wrong by
in the median, had it been asked about each of its samples with the others alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.checkpoints.checkpoint import read
from holdfast.config.policies import Recovery
from holdfast.errors import HoldfastError
from holdfast.jobs.events import Say
from holdfast.jobs.rollback import CheckpointDamage, Rollback, done, finish, go_back, look, under_way
from holdfast.json_shapes import JsonShape, in_json
from holdfast.model import BatchProgress, SavepointNote
from holdfast.savepoints.catalog import Drill, drills, split_address
from holdfast.storage import open_storage

# What a recovery consists of, in order: noticing that the driver failed, and its end; the strategy's pause;
# looking whether the checkpoint is whole, with the way back to an older one if that was asked for; the job
# file, Spark and the queries; loading state; running the first batch; writing down that it is committed.
PHASES: Final = ("detect", "pause", "verify", "start", "load", "replay", "commit")


@dataclass(frozen=True, slots=True)
class StateSize:
    """The state that a restart loads.

    Attributes:
        state_bytes: The bytes of the state's files that the newest batch needs.
        change_files: How many files of changes among them are replayed on top of snapshots.
    """

    state_bytes: int
    change_files: int


@dataclass(frozen=True, slots=True)
class RecoveryTimes(JsonShape):
    """The phases of a job's recovery.

    Attributes:
        attempt: The attempt that recovered it.
        at_ms: When it failed, or was last heard of.
        cause: What kind of failure it was, and its line.
        phases_ms: What each of `PHASES` took; their sum is the recovery.
        idle_ms: How long the started queries then waited for input. Not counted.
        load_ms: What the tasks of the first batch took together to load state, where Spark tells it.
        slots: How many tasks could run at the same time.
        size: What had to be loaded; None if that could not be found out.
        went_back: Where it went on from, if not from the newest batch.
    """

    attempt: int
    at_ms: int
    cause: str
    phases_ms: Mapping[str, int]
    idle_ms: int = 0
    load_ms: int | None = None
    slots: int = 1
    size: StateSize | None = None
    went_back: str | None = None

    @property
    @in_json
    def recovery_ms(self) -> int:
        """From the failure to the first committed batch, without waiting for input."""
        return sum(self.phases_ms.values())


@dataclass(slots=True)
class Stopwatch:
    """The moments of a recovery as they pass, in epoch milliseconds.

    Attributes:
        failed: When the driver failed, as far as that is known.
        cause: What kind of failure it was, and its line.
        ended: When its end had been noticed, and nothing of it was left.
        resumed: When the strategy's pause was over.
        verify_ms: How long the checkpoint was looked at, between that and the start of the queries.
        running: When the queries had been started.
        slots: How many tasks can run at the same time.
        size: What has to be loaded.
        went_back: Where it continues from, if not from the newest batch.
    """

    failed: int
    cause: str
    ended: int
    resumed: int = 0
    verify_ms: int = 0
    running: int = 0
    slots: int = 1
    size: StateSize | None = None
    went_back: str | None = None

    def recovery(self, attempt: int, batch: BatchProgress) -> RecoveryTimes:
        """Return the phases of the recovery, at its first committed batch."""
        resumed = max(self.resumed, self.ended)
        running = max(self.running, resumed + self.verify_ms)
        began = max(batch.committed_ms - batch.duration_ms, running)
        work = min(batch.duration_ms, max(batch.committed_ms - running, 0))
        commit = min(batch.commit_ms, work)
        # What tasks took together, divided by those at the same time: an estimate.
        load = min((batch.load_ms or 0) // max(self.slots, 1), work - commit)
        phases = (
            max(self.ended - self.failed, 0),
            resumed - self.ended,
            self.verify_ms,
            running - resumed - self.verify_ms,
            load,
            work - commit - load,
            commit,
        )
        return RecoveryTimes(
            attempt=attempt,
            at_ms=self.failed,
            cause=self.cause,
            phases_ms=dict(zip(PHASES, phases, strict=True)),
            idle_ms=began - running,
            load_ms=batch.load_ms,
            slots=self.slots,
            size=self.size,
            went_back=self.went_back,
        )


# Samples that count: a job changes, and so does its machine.
SAMPLES: Final = 20
_LOAD: Final = "load"
# The phases of a drill, and what they are in a recovery. It tells nothing of the others.
_DRILLED: Final = {"job file": "start", "Spark": "start", "plan": "start", "first batch": "replay"}


@dataclass(frozen=True, slots=True)
class RecoverySample:
    """A recovery or a drill, as the model sees it.

    Attributes:
        phases_ms: What the phases took that were measured.
        size: What had to be loaded; None if it is not known.
        whole: Whether all phases were measured, so that the model can be compared with it.
    """

    phases_ms: Mapping[str, int]
    size: StateSize | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Prediction(JsonShape):
    """The expected duration of the next recovery.

    Attributes:
        recovery_ms: All of it.
        phases_ms: Its phases.
        error_ms: By how much the model is wrong in the median; None while there are too few recoveries.
        recoveries: How many recoveries it was fitted to.
        drills: How many drills.
        size: What would have to be loaded; None if that is not known, and then loading is taken as before.
    """

    recovery_ms: int
    phases_ms: Mapping[str, int]
    error_ms: int | None
    recoveries: int
    drills: int
    size: StateSize | None


def predict(
    recoveries: Sequence[RecoveryTimes], rehearsals: Iterable[Drill], size: StateSize | None
) -> Prediction | None:
    """Predict the next recovery; None without data.

    Args:
        recoveries: The job's recoveries, oldest first.
        rehearsals: Drills with the job, oldest first.
        size: What would have to be loaded now.
    """
    slots = recoveries[-1].slots if recoveries else 1
    measured = [
        RecoverySample(recovery.phases_ms, recovery.size, whole=True) for recovery in recoveries[-SAMPLES:]
    ]
    rehearsed = [sample_of(drill, slots) for drill in rehearsals if drill.job is not None][-SAMPLES:]
    samples = [*rehearsed, *measured]
    if not samples:
        return None
    phases = _expected(samples, size)
    return Prediction(
        recovery_ms=sum(phases.values()),
        phases_ms=phases,
        error_ms=_error_ms(samples),
        recoveries=len(measured),
        drills=len(rehearsed),
        size=size,
    )


def sample_of(drill: Drill, slots: int) -> RecoverySample:
    """A drill, with so many tasks at the same time, as far as it is like a recovery."""
    phases: dict[str, int] = {}
    for phase, took in drill.phases_ms.items():
        name = _DRILLED.get(phase)
        if name is not None:
            phases[name] = phases.get(name, 0) + took
    load = min((drill.load_ms or 0) // max(slots, 1), phases.get("replay", 0))
    phases[_LOAD] = load
    phases["replay"] = phases.get("replay", 0) - load
    # How many files of changes there were is not noted of a drill, so it does not count for loading.
    return RecoverySample(phases, None, whole=False)


def size_of(checkpoints: Iterable[str]) -> StateSize | None:
    """Return the state that queries with these checkpoints would load; None if one cannot be read.

    Cost: the checkpoints' folders are listed, and a few small files of each are read.
    """
    size = files = 0
    try:
        for address in checkpoints:
            stores = [
                store for operator in read(open_storage(address)).operators for store in operator.stores
            ]
            size += sum(store.size_bytes for store in stores)
            files += sum(max(len(store.files) - 1, 0) for store in stores)
    except HoldfastError:
        return None
    return StateSize(size, files)


def drills_of(notes: Iterable[SavepointNote], query_ids: Container[str]) -> list[Drill]:
    """The drills with a job's queries in the catalogs of its savepoints, oldest first.

    Cost: each catalog's drills are listed and read. One that does not answer is passed over.
    """
    catalogs = {split_address(note.uri)[0] for note in notes if note.uri is not None}
    matching: list[Drill] = []
    for address in sorted(catalogs):
        with suppress(HoldfastError):
            matching += [drill for drill in drills(open_storage(address)) if drill.query_id in query_ids]
    return sorted(matching, key=lambda drill: drill.at_ms)


def _expected(samples: Sequence[RecoverySample], size: StateSize | None) -> dict[str, int]:
    phases = {}
    for phase in PHASES:
        took = [sample.phases_ms[phase] for sample in samples if phase in sample.phases_ms]
        phases[phase] = round(statistics.median(took)) if took else 0
    sized = [(sample.size, sample.phases_ms[_LOAD]) for sample in samples if sample.size is not None]
    if size is not None and sized:
        by_byte, by_file = _fit(sized)
        phases[_LOAD] = round(by_byte * size.state_bytes + by_file * size.change_files)
    return phases


def _fit(sized: Sequence[tuple[StateSize, int]]) -> tuple[float, float]:
    """Milliseconds for each byte and for each file of changes, by least squares; neither is negative."""
    bytes_2 = sum(size.state_bytes**2 for size, _ in sized)
    files_2 = sum(size.change_files**2 for size, _ in sized)
    both = sum(size.state_bytes * size.change_files for size, _ in sized)
    bytes_took = sum(size.state_bytes * took for size, took in sized)
    files_took = sum(size.change_files * took for size, took in sized)
    determinant = bytes_2 * files_2 - both**2
    # Where both have always grown alike, one of them says all there is to say.
    if determinant > 1e-9 * bytes_2 * files_2:
        by_byte = (bytes_took * files_2 - files_took * both) / determinant
        by_file = (files_took * bytes_2 - bytes_took * both) / determinant
        if by_byte >= 0 and by_file >= 0:
            return by_byte, by_file
    alone = [(bytes_took / bytes_2, 0.0)] if bytes_2 else []
    alone += [(0.0, files_took / files_2)] if files_2 else []
    return min(alone, key=lambda fit: _misses(sized, *fit), default=(0.0, 0.0))


def _misses(sized: Sequence[tuple[StateSize, int]], by_byte: float, by_file: float) -> float:
    return sum((by_byte * size.state_bytes + by_file * size.change_files - took) ** 2 for size, took in sized)


def _error_ms(samples: Sequence[RecoverySample]) -> int | None:
    misses = []
    for number, sample in enumerate(samples):
        others = [*samples[:number], *samples[number + 1 :]]
        if sample.whole and others:
            expected = sum(_expected(others, sample.size).values())
            misses.append(abs(expected - sum(sample.phases_ms.values())))
    return round(statistics.median(misses)) if misses else None


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
        """Return whether the job has failed and not committed a batch since."""
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

    def first_commit(self, attempt: int, batch: BatchProgress) -> RecoveryTimes | None:
        """Return the phases of the recovery at its first committed batch; else None."""
        watch, self._watch = self._watch, None
        return None if watch is None else watch.recovery(attempt, batch)

    def prepare(
        self, checkpoint: str, queries: Mapping[str, str], settings: Recovery, catalogs: tuple[str, ...]
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
        self, damage: CheckpointDamage, settings: Recovery, catalogs: tuple[str, ...], watch: Stopwatch
    ) -> None:
        if settings.fallback is None:
            raise damage.error(self._target)
        what = f"{damage.problem.file}: {damage.problem.what}"
        self._say("damaged", f"query {damage.query}: {what}", query=damage.query, **damage.problem.as_dict())
        way = go_back(damage, settings.fallback, catalogs, self._clock(), self._target)
        self._ways.append(way)
        watch.went_back = str(way)
        self._say("went-back", f"query {way.query} goes back to {way}", **way.as_dict())
