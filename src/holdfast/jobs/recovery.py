"""The phases of a recovery: measured, stored, and predicted.

The model is simple on purpose. Each phase is expected to take the median of the newest samples. Only loading
depends on the state: a time per byte read and a time per replayed change file, both fitted by least squares.
The error is the median error of the model on each sample when fitted to the others (leave-one-out).
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
from holdfast.jobs.checkpoint_damage import CheckpointDamage, look
from holdfast.jobs.events import Say
from holdfast.jobs.rollback import Require, Rollback, done, finish, go_back, ignore_lease, under_way
from holdfast.json_shapes import JsonShape, in_json
from holdfast.model import BatchProgress, SavepointNote
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import Drill, drills
from holdfast.storage import open_storage
from holdfast.storage.successors import require_current

# What a recovery consists of, in order: noticing that the driver failed, and its end; the strategy's pause;
# looking whether the checkpoint is whole, with the way back to an older one if that was asked for; the job
# file, Spark and the queries; loading state; running the first batch; writing down that it is committed.
PHASES: Final = ("detect", "pause", "verify", "start", "load", "replay", "commit")


@dataclass(frozen=True, slots=True)
class StateSize:
    """The state that a restart loads.

    Attributes:
        state_bytes: The size of the state files that the newest batch needs.
        change_files: The number of change files among them, which are replayed on top of snapshots.
    """

    state_bytes: int
    change_files: int


@dataclass(frozen=True, slots=True)
class RecoveryTimes(JsonShape):
    """The phases of a job's recovery.

    Attributes:
        attempt: The attempt that completed the recovery.
        at_ms: The time of the failure, or of the last sign of life.
        cause: The class of the failure, and its line.
        phases_ms: The duration of each of `PHASES`; their sum is the recovery.
        idle_ms: The time that the started queries then waited for input; not counted.
        load_ms: The time that all tasks of the first batch spent loading state, if Spark reports it.
        slots: The number of tasks that could run at the same time.
        size: The state that was loaded; None if unknown.
        went_back: The older batch from which it resumed after a fallback; else None.
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
        """The time from the failure to the first committed batch, without waiting for input."""
        return sum(self.phases_ms.values())


