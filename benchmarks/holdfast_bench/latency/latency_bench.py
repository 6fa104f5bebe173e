"""The latency of stateful queries from one Kafka topic to another, in the shape of Spark's benchmark.

A producer sends events of many users at a steady pace. Each side is a query that keeps a count and a sum per
user and writes them to a second topic, one batch after the other. All users have state before the first
steady event, and events of the warm-up are not counted. Each run has its own topics, process and checkpoint.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast_bench.keyed.keyed_sides import ON_BATCH, ON_EVENT, RAW, SQL
from holdfast_bench.latency.kafka_node import KafkaNode, kafka_node
from holdfast_bench.latency.latency_events import expected_totals
from holdfast_bench.latency.latency_figures import Figures, Run, evaluate, require_pace
from holdfast_bench.latency.latency_process import Task, read_batches, read_events, read_outputs
from holdfast_bench.measure import measured_apart, note
from holdfast_bench.turns import in_turn

SIDES: Final = (RAW, SQL, ON_EVENT, ON_BATCH)
# These give a row per event, the others a row per user and batch.
_ROW_PER_EVENT: Final = frozenset({ON_EVENT})


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        keys: The number of users.
        rows: Events a second.
        warm_up: Seconds of events that are not counted.
        seconds: Seconds of events that are counted.
    """

    keys: int = 50_000
    rows: int = 1_000
    warm_up: int = 30
    seconds: int = 60


@dataclass(frozen=True, slots=True)
class Latency:
    """The figures of each side.

    Attributes:
        sizes: How large the measurement was.
        sides: The figures, by side.
    """

    sizes: Sizes
    sides: Mapping[str, Figures]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "sizes": asdict(self.sizes),
            "sides": {side: figures.as_dict() for side, figures in self.sides.items()},
        }


def latency(
    sizes: Sizes, *, rounds: int, sides: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> Latency:
    """Measure each side by turns, with one broker for all runs.

    Args:
        sizes: How large the measurement is.
        rounds: The runs of each side.
        sides: Some of the sides; empty for all.
        say: Called with each step.

    Raises:
        Invalid: A side is unknown.
        NotFound: Kafka is not installed.
        Failed: A side ended with an error, or its results are not exact.
    """
    unknown = [side for side in sides if side not in SIDES]
    if unknown:
        raise Invalid("unknown side", found=", ".join(unknown), expected=", ".join(SIDES))
    chosen = [side for side in SIDES if not sides or side in sides]
    runs: dict[str, list[Run]] = {side: [] for side in chosen}
    with kafka_node() as node:
        for number in range(rounds):
            for side in in_turn(chosen, number):
                say(f"measuring latency: {side}, round {number + 1} of {rounds} …")
                run = _run(node, side, number, sizes)
                runs[side].append(run)
                note(f"{side}, a batch", *(ms / 1000 for ms in run.batch_ms))
    return Latency(sizes, {side: Figures(done) for side, done in runs.items()})


def _run(node: KafkaNode, side: str, number: int, sizes: Sizes) -> Run:
    planned_s = sizes.warm_up + sizes.seconds
    count = sizes.rows * planned_s
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
        task = Task(side, node.address, f"{side}-{number}", sizes.keys, sizes.rows, count, place)
        printed = measured_apart("holdfast_bench.latency.latency_process", asdict(task), side)
        events, outputs = read_events(Path(place)), read_outputs(Path(place))
    steady = sorted(event.sent_ms for event in events)[sizes.keys :]
    require_pace(side, steady[0], steady[-1], planned_s)
    return evaluate(
        side,
        expected_totals(sizes.keys, sizes.keys + count),
        events,
        outputs,
        read_batches(printed),
        since_ms=steady[sizes.warm_up * sizes.rows],
        row_per_event=side in _ROW_PER_EVENT,
    )
