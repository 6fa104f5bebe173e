"""Run queries to their end by turns in one session: an hour in which the machine is slow slows all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.engine.session.session import session
from holdfast_bench.measure import processor_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Side = TypeVar("_Side")


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a query took, in seconds.

    Attributes:
        batches: Each batch but the first.
        processor: Of the processors, the first batch too.
    """

    batches: tuple[float, ...]
    processor: float


@contextmanager
def measuring() -> Iterator[tuple[SparkSession, Path]]:
    """A session that says nothing, and a folder for what is measured; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
        folder = Path(place)
        spark = session("holdfast-bench", home=folder / "home", conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark, folder
        finally:
            spark.stop()


def in_turn(sides: Sequence[_Side], number: int) -> list[_Side]:
    """The sides of a round in another order than before, so that no side always follows the same one."""
    rounds, turn = divmod(number, len(sides))
    order = [*sides[turn:], *sides[:turn]]
    return order[::-1] if rounds % 2 else order


def by_turns(frames: Mapping[str, DataFrame], folder: Path, runs: int) -> dict[str, list[Run]]:
    """Run each stream to its end so many times; one round is not counted."""
    taken: dict[str, list[Run]] = {name: [] for name in frames}
    for number in range(runs + 1):
        for name in in_turn(list(frames), number):
            run = _run(frames[name], folder)
            if number:
                taken[name].append(run)
    return taken


def _run(frame: DataFrame, folder: Path) -> Run:
    began = processor_time()
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = (
            frame.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    seconds = tuple(each["durationMs"]["triggerExecution"] / 1000 for each in progress[1:])
    return Run(seconds, processor_time() - began)