@dataclass(slots=True)
class Stopwatch:
    """The moments of a running recovery, in epoch milliseconds.

    Attributes:
        failed: The time when the driver failed, if known.
        cause: The class of the failure, and its line.
        ended: The time when its end was noticed and all its processes were gone.
        resumed: The time when the restart strategy's pause was over.
        verify_ms: The duration of the verification of the checkpoint before the queries start.
        running: The time when the queries had started.
        slots: The number of tasks that can run at the same time.
        size: The state to load.
        went_back: The older batch from which it resumes after a fallback; else None.
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
    """A recovery or a drill as input of the model.

    Attributes:
        phases_ms: The durations of the measured phases.
        size: The state that was loaded; None if unknown.
        whole: True if all phases were measured, so that the model can be compared with it.
    """

    phases_ms: Mapping[str, int]
    size: StateSize | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Prediction(JsonShape):
    """The expected duration of the next recovery.

    Attributes:
        recovery_ms: The duration of the whole recovery.
        phases_ms: The duration of each phase.
        error_ms: The median error of the model; None while there are too few recoveries.
        recoveries: The number of recoveries that it was fitted to.
        drills: The number of drills that it was fitted to.
        size: The state to load; None if unknown, and then loading is expected to take as long as before.
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
        size: The state that would be loaded now.
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
    """Return a drill as a sample: the phases that it shares with a recovery."""
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

    Cost: the checkpoints' directories are listed, and a few small files of each are read.
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
    """Return the drills with a job's queries in the catalogs of its savepoints, oldest first.

    Cost: each catalog's drills are listed and read. A catalog that does not answer is skipped.
    """
    catalogs = {StateAddress.parse(note.uri).catalog for note in notes if note.uri is not None}
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
    """Fit milliseconds per byte and per change file by least squares; neither is negative."""
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
    """The recovery of one job, from a failure to the next commit, and the prediction of the next one.

    Args:
        home: The state home.
        target: The job file, for hints.
        clock: Returns epoch milliseconds.
        say: Reports events to the user.
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
        """True if the job has failed and not committed a batch since."""
        return self._watch is not None

    def failed(self, cause: str, failed_ms: int, ended_ms: int) -> None:
        """Record a failure, and the time when all of the driver's processes were gone."""
        self._watch = Stopwatch(failed_ms, cause, ended_ms)

    def resumed(self) -> None:
        """Record the end of the restart strategy's pause."""
        if self._watch is not None:
            self._watch.resumed = self._clock()

    def session(self, slots: int) -> None:
        """Record how many tasks can run at the same time."""
        if self._watch is not None:
            self._watch.slots = slots

    def running(self) -> None:
        """Record that the queries have started."""
        if self._watch is not None:
            self._watch.running = self._clock()

    def first_commit(self, attempt: int, batch: BatchProgress) -> RecoveryTimes | None:
        """Return the phases of the recovery at its first committed batch; else None."""
        watch, self._watch = self._watch, None
        return None if watch is None else watch.recovery(attempt, batch)

    def prepare(
        self,
        checkpoint: str,
        queries: Mapping[str, str],
        settings: Recovery,
        catalogs: tuple[str, ...],
        require: Require = ignore_lease,
    ) -> None:
        """Check before a start that the checkpoints are whole, and fall back if not. They must not be in use.

        An unfinished fallback is finished first. After a failure the checkpoints are verified.

        Args:
            checkpoint: The job's checkpoint; those of several queries are below it.
            queries: The known checkpoints of the job's queries, by name.
            settings: The recovery settings.
            catalogs: The catalogs of the job's savepoints.
            require: Checks that this process owns the checkpoint, before it is replaced.

        Raises:
            Corrupt: A checkpoint is damaged or missing, and no fallback is configured or possible.
        """
        self._ways = under_way(checkpoint)
        for way in self._ways:
            finish(way, catalogs, require)
        if self._watch is None:
            return
        began = time.monotonic()
        queries = {query: require_current(address) for query, address in queries.items()}
        if settings.verify_ms is not None:
            damaged, notes = look(queries, self._home, settings.verify_ms)
            for note in notes:
                self._say("looked", note)
            for damage in damaged:
                way = self._go_back(damage, settings, catalogs, self._watch, require)
                queries[way.query] = way.checkpoint
        self._watch.size = size_of(queries.values())
        self._watch.verify_ms = int((time.monotonic() - began) * 1000)

    def to_repeat(self) -> dict[str, str]:
        """Return the damaged checkpoints whose batches are to be run again, by query."""
        return {way.query: way.aside for way in self._ways}

    def repeated(self, query: str, last: int | None, promise: str) -> None:
        """Report which of a query's lost batches were run again; only those with a known input can be."""
        for way in [way for way in self._ways if way.query == query]:
            self._ways.remove(way)
            done(way)
            lost = way.newest - way.batch_id
            # A batch that was planned and not committed runs again too; it was not lost.
            batches = 0 if last is None else min(last, way.newest) - way.batch_id
            text = f"query {query}: {batches} of {lost} lost batches were run again with the same input"
            if batches < lost:
                text += "; output of the others may be duplicated"
            elif promise != "exactly once":
                text += f"; the sink's guarantee is {promise}, so their rows may be duplicated"
            self._say("repeated", text, query=query, batches=batches, lost=lost)

    def _go_back(
        self,
        damage: CheckpointDamage,
        settings: Recovery,
        catalogs: tuple[str, ...],
        watch: Stopwatch,
        require: Require,
    ) -> Rollback:
        if settings.fallback is None:
            raise damage.error(self._target)
        what = f"{damage.problem.file}: {damage.problem.what}"
        self._say("damaged", f"query {damage.query}: {what}", query=damage.query, **damage.problem.as_dict())
        way = go_back(damage, settings.fallback, catalogs, self._clock(), self._target, require)
        self._ways.append(way)
        watch.went_back = str(way)
        self._say("went-back", f"query {way.query} falls back to {way}", **way.as_dict())
        return way
