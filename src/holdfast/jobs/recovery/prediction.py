"""How long the next recovery will take, told from the ones before and from drills.

The model is simple on purpose. Each phase is expected to take what it took in the median of the newest
samples; only loading depends on the state: so long for each byte that is read, and so long for each file of
changes that is replayed, both fitted by least squares. The error is what the model would have been wrong by
in the median, had it been asked about each of its samples with the others alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast.checkpoints.checkpoint import read
from holdfast.errors import HoldfastError
from holdfast.jobs.recovery.timings import PHASES, Recovery, StateSize
from holdfast.json_shapes import JsonShape
from holdfast.model import SavepointNote
from holdfast.savepoints.catalog.catalog import split_address
from holdfast.savepoints.catalog.drills import Drill, drills
from holdfast.storage import open_storage

# Samples that count: a job changes, and so does its machine.
SAMPLES: Final = 20
_LOAD: Final = "load"
# The phases of a drill, and what they are in a recovery. It tells nothing of the others.
_DRILLED: Final = {"job file": "start", "Spark": "start", "plan": "start", "first batch": "replay"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A recovery or a drill, as the model sees it.

    Attributes:
        phases_ms: What the phases took that were measured.
        size: What had to be loaded; None if it is not known.
        whole: Whether all phases were measured, so that the model can be held against it.
    """

    phases_ms: Mapping[str, int]
    size: StateSize | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Prediction(JsonShape):
    """How long the next recovery is expected to take.

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
    recoveries: Sequence[Recovery], rehearsals: Iterable[Drill], size: StateSize | None
) -> Prediction | None:
    """What the next recovery will take; None if there is nothing to tell it from.

    Args:
        recoveries: The job's recoveries, oldest first.
        rehearsals: Drills with the job, oldest first.
        size: What would have to be loaded now.
    """
    slots = recoveries[-1].slots if recoveries else 1
    measured = [Sample(recovery.phases_ms, recovery.size, whole=True) for recovery in recoveries[-SAMPLES:]]
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


def sample_of(drill: Drill, slots: int) -> Sample:
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
    return Sample(phases, None, whole=False)


def size_of(checkpoints: Iterable[str]) -> StateSize | None:
    """What queries with these checkpoints would have to load; None if one of them cannot be read.

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


def _expected(samples: Sequence[Sample], size: StateSize | None) -> dict[str, int]:
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


def _error_ms(samples: Sequence[Sample]) -> int | None:
    misses = []
    for number, sample in enumerate(samples):
        others = [*samples[:number], *samples[number + 1 :]]
        if sample.whole and others:
            expected = sum(_expected(others, sample.size).values())
            misses.append(abs(expected - sum(sample.phases_ms.values())))
    return round(statistics.median(misses)) if misses else None
