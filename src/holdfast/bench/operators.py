"""Operators that compile to Spark's plan: Holdfast's words beside the same query by hand, watched and not."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.bench.measure import Bench, Series, measured_apart
from holdfast.bench.operator_queries import NAMES, WATCHED
from holdfast.errors import Invalid

SIDES = ("holdfast", "by hand")
# Their plans are equal, so what is left is the noise; `control` says how much of it there is.
BOUND = 1.02
WATCH_BOUND = 1.01


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
    """Time the batches of each operator and of the same query in plain PySpark, in one session, by turns.

    One run of each side is not counted, and neither is the first batch of a run.

    Args:
        sizes: How large everything is.
        runs: Counted runs of each side.
        only: The operators to measure, all by default.
        say: Told what is being measured.

    Raises:
        Invalid: There is no such operator.
        Failed: A query did not come to its end.
    """
    wrong = [each for each in only if each not in NAMES]
    if wrong:
        raise Invalid("there is no such operator", found=", ".join(wrong), expected=", ".join(NAMES))
    chosen = [each for each in NAMES if not only or each in only]
    say(f"measuring operators: {', '.join(chosen)}; {runs} runs of each side …")
    taken = _taken({**asdict(sizes), "runs": runs, "names": chosen})
    series = [Series(f"{name}, {side}", tuple(taken[name][side])) for name in chosen for side in SIDES]
    # Batch by batch: what is moments apart is as fast or slow as the machine is then.
    ratios = {
        f"{name}, {SIDES[0]} / {SIDES[1]}": statistics.median(
            ours / theirs for ours, theirs in zip(one.seconds, other.seconds, strict=True)
        )
        for name, one, other in zip(chosen, series[::2], series[1::2], strict=True)
    }
    what = (
        f"batches of {sizes.rows:,} rows a stream; `control` is one query on both sides, "
        f"`{WATCHED}` one whose keys are watched for skew on the first"
    )
    bounds = {
        ratio: WATCH_BOUND if ratio.startswith(WATCHED) else BOUND
        for ratio in ratios
        if not ratio.startswith("control")
    }
    return Bench("operators", what, tuple(series), ratios, bounds)


def _taken(task: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Measure in a process of its own: the seconds of each counted batch."""
    found: dict[str, dict[str, list[float]]] = measured_apart(
        "holdfast.bench.operators", task, ", ".join(task["names"])
    )
    return found


def _measure(task: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Run all queries in this process."""
    from holdfast.bench.operator_queries import Streams, pairs, write  # noqa: PLC0415 - needs Spark
    from holdfast.engine.session import session  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
        folder = Path(place)
        write(folder, task["rows"], task["batches"] + 1)
        spark = session("holdfast-bench", home=folder / "home", conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        both = pairs(Streams(spark, folder))
        taken: dict[str, dict[str, list[float]]] = {
            name: {side: [] for side in SIDES} for name in task["names"]
        }
        for number in range(task["runs"] + 1):
            for name in task["names"]:
                order = list(zip(SIDES, both[name], strict=True))
                for side, frame in order if number % 2 else reversed(order):
                    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
                        seconds = _batches(frame, checkpoint)
                    if number:
                        taken[name][side] += seconds
        spark.stop()
    return taken


def _batches(frame: Any, checkpoint: str) -> list[float]:
    """Run a query to its end, and give the seconds of its batches but the first."""
    query = (
        frame.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    return [each["durationMs"]["triggerExecution"] / 1000 for each in progress[1:]]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read()))) + "\n")
