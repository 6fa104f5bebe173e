"""One job on Spark, on Holdfast and on other engines, by turns: who finds the alerts, and how fast."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.engine.session.java import find_java, java_home_for_spark
from holdfast.errors import Failed, Invalid
from holdfast_bench.latency.kafka_node import HOME as KAFKA
from holdfast_bench.latency.kafka_node import kafka_node
from holdfast_bench.measure import measured_apart, note
from holdfast_bench.peers.peer_events import USERS, write
from holdfast_bench.peers.spark_sides import SPARK_SIDES
from holdfast_bench.peers.stopwatch import Run, Task
from holdfast_bench.turns import in_turn

# Every side has as many.
CORES: Final = 2
WARM_UP: Final = 2
ENVIRONMENTS: Final = Path(__file__).parents[3] / ".peers"
# The engines, each with its environment; the module is named after it.
ENGINES: Final[Mapping[str, str]] = {
    "bytewax": "bytewax",
    "bytewax_recovery": "bytewax",
    "pyflink": "pyflink",
    "pyflink_checkpoints": "pyflink",
    "pathway": "pathway",
    "quix": "quix",
    "csp": "csp",
}
# Options of the JVM of the Kafka broker.
_BROKER: Final = ("-Xmx1g",)
SIDES: Final = (*SPARK_SIDES, *ENGINES)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        rows: Events per batch.
        batches: Counted batches; two more warm up.
    """

    rows: int = 100_000
    batches: int = 10


@dataclass(frozen=True, slots=True)
class Peers:
    """The results, by side.

    Attributes:
        sizes: How large the measurement was.
        expected: The alerts that a plain loop finds.
        runs: Each side's runs with the right answer.
        missing: The reason why a side did not run.
        failed: The reason why a side has no result.
    """

    sizes: Sizes
    expected: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, side: str, run: Run) -> None:
        """Take in a run; a run with a wrong answer fails its side."""
        if run.alerts in (None, self.expected):
            self.runs.setdefault(side, []).append(run)
        else:
            self.failed[side] = f"wrong number of alerts: found {run.alerts:,}, expected {self.expected:,}"

    def speeds(self, side: str) -> list[float]:
        """Return the events per second of each run."""
        return [run.events / run.seconds for run in self.runs[side]]

    def core_seconds(self, side: str) -> float:
        """Return the processor seconds per million events, the median of all runs."""
        return statistics.median(1e6 * run.processor / run.events for run in self.runs[side])

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "sizes": {**asdict(self.sizes), "users": USERS, "warm_up": WARM_UP, "cores": CORES},
            "expected_alerts": self.expected,
            "sides": {side: self._fields(side) for side in self.runs if side not in self.failed},
            "not_installed": self.missing,
            "failed": self.failed,
        }

    def _fields(self, side: str) -> dict[str, Any]:
        speeds = self.speeds(side)
        return {
            "events_per_s": round(statistics.median(speeds)),
            "events_per_s_per_core": round(statistics.median(speeds) / CORES),
            "min_events_per_s": round(min(speeds)),
            "max_events_per_s": round(max(speeds)),
            "core_s_per_million": round(self.core_seconds(side), 2),
            "alerts": self.runs[side][0].alerts,
            "runs": len(speeds),
        }


def peers(
    sizes: Sizes, *, runs: int, sides: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> Peers:
    """Measure the sides by turns, each run in a process of its own.

    Args:
        sizes: How large everything is.
        runs: Runs of each side.
        sides: The sides to run, all by default.
        say: Gets progress messages.

    Raises:
        Invalid: A side is unknown.
    """
    if wrong := [side for side in sides if side not in SIDES]:
        raise Invalid("unknown side", found=", ".join(wrong), expected=", ".join(SIDES))
    chosen = [side for side in SIDES if not sides or side in sides]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        batches = WARM_UP + sizes.batches
        found = Peers(sizes, write(folder / "events", rows=sizes.rows, batches=batches))
        found.missing.update({side: reason for side in chosen if (reason := _missing(side))})
        warm_up, total = WARM_UP * sizes.rows, batches * sizes.rows
        running = [side for side in chosen if side not in found.missing]
        for number in range(runs if running else 0):
            for side in in_turn(running, number):
                if side in found.failed:
                    continue
                say(f"measuring peers: {side}, round {number + 1} of {runs} …")
                task = Task(side, str(folder / "events"), sizes.rows, warm_up, total, "")
                try:
                    found.add(side, _run(task, folder))
                except Failed as error:
                    found.failed[side] = str(error)
                else:
                    if side not in found.failed:
                        note(side, found.runs[side][-1].seconds)
    return found


def _missing(side: str) -> str:
    """Return what a side lacks, or nothing."""
    if side in ENGINES and not (ENVIRONMENTS / ENGINES[side] / ".installed").exists():
        return "not installed: make peers"
    if side == "quix" and not (KAFKA / ".ready").exists():
        return "not installed: make services-kafka"
    return ""


def _run(task: Task, folder: Path) -> Run:
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place:
        task = replace(task, folder=place)
        if task.side in SPARK_SIDES:
            return Run(**measured_apart("holdfast_bench.peers.on_spark", asdict(task), task.side))
        engine = ENGINES[task.side]
        with _kafka(task) as ready:
            figures = measured_apart(
                f"{__package__}.on_{engine}",
                asdict(ready),
                task.side,
                python=str(ENVIRONMENTS / engine / "bin" / "python"),
                environ=environ_of(engine, folder),
            )
        return Run(**figures)


@contextmanager
def _kafka(task: Task) -> Iterator[Task]:
    """Give a task a Kafka broker for its time, if its engine needs one."""
    if task.side != "quix":
        yield task
        return
    with kafka_node(_BROKER) as node:
        yield replace(task, kafka=node.address, kafka_process=node.process.pid)


def environ_of(engine: str, folder: Path) -> dict[str, str]:
    """Return the variables of an engine's process, with the benchmarks as the only code of this environment.

    In thread mode Flink starts a Python inside its JVM, which finds the packages of a virtual environment
    only through PYTHONPATH.
    """
    version = f"python{sys.version_info.major}.*"
    packages = next((ENVIRONMENTS / engine / "lib").glob(version)) / "site-packages"
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(packages)])
    java = (
        {"JAVA_HOME": str(java_home_for_spark(find_java(os.environ), folder))} if engine == "pyflink" else {}
    )
    return {**kept, **java, "PYTHONPATH": path}
