"""The sides of the skew measurements: the same answers, with hot keys as they are, and split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast_bench.skew.skew_data import EVENTS, HOT, OFFERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOUND: Final = ("-1 hour", "1 hour")
WATERMARK: Final = "1 hour"
_FINER: Final = 8


@dataclass(frozen=True, slots=True)
class Side:
    """One way to compute an answer.

    Attributes:
        hot: Whether one key has half of the events, or all have as many.
        answer: Which answer it is: sides with the same one, over the same events, must agree.
        streaming: Whether it reads a stream, a batch a file, or all of it as a table.
        make: From events, offers and the number of tasks to the answer.
        updates: Whether it puts out what has changed, as running aggregates do.
        by_turns: Whether it runs in one session with the others of its answer, batch by batch by turns, over
            more and smaller batches. What is small, as what a split costs that gains nothing, is not told by
            a few, nor by processes of which one is faster than the next.
    """

    hot: bool
    answer: str
    streaming: bool
    make: Callable[[DataFrame, DataFrame, int], DataFrame]
    updates: bool = False
    by_turns: bool = False

    @property
    def finer(self) -> int:
        """In how many times more batches its events come."""
        return _FINER if self.by_turns else 1


def frame_of(side: Side, spark: Any, events: str, offers: str, tasks: int) -> DataFrame:
    """The answer of a side over the files of one measurement."""
    reader = spark.readStream.option("maxFilesPerTrigger", 1) if side.streaming else spark.read
    return side.make(reader.schema(EVENTS).parquet(events), reader.schema(OFFERS).parquet(offers), tasks)


def _joined(events: DataFrame, offers: DataFrame, tasks: int) -> DataFrame:  # noqa: ARG001 - one signature for all sides
    import holdfast as hf

    return hf.join_within(events, offers, by="user", times=("ts", "since"), bound=BOUND, watermark=WATERMARK)


def _split(events: DataFrame, offers: DataFrame, tasks: int) -> DataFrame:
    import holdfast as hf

    hot = hf.split_hot(events, by="user", hot=[HOT], parts=tasks)
    return hot.join_within(offers, times=("ts", "since"), bound=BOUND, watermark=WATERMARK)


def _totals(events: DataFrame, offers: DataFrame, tasks: int) -> DataFrame:  # noqa: ARG001 - as above
    from pyspark.sql import functions

    return events.groupBy("user").agg(functions.count("*").alias("n"), functions.sum("amount").alias("total"))


def _split_totals(events: DataFrame, offers: DataFrame, tasks: int) -> DataFrame:  # noqa: ARG001 - as above
    import holdfast as hf

    hot = hf.split_hot(events, by="user", hot=[HOT], parts=tasks)
    return hot.agg(hf.skew.count().alias("n"), hf.skew.sum("amount").alias("total"))


def _spend(events: DataFrame, *, split: bool) -> DataFrame:
    """A running total of each user, by a processor that says how states are merged."""
    import holdfast as hf
    from holdfast_bench.skew.skew_processors import OUTPUT, Spend

    stream = hf.keyed(events, by="user")
    stream = stream.split_hot() if split else stream
    return stream.process(Spend(), output=OUTPUT, name="spend")


def _keyed(events: DataFrame, offers: DataFrame, tasks: int) -> DataFrame:  # noqa: ARG001 - as above
    return _spend(events, split=False)


def _keyed_split(events: DataFrame, offers: DataFrame, tasks: int) -> DataFrame:  # noqa: ARG001 - as above
    return _spend(events, split=True)


SIDES: Final[dict[str, Side]] = {
    "join": Side(True, "join", True, _joined),
    "join_split": Side(True, "join", True, _split),
    "join_even": Side(False, "join", True, _joined, by_turns=True),
    "join_even_split": Side(False, "join", True, _split, by_turns=True),
    "join_even_control": Side(False, "join", True, _joined, by_turns=True),
    "keyed": Side(True, "spend", True, _keyed),
    "keyed_split": Side(True, "spend", True, _keyed_split),
    "keyed_even": Side(False, "spend", True, _keyed, by_turns=True),
    "keyed_even_split": Side(False, "spend", True, _keyed_split, by_turns=True),
    "keyed_even_control": Side(False, "spend", True, _keyed, by_turns=True),
    "aggregate": Side(True, "totals", True, _totals, updates=True),
    "aggregate_even": Side(False, "totals", True, _totals, updates=True),
    "table_aggregate": Side(True, "table", False, _totals),
    "table_aggregate_split": Side(True, "table", False, _split_totals),
}
