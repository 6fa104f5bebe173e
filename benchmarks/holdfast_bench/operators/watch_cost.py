"""What a look at the keys of a stream takes: for each row, and for each batch whatever its size.

Beside a keyed processor or a join it is less than what two runs of one query differ by. So both parts are
measured where little else is done: for a row in large batches, and for a batch in a trickle of small ones.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_bench.measure import measured_apart
from holdfast_bench.operators.operator_queries import Streams, watched, write
from holdfast_bench.turns import Run, by_turns, measuring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    found = measured_apart("holdfast_bench.operators.watch_cost", {"runs": runs}, "the cost of a watch")
    return WatchCost(tuple(found["million"]), tuple(found["batch"]))


def _measure(runs: int) -> dict[str, list[float]]:
    with measuring() as (spark, folder):
        rows, batches = _LARGE
        large = _pairs(spark, folder / "large", _LARGE, runs)
        small = _pairs(spark, folder / "small", _SMALL, runs)
    return {
        "million": [(one.processor - other.processor) * _MILLION / (rows * batches) for one, other in large],
        # One thread plans a batch and brings its answer, and all wait for it: its time is the processor's.
        "batch": [statistics.median(one.batches) - statistics.median(other.batches) for one, other in small],
    }


def _pairs(spark: SparkSession, folder: Path, sizes: tuple[int, int], runs: int) -> list[tuple[Run, Run]]:
    """Runs of a stream that is read and dropped, with its watch and without."""
    folder.mkdir()
    write(folder, *sizes)
    orders = Streams(spark, folder).read("orders")
    taken = by_turns({"without": orders, "with": watched(orders, "user")}, folder, runs)
    return list(zip(taken["with"], taken["without"], strict=True))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read())["runs"])) + "\n")
