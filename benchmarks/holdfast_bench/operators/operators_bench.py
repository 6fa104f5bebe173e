"""Operators that compile to Spark's plan: Holdfast's words beside the same query by hand, watched and not.

The proof that an operator costs nothing is that both have the same optimised plan: Spark does the same work.
Times are told beside it, and what runs take of the processors; equal queries differ by a tenth in both, for
reasons of their own. A watch adds to the plan. What it takes is measured where little else is done, and held
against what the query takes without it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.engine.planned_state import optimised_plan
from holdfast.errors import Invalid
from holdfast.quantities import counted
from holdfast_bench.measure import Bench, Series, beside, measured_apart, note
from holdfast_bench.operators.operator_queries import NAMES, WATCHED, Streams, pairs, write
from holdfast_bench.operators.watch_cost import watch_cost
from holdfast_bench.turns import by_turns, measuring

SIDES = ("holdfast", "by hand")
_PROCESSOR = "processor time"
_PLANS = "plans that differ"
_WITH = "a batch with its watch / without, by the parts of a watch"
# Watching is promised to cost little of what a split can make faster; a windowed sum takes so little itself
# that the look is more of it. `control` is one query on both sides, and says how much of a figure is noise.
BOUND = 1.01
_UNBOUND = "watched"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the streams are: rows in a batch of each stream, and counted batches in a run."""

    rows: int = 100_000
    batches: int = 10


def operators(
    sizes: Sizes,
    *,
    runs: int,
    only: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Time the batches of each operator and of the same query in plain PySpark, by turns in one session.

    The next operator has a session of its own; each figure is told as soon as it is there. One run of each
    side is not counted, and neither is the first batch of a run.

    Args:
        sizes: How large everything is.
        runs: Counted runs of each side.
        only: The operators to measure, all by default.
        say: Told what is being measured, and what came of it.

    Raises:
        Invalid: There is no such operator.
        Failed: A query did not come to its end.
    """
    wrong = [each for each in only if each not in NAMES]
    if wrong:
        raise Invalid("unknown operator", found=", ".join(wrong), expected=", ".join(NAMES))
    series: list[Series] = []
    ratios: dict[str, float] = {}
    bounds: dict[str, float] = {}
    names = [each for each in NAMES if not only or each in only]
    if set(names) & set(WATCHED):
        say(f"measuring what a watch takes: {runs} runs with it and without …")
        cost = watch_cost(runs)
        series += [Series("a watch, a million rows", cost.million), Series("a watch, a batch", cost.batch)]
    for name in names:
        say(f"measuring {name}: {counted(runs, 'run')} of each side …")
        taken = _taken({**asdict(sizes), "runs": runs, "name": name})
        # Batch by batch, and run by run.
        times = f"{name}, {SIDES[0]} / {SIDES[1]}"
        ratios[times] = beside(*(taken[side] for side in SIDES))
        work = f"{name}, {_PROCESSOR}"
        ratios[work] = beside(*(taken[_processor(side)] for side in SIDES))
        [differ] = taken.pop(_PLANS)
        say(f"{times} = {ratios[times]:.3f}; {_PROCESSOR} {ratios[work]:.3f}; {_PLANS} {differ:.0f}")
        series += [Series(f"{name}, {each}", tuple(taken[each])) for each in taken]
        for each, seconds in taken.items():
            note(f"{name}, {each}", *seconds)
        if name not in WATCHED:
            plans = f"{name}, {_PLANS}"
            ratios[plans], bounds[plans] = differ, 0
            continue
        # All batches of a run take of the processor, the one that is not timed too.
        batch = statistics.median(taken[_processor(SIDES[1])]) / (sizes.batches + 1)
        watch = f"{name}, {_WITH}"
        ratios[watch] = cost.beside(sizes.rows, batch)
        if name != _UNBOUND:
            bounds[watch] = BOUND
    what = (
        f"batches of {sizes.rows:,} rows a stream; `control` is one query on both sides, the keys of "
        f"{', '.join(WATCHED)} are watched for skew on the first"
    )
    return Bench("operators", what, tuple(series), ratios, bounds)


def _processor(side: str) -> str:
    return f"{side}, {_PROCESSOR} of a run"


def _taken(task: Mapping[str, Any]) -> dict[str, list[float]]:
    """Measure one operator in a process of its own: each side's batches, processor time of runs, and plan."""
    found: dict[str, list[float]] = measured_apart(
        "holdfast_bench.operators.operators_bench", task, task["name"]
    )
    return found


def _measure(task: Mapping[str, Any]) -> dict[str, list[float]]:
    """Run both sides in this process."""
    with measuring() as (spark, folder):
        write(folder, task["rows"], task["batches"] + 1)
        frames = dict(zip(SIDES, pairs(Streams(spark, folder))[task["name"]](), strict=True))
        taken: dict[str, list[float]] = {}
        for side, runs in by_turns(frames, folder, task["runs"]).items():
            taken[side] = [seconds for run in runs for seconds in run.batches]
            taken[_processor(side)] = [run.processor for run in runs]
        ours, theirs = map(optimised_plan, frames.values())
    return {**taken, _PLANS: [float(ours != theirs)]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read()))) + "\n")
