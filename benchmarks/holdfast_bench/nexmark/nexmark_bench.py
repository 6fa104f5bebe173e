"""Nexmark on Holdfast, on plain PySpark and on Flink, by turns: events per second of each query."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Failed, Invalid
from holdfast_bench.measure import Result, measured_apart, note, pairs
from holdfast_bench.nexmark.events import write, write_csv
from holdfast_bench.nexmark.holdfast_queries import HOLDFAST, PYSPARK, QUERIES
from holdfast_bench.nexmark.spark_side import Run, Task
from holdfast_bench.peers.peers_bench import CORES, ENVIRONMENTS, environ_of
from holdfast_bench.turns import in_turn

FLINK: Final = "flink"
SIDES: Final = (HOLDFAST, PYSPARK, FLINK)
WARM_UP: Final = 3
# Flink's SQL has no q6, and its connector of files no lookups, as q13 needs.
NOT_IN_FLINK: Final = frozenset({"q6", "q13"})


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        rows: Events per batch: people, auctions and bids together.
        batches: Counted batches; three more warm up.
    """

    rows: int = 100_000
    batches: int = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """One side's speed over that of another.

    Attributes:
        name: What is compared.
        bound: None, since nothing is promised.
        at_least: True: more is better.
    """

    name: str
    bound: float | None = None
    at_least: bool = True


@dataclass(frozen=True, slots=True)
class Nexmark:
    """The results, by query and side.

    Attributes:
        sizes: How large the measurement was.
        runs: The runs of each query on each side.
        missing: The reason why a side did not run.
        failed: The reason why a query on a side has no result.
    """

    sizes: Sizes
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def speeds(self, query: str, side: str) -> list[float]:
        """Return the events per second of each run."""
        return [run.events / run.seconds for run in self.runs.get((query, side), [])]

    def core_seconds(self, query: str, side: str) -> float:
        """Return the processor seconds per million events, the median of all runs."""
        return statistics.median(1e6 * run.processor / run.events for run in self.runs[query, side])

    @property
    def results(self) -> list[Result]:
        """Holdfast's speed over that of each other side, for each query that both have run."""
        found = []
        for query in dict.fromkeys(query for query, _ in self.runs):
            ours = self.speeds(query, HOLDFAST)
            for side in (PYSPARK, FLINK):
                theirs = self.speeds(query, side)
                if ours and len(ours) == len(theirs):
                    ratios = pairs(ours, theirs)
                    name = f"{query}: {HOLDFAST} / {side}"
                    found.append(Result(Comparison(name), statistics.median(ratios), ratios))
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        queries: dict[str, dict[str, Any]] = {}
        for query, side in self.runs:
            speeds = self.speeds(query, side)
            queries.setdefault(query, {})[side] = {
                "events_per_s": round(statistics.median(speeds)),
                "events_per_s_per_core": round(statistics.median(speeds) / CORES),
                "min_events_per_s": round(min(speeds)),
                "max_events_per_s": round(max(speeds)),
                "core_s_per_million": round(self.core_seconds(query, side), 2),
                "runs": len(speeds),
            }
        return {
            "sizes": {**asdict(self.sizes), "warm_up": WARM_UP, "cores": CORES},
            "queries": queries,
            "results": [result.as_dict() for result in self.results],
            "not_installed": self.missing,
            "failed": self.failed,
        }


def nexmark(
    sizes: Sizes,
    *,
    runs: int,
    queries: Sequence[str] = (),
    sides: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Nexmark:
    """Measure the queries one after the other, the sides of each by turns, each run in a process of its own.

    Args:
        sizes: How large everything is.
        runs: Runs of each query on each side.
        queries: The queries to run, all by default.
        sides: The sides to run, all by default.
        say: Gets progress messages.

    Raises:
        Invalid: A query or side is unknown.
    """
    for what, given, known in (("query", queries, tuple(QUERIES)), ("side", sides, SIDES)):
        if wrong := [name for name in given if name not in known]:
            raise Invalid(f"unknown {what}", found=", ".join(wrong), expected=", ".join(known))
    found = Nexmark(sizes)
    chosen = [side for side in SIDES if not sides or side in sides]
    if FLINK in chosen and not (ENVIRONMENTS / "pyflink" / ".installed").exists():
        found.missing[FLINK] = "not installed: scripts/peers.sh pyflink"
        chosen.remove(FLINK)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        say("writing the events …")
        _write(folder, sizes, text=FLINK in chosen)
        for query in [query for query in QUERIES if not queries or query in queries]:
            able = [side for side in chosen if can_say(side, query)]
            for number in range(runs):
                for side in in_turn(able, number) if able else ():
                    if f"{query} {side}" in found.failed:
                        continue
                    say(f"measuring nexmark: {query} on {side}, round {number + 1} of {runs} …")
                    try:
                        run = _run(query, side, folder)
                    except Failed as error:
                        found.failed[f"{query} {side}"] = str(error)
                    else:
                        found.runs.setdefault((query, side), []).append(run)
                        note(f"{query} {side}", run.seconds)
    return found


def can_say(side: str, query: str) -> bool:
    """Return whether a side can express a query; Holdfast can express all."""
    if side == PYSPARK:
        return QUERIES[query].plain is not None
    return side != FLINK or query not in NOT_IN_FLINK


def _write(folder: Path, sizes: Sizes, *, text: bool) -> None:
    batches = WARM_UP + sizes.batches
    write(folder / "events", rows=sizes.rows, batches=batches)
    if text:
        parts = {"warm": range(WARM_UP), "counted": range(WARM_UP, batches)}
        for part, files in parts.items():
            write_csv(folder / "events", folder / "text" / part, files, CORES)


def _run(query: str, side: str, folder: Path) -> Run:
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place:
        counted = _counted_events(folder / "events", QUERIES[query].reads)
        task = Task(side, query, str(folder / "events"), WARM_UP, counted, place)
        if side != FLINK:
            return Run(**measured_apart(f"{__package__}.spark_side", asdict(task), f"{query} on {side}"))
        figures = measured_apart(
            f"{__package__}.flink_side",
            asdict(replace(task, events=str(folder / "text"))),
            f"{query} on {side}",
            python=str(ENVIRONMENTS / "pyflink" / "bin" / "python"),
            environ=environ_of("pyflink", folder),
        )
        return Run(**figures)


def _counted_events(events: Path, streams: Sequence[str]) -> int:
    """Return the number of counted events of some streams."""
    import pyarrow.parquet as pq

    files = [path for stream in streams for path in sorted((events / stream).iterdir())[WARM_UP:]]
    return sum(int(pq.read_metadata(path).num_rows) for path in files)
