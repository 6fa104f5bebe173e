"""What a look at the keys of a stream takes: for each row, and for each batch whatever its size.

Beside a keyed processor or a join it is less than what two runs of one query differ by. So both parts are
measured where little else is done: for a row in large batches, and for a batch in a trickle of small ones.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.bench.measure import measured_apart, processor_time
from holdfast.bench.operator_queries import Streams, batches_of, watched, write

_MILLION: Final = 1_000_000
# Rows and batches of a run: large, so that reading rows is most of it, and small, so that none of it is.
_LARGE: Final = (4 * _MILLION, 3)
_SMALL: Final = (100, 100)


@dataclass(frozen=True, slots=True)
class WatchCost:
    """The seconds of a processor that a watch takes, each pair of runs for itself.

    Attributes:
        million: For a million rows.
        batch: For a batch, in which Spark plans the watch and brings its answer.
    """

    million: tuple[float, ...]
    batch: tuple[float, ...]

    def beside(self, rows: int, seconds: float) -> float:
        """What a batch takes with its watch, over what it takes without.

        Args:
            rows: The batch's rows that are watched.
            seconds: What it takes of a processor without.
        """
        watch = statistics.median(self.million) * rows / _MILLION + statistics.median(self.batch)
        return 1 + watch / seconds


def watch_cost(runs: int) -> WatchCost:
    """Measure both parts, in a process of its own.

    Raises:
        Failed: The process did not come to its end.
    """
    found = measured_apart("holdfast.bench.watch_cost", {"runs": runs}, "the cost of a watch")
    return WatchCost(tuple(found["million"]), tuple(found["batch"]))


def _measure(runs: int) -> dict[str, Sequence[float]]:
    from holdfast.engine.session import session  # noqa: PLC0415 - needs Spark

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
        folder = Path(place)
        spark = session("holdfast-bench", home=folder / "home", conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        rows, batches = _LARGE
        large = _differences(_frames(spark, folder / "large", _LARGE), folder, runs)
        small = _differences(_frames(spark, folder / "small", _SMALL), folder, runs)
        spark.stop()
    return {
        "million": [each["processor"] * _MILLION / (rows * batches) for each in large],
        # One thread plans a batch and brings its answer, and all wait for it: its time is the processor's.
        "batch": [each["batch"] for each in small],
    }


def _frames(spark: Any, folder: Path, sizes: tuple[int, int]) -> dict[str, Any]:
    """A stream that is read and dropped, with its watch and without."""
    folder.mkdir()
    write(folder, *sizes)
    orders = Streams(spark, folder).read("orders")
    return {"with": watched(orders, "user"), "without": orders}


def _differences(frames: Mapping[str, Any], folder: Path, runs: int) -> list[dict[str, float]]:
    """What the watched stream took more than the other: the processor in a run, and a batch of it."""
    found = []
    for number in range(runs + 1):
        took: dict[str, tuple[float, float]] = {}
        for side in sorted(frames, reverse=bool(number % 2)):
            began = processor_time()
            with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
                seconds = batches_of(frames[side], checkpoint)
            took[side] = processor_time() - began, statistics.median(seconds)
        processor, batch = (one - other for one, other in zip(took["with"], took["without"], strict=True))
        if number:
            found.append({"processor": processor, "batch": batch})
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read())["runs"])) + "\n")
