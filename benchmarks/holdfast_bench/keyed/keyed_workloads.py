"""What the keyed measurements run, and what is promised of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast_bench.keyed.keyed_data import Shape
from holdfast_bench.keyed.keyed_figures import MIB, Figures
from holdfast_bench.keyed.keyed_sides import ON_BATCH, ON_BATCH_COMBINED, ON_EVENT, ON_KEY, RAW, SQL
from holdfast_bench.measure import Result

WORKER_MIB = 256
RAW_BATCHES = 5
WARM_UP = 2
# A run without a large load before is over before the JVM has compiled what runs it.
LONG_WARM_UP = 10
# Small batches compete with the JVM's compiler, which works for about a minute.
LATENCY_WARM_UP = 300
LATENCY_BATCHES = 200
LATENCY_MS, LATENCY_P99_MS = 150, 250


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurements are.

    Args:
        keys: Keys in the state of the sparse workload.
        raw_keys: The same for raw `transformWithState`, which takes in about ten thousand new keys a
            second: filling it with ten million would take a quarter of an hour. Its speed hardly depends
            on the number, as its run over few keys shows.
        rows: Events in a batch.
        batches: Counted batches of a run. The raw side runs five at most.
    """

    keys: int = 10_000_000
    raw_keys: int = 1_000_000
    rows: int = 100_000
    batches: int = 50


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a workload's table: a side and what it is given.

    Args:
        label: What the row is called: the side, where it is there once.
        side: One of the sides.
        shape: What arrives.
        timed: With time to live and timers.
        warm_up: Batches that are not counted.
    """

    label: str
    side: str
    shape: Shape
    timed: bool = False
    warm_up: int = WARM_UP


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure worth comparing.

    Args:
        name: What it is called.
        about: The rows it is made of.
        measure: Makes it.
        bound: What is promised of it; None where nothing is.
        at_least: Whether the promise is a lower bound.
    """

    name: str
    about: tuple[str, ...]
    measure: Callable[..., float]
    bound: float | None = None
    at_least: bool = True


@dataclass(frozen=True, slots=True)
class Workload:
    """Sides that are measured against each other.

    Args:
        name: Its name in the results.
        what: What arrives, in a sentence.
        entries: What runs, in this order in each round.
        comparisons: What is compared.
        snapshots: Whether the bytes of snapshots matter and are waited for.
        latency: Whether the time of a batch is quoted and not its speed.
    """

    name: str
    what: str
    entries: tuple[Entry, ...]
    comparisons: tuple[Comparison, ...]
    snapshots: bool = False
    latency: bool = False

    def of_sides(self, sides: Collection[str]) -> Workload:
        """The same with some sides only."""
        return replace(self, entries=tuple(each for each in self.entries if each.side in sides))


