"""Hot keys: what one costs, and what splitting it gains."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast_bench.measure import Result, measured_apart, note, pairs
from holdfast_bench.skew.skew_data import Events, write
from holdfast_bench.skew.skew_process import Measured, Task, measured_from
from holdfast_bench.skew.skew_sides import SIDES


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        rows: Events.
        batches: In so many counted batches; two more of the same size warm up. A task takes a fixed time
            besides that of its events, so the more batches the less of a task's time is a hot key's. Sides
            that run by turns have more of them.
        keys: Different keys, two at least.
        tasks: Partitions of the shuffle, and parts of a hot key.
    """

    rows: int = 2_000_000
    batches: int = 1
    keys: int = 20_000
    tasks: int = 8


@dataclass(frozen=True, slots=True)
class Comparison:
    """One side's figure against another's.

    Attributes:
        name: What it says.
        one: The side above the line.
        other: The side below it.
        figure: `slowest_ms`, `ms` or `processor_ms`.
        bound: What is promised, if something is.
        at_least: Whether the bound is a least value or a largest.
    """

    name: str
    one: str
    other: str
    figure: str
    bound: float | None = None
    at_least: bool = True


def _without_skew(answer: str) -> tuple[Comparison, ...]:
    """What a split costs that gains nothing; the control is the query that is not split, once more."""
    return tuple(
        Comparison(
            f"{answer} without skew: {side} / not, {what}",
            f"{answer}_even_{side}",
            f"{answer}_even",
            figure,
            bound,
            at_least=False,
        )
        for side, what, figure, bound in (
            ("split", "time", "ms", 1.03),
            ("split", "processor", "processor_ms", 1.03),
            ("control", "time", "ms", None),
            ("control", "processor", "processor_ms", None),
        )
    )


COMPARISONS: Final = (
    Comparison("join: slowest task / of the split one", "join", "join_split", "slowest_ms", 3),
    Comparison("join: batch / of the split one", "join", "join_split", "ms"),
    *_without_skew("join"),
    Comparison("keyed: slowest task / of the split one", "keyed", "keyed_split", "slowest_ms", 3),
    Comparison("keyed: batch / of the split one", "keyed", "keyed_split", "ms"),
    *_without_skew("keyed"),
    Comparison(
        "aggregate: slowest task with a hot key / without", "aggregate", "aggregate_even", "slowest_ms"
    ),
    Comparison(
        "table: slowest task / of the split one", "table_aggregate", "table_aggregate_split", "slowest_ms"
    ),
    Comparison("table: time / of the split one", "table_aggregate", "table_aggregate_split", "ms"),
)


@dataclass(frozen=True, slots=True)
class Skew:
    """What was measured, by side.

    Attributes:
        sizes: How large it was.
        runs: Each side's runs.
    """

    sizes: Sizes
    runs: Mapping[str, Sequence[Measured]]

    def median(self, side: str, figure: str) -> float:
        """The figure of a side to quote, over the batches of all its runs."""
        return float(statistics.median(self._each(side, figure)))

    def _each(self, side: str, figure: str) -> list[int]:
        return [ms for run in self.runs[side] for ms in getattr(run, figure)]

    def batch_events(self, side: str) -> int:
        """How many events a batch of a side has."""
        return self.sizes.rows // (self.sizes.batches * SIDES[side].finer)

    @property
    def results(self) -> list[Result]:
        """The comparisons of which both sides ran."""
        return [self._result(each) for each in COMPARISONS if {each.one, each.other} <= set(self.runs)]

    def _result(self, comparison: Comparison) -> Result:
        one, other, figure = comparison.one, comparison.other, comparison.figure
        if not SIDES[one].by_turns:
            return Result(comparison, self.median(one, figure) / max(1.0, self.median(other, figure)))
        found = pairs(self._each(one, figure), [max(1, ms) for ms in self._each(other, figure)])
        return Result(comparison, statistics.median(found), found)

    @property
    def identical(self) -> bool:
        """Whether all sides with one answer over the same events gave the same rows."""
        answers: dict[tuple[str, bool], set[tuple[int, int]]] = {}
        for name, runs in self.runs.items():
            found = answers.setdefault((SIDES[name].answer, SIDES[name].hot), set())
            found.update((run.rows, run.content) for run in runs)
        return all(len(each) == 1 for each in answers.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        results = self.results
        return {
            "sizes": asdict(self.sizes),
            "sides": {
                name: {
                    "batch_events": self.batch_events(name),
                    "batch_ms": self.median(name, "ms"),
                    "slowest_task_ms": self.median(name, "slowest_ms"),
                    "processor_ms": self.median(name, "processor_ms"),
                    "batches": sum(len(run.ms) for run in runs),
                    "rows": runs[0].rows,
                }
                for name, runs in self.runs.items()
            },
            "identical": self.identical,
            "ratios": {each.comparison.name: round(each.value, 3) for each in results},
            "within": {
                each.comparison.name: [round(value, 3) for value in within]
                for each in results
                if (within := each.within) is not None
            },
            "promises": [each.as_dict() for each in results if each.holds is not None],
        }


def skew(
    sizes: Sizes, *, rounds: int = 1, sides: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> Skew:
    """Measure the sides, in processes that take turns; those that run by turns are in one.

    Raises:
        Invalid: There is no such side.
        Failed: A side did not come to its end.
    """
    wrong = [each for each in sides if each not in SIDES]
    if wrong:
        raise Invalid("unknown side", found=", ".join(wrong), expected=", ".join(SIDES))
    chosen = [each for each in SIDES if not sides or each in sides]
    runs: dict[str, list[Measured]] = {each: [] for each in chosen}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        files: dict[tuple[bool, int], Events] = {}
        for hot, finer in sorted({_events(each) for each in chosen}):
            place = folder / f"{'hot' if hot else 'even'}-{finer}"
            batches = sizes.batches * finer
            files[hot, finer] = write(place, hot=hot, rows=sizes.rows, batches=batches, keys=sizes.keys)
        for number in range(rounds):
            for together in _together(chosen):
                say(f"measuring skew: {', '.join(together)}, round {number + 1} of {rounds} …")
                for each, run in _run(together, files[_events(together[0])], folder, sizes.tasks).items():
                    runs[each].append(run)
                    note(each, *(ms / 1000 for ms in run.ms))
    return Skew(sizes, runs)


def _events(side: str) -> tuple[bool, int]:
    """Which events a side reads."""
    return SIDES[side].hot, SIDES[side].finer


def _together(sides: Sequence[str]) -> list[list[str]]:
    """The sides by the process that they are measured in."""
    found: dict[tuple[bool, str], list[str]] = {}
    for each in sides:
        side = SIDES[each]
        found.setdefault((side.by_turns, side.answer if side.by_turns else each), []).append(each)
    return list(found.values())


def _run(sides: Sequence[str], files: Events, folder: Path, tasks: int) -> dict[str, Measured]:
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place:
        task = Task(sides, str(files.events), str(files.offers), tasks, place)
        ran = measured_apart("holdfast_bench.skew.skew_process", asdict(task), ", ".join(sides))
        return {each: measured_from(fields) for each, fields in ran.items()}
