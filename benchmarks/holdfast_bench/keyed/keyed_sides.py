"""The sides of the keyed measurements: one running count and sum per user, written in each way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast import Keyed, KeyedTable

OUTPUT = "user long, n long, total double"

RAW = "raw_tws"
SQL = "sql"
ON_EVENT = "on_event"
ON_KEY = "on_key"
ON_BATCH = "on_batch"
ON_BATCH_COMBINED = "on_batch_combined"


def totals(side: str, events: DataFrame, *, timed: bool = False) -> DataFrame:
    """The running count and sum per user of `events`, computed by one side.

    Args:
        side: One of `SIDES`.
        events: Rows of user, amount and ts.
        timed: With a time to live on the states, and with one timer a user that its events move.

    Raises:
        Invalid: There is no such side.
    """
    if side not in SIDES:
        raise Invalid("unknown side", found=side, expected=", ".join(SIDES))
    return SIDES[side](events, timed)


def _raw(events: DataFrame, timed: bool) -> DataFrame:
    from holdfast_bench.keyed.keyed_raw import RawTimedTotals, RawTotals

    processor = RawTimedTotals() if timed else RawTotals()
    mode = "ProcessingTime" if timed else "None"
    return events.groupBy("user").transformWithState(processor, OUTPUT, "Update", mode)


def _sql(events: DataFrame, timed: bool) -> DataFrame:  # noqa: ARG001 - Spark's aggregates have no time to live
    from pyspark.sql import functions

    return events.groupBy("user").agg(functions.count("*").alias("n"), functions.sum("amount").alias("total"))


def _on_event(events: DataFrame, timed: bool) -> DataFrame:
    from holdfast_bench.keyed.keyed_processors import EventTotals, TimedEventTotals

    return _held(events, TimedEventTotals() if timed else EventTotals())


def _on_key(events: DataFrame, timed: bool) -> DataFrame:
    from holdfast_bench.keyed.keyed_processors import KeyTotals

    _untimed(ON_KEY, timed)
    return _held(events, KeyTotals())


def _on_batch(events: DataFrame, timed: bool) -> DataFrame:
    from holdfast_bench.keyed.keyed_processors import TableTotals, TimedTableTotals

    return _held(events, TimedTableTotals() if timed else TableTotals())


def _combined(events: DataFrame, timed: bool) -> DataFrame:
    from holdfast_bench.keyed.keyed_processors import CombinedTotals

    _untimed(ON_BATCH_COMBINED, timed)
    return _held(events, CombinedTotals())


def _held(events: DataFrame, processor: Keyed | KeyedTable) -> DataFrame:
    import holdfast as hf

    return hf.keyed(events, by="user").process(processor, output=OUTPUT, name="totals")


def _untimed(side: str, timed: bool) -> None:
    if timed:
        raise Invalid("this side is not measured with a time mode", found=side)


SIDES: dict[str, Callable[[DataFrame, bool], DataFrame]] = {
    RAW: _raw,
    SQL: _sql,
    ON_EVENT: _on_event,
    ON_KEY: _on_key,
    ON_BATCH: _on_batch,
    ON_BATCH_COMBINED: _combined,
}