@dataclass(frozen=True, slots=True)
class Part:
    """What one workload gave."""

    workload: Workload
    figures: Mapping[str, Figures]

    @property
    def results(self) -> tuple[Result, ...]:
        """The comparisons of which all sides ran."""
        return tuple(
            self._result(each) for each in self.workload.comparisons if set(each.about) <= set(self.figures)
        )

    def _result(self, comparison: Comparison) -> Result:
        sides = [self.figures[label] for label in comparison.about]
        rounds = list(zip(*(each.by_round for each in sides), strict=True))
        pairs = [comparison.measure(*each) for each in rounds] if len(rounds) > 1 else []
        return Result(comparison, comparison.measure(*sides), pairs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        keys = {each.label: each.shape.keys for each in self.workload.entries}
        sides = {
            label: {**figures.as_dict(latency=self.workload.latency), "keys": keys[label]}
            for label, figures in self.figures.items()
        }
        results = self.results
        return {
            "what": self.workload.what,
            **sides,
            "ratios": {each.comparison.name: round(each.value, 3) for each in results},
            "promises": [each.as_dict() for each in results if each.holds is not None],
        }


def workloads(sizes: Sizes) -> tuple[Workload, ...]:
    """Everything that can be measured."""
    return _dense(sizes), _dense_1m(sizes), _sparse(sizes), _latency(sizes), _ttl(sizes)


def _dense(sizes: Sizes) -> Workload:
    keys = max(1, sizes.rows // 2)
    return Workload(
        "dense",
        f"batches of {sizes.rows:,} events of {keys:,} users, most of whom each batch touches",
        _entries((RAW, SQL, ON_EVENT, ON_KEY, ON_BATCH), keys, sizes.rows, sizes.batches),
        (
            _speed(ON_BATCH, RAW, 10),
            _speed(ON_BATCH, SQL, 1),
            _speed(ON_EVENT, RAW, 6),
            _speed(ON_EVENT, SQL),
            _speed(ON_KEY, RAW),
            Comparison(f"{ON_EVENT}, events/s", (ON_EVENT,), lambda one: one.events_per_s, 110_000),
            _bytes(ON_BATCH, SQL, 1.5),
            _bytes(ON_EVENT, SQL, 1.5),
        ),
        snapshots=True,
    )


def _dense_1m(sizes: Sizes) -> Workload:
    keys, rows = max(1, sizes.rows // 2), 10 * sizes.rows
    sides = (RAW, SQL, ON_EVENT, ON_BATCH, ON_BATCH_COMBINED)
    return Workload(
        "dense_1m",
        f"batches of {rows:,} events of {keys:,} users",
        _entries(sides, keys, rows, min(sizes.batches, 10)),
        (
            _speed(ON_BATCH, RAW, 8),
            _speed(ON_BATCH, SQL),
            _speed(ON_EVENT, RAW),
            _speed(ON_BATCH_COMBINED, SQL, 0.6),
        ),
    )


def _sparse(sizes: Sizes) -> Workload:
    touched = max(1, sizes.rows * 97 // 100)
    many = Shape(sizes.keys, sizes.rows, sizes.batches + WARM_UP, touched, loaded=True)
    few = replace(many, keys=sizes.rows, batches=min(sizes.batches, 20) + LONG_WARM_UP)
    raw = min(sizes.batches, RAW_BATCHES) + WARM_UP
    return Workload(
        "sparse",
        f"batches of {sizes.rows:,} events of {touched:,} users, drawn from {sizes.keys:,} that all have "
        f"state (raw_tws: from {sizes.raw_keys:,}); with _few: from {sizes.rows:,}",
        (
            Entry(RAW, RAW, replace(many, keys=sizes.raw_keys, batches=raw)),
            *(Entry(side, side, many) for side in (SQL, ON_EVENT, ON_BATCH)),
            Entry(f"{RAW}_few", RAW, replace(few, batches=raw)),
            *(
                Entry(f"{side}_few", side, few, warm_up=LONG_WARM_UP)
                for side in (SQL, ON_EVENT, ON_BATCH)
            ),
        ),
        (
            _speed(ON_BATCH, RAW, 12),
            _speed(ON_BATCH, SQL, 1),
            _speed(ON_EVENT, RAW, 8),
            _speed(ON_EVENT, SQL),
            *(_time(side, f"{side}_few", 1.5) for side in (ON_BATCH, ON_EVENT)),
            *(_time(side, f"{side}_few") for side in (SQL, RAW)),
            *(
                _most(side, "slowest batch / median", lambda one: one.slowest, 2)
                for side in (ON_BATCH, ON_EVENT)
            ),
            Comparison(f"{SQL}, slowest batch / median", (SQL,), lambda one: one.slowest),
            *(_bytes(side, SQL, 2) for side in (ON_BATCH, ON_EVENT)),
            *(
                _most(side, "a worker's own memory in MiB", lambda one: one.private_bytes / MIB, WORKER_MIB)
                for side in (ON_BATCH, ON_EVENT)
            ),
        ),
        snapshots=True,
    )  # fmt: skip


def _latency(sizes: Sizes) -> Workload:
    keys, rows = max(1, sizes.rows // 2), max(1, sizes.rows // 1000)
    shape = Shape(keys, rows, LATENCY_BATCHES + LATENCY_WARM_UP, loaded=True)
    sides = (RAW, SQL, ON_EVENT, ON_BATCH)
    return Workload(
        "latency",
        f"batches of {rows:,} events of {keys:,} users that all have state, two partitions",
        tuple(Entry(side, side, shape, warm_up=LATENCY_WARM_UP) for side in sides),
        (
            *(
                _most(side, "time of a batch in ms", lambda one: one.median_ms, LATENCY_MS)
                for side in (ON_BATCH, ON_EVENT)
            ),
            *(
                _most(side, "99th percentile in ms", lambda one: one.p99_ms, LATENCY_P99_MS)
                for side in (ON_BATCH, ON_EVENT)
            ),
            _time(ON_BATCH, RAW, 1.2),
            _time(ON_EVENT, RAW, 1.2),
            _time(ON_BATCH, SQL),
            _time(ON_EVENT, SQL),
        ),
        latency=True,
    )


def _ttl(sizes: Sizes) -> Workload:
    keys = max(1, sizes.rows // 2)
    entries = {
        each.side: each
        for each in _entries((RAW, SQL, ON_EVENT, ON_BATCH), keys, sizes.rows, min(sizes.batches, 20))
    }
    sides = (RAW, ON_EVENT, ON_BATCH)
    return Workload(
        "ttl",
        "the dense batches with a time to live and one timer a user, which each batch moves; with _without: "
        "without them, as is sql, which has none",
        (
            *(replace(entries[side], timed=True) for side in sides),
            *(replace(entries[side], label=f"{side}_without") for side in sides),
            entries[SQL],
        ),
        (
            *(_time(side, f"{side}_without", 1.25) for side in (ON_BATCH, ON_EVENT)),
            _time(RAW, f"{RAW}_without"),
            *(_speed(side, RAW) for side in (ON_BATCH, ON_EVENT)),
        ),
    )


def _entries(sides: tuple[str, ...], keys: int, rows: int, batches: int) -> tuple[Entry, ...]:
    """A row a side; the raw one is slow and gets few batches, the same ones."""
    counts = {side: min(batches, RAW_BATCHES) if side == RAW else batches for side in sides}
    return tuple(Entry(side, side, Shape(keys, rows, counts[side] + WARM_UP)) for side in sides)


def _most(side: str, what: str, measure: Callable[[Figures], float], bound: float) -> Comparison:
    return Comparison(f"{side}, {what}", (side,), measure, bound, at_least=False)


def _speed(one: str, other: str, bound: float | None = None) -> Comparison:
    def measure(ours: Figures, theirs: Figures) -> float:
        return ours.events_per_s / theirs.events_per_s

    return Comparison(f"{one} / {other}", (one, other), measure, bound)


def _time(one: str, other: str, bound: float | None = None) -> Comparison:
    def measure(ours: Figures, theirs: Figures) -> float:
        return ours.median_ms / theirs.median_ms

    return Comparison(f"{one} / {other}, time of a batch", (one, other), measure, bound, at_least=False)


def _bytes(one: str, other: str, bound: float) -> Comparison:
    def measure(ours: Figures, theirs: Figures) -> float:
        return ours.bytes_per_batch / theirs.bytes_per_batch

    name = f"{one} / {other}, checkpoint bytes of a batch"
    return Comparison(name, (one, other), measure, bound, at_least=False)
