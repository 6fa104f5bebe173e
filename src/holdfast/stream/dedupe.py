"""Deduplication within the watermark, with Spark's own operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.config.units import Duration
from holdfast.errors import Invalid
from holdfast.stream.event_time import (
    key_columns,
    quoted,
    require_stream,
    require_time,
    require_watermark,
    watermarks,
    with_watermark,
)
from holdfast.stream.late import check_side_outputs, late_side, with_late_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHERE = "holdfast.dedupe(…)"
_WHY = "without one, every key is kept forever"


def dedupe(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    time: str | None = None,
    watermark: Duration | None = None,
    side_outputs: bool = False,
) -> DataFrame:
    """Return a stream with the first row of each key, without its duplicates.

    The result is exact for duplicates whose event times are less than the watermark's delay apart: a key
    stays in state until the watermark has passed its time by that delay. A duplicate with the same event time
    is therefore always dropped: either its key is still in state, or the row itself is late. A duplicate with
    a much later event time is a new row. If rows with the same key differ, it is undefined which one comes
    first, so make duplicates equal or do not use the columns in which they differ.

    Spark stores one row of state per key, with the key and a time.

    Args:
        df: A stream. For a batch frame use `DataFrame.dropDuplicates`, which needs no state.
        by: The columns that identify an event: rows with equal values are duplicates.
        time: The event-time column. It is required with `watermark`; without, it is only checked.
        watermark: The allowed lateness of a row; None if the frame already has a watermark.
        side_outputs: Whether to return late rows, too. The columns `side` ("late", or null for a row that
            passed), `side_stream`, `side_event` (the row as JSON) and `side_error` (always null) are added; a
            late row has nulls for the others. The stream is read a second time for late rows, so Spark counts
            its rows twice. Set it at the first start. A late duplicate is also a late row.

    Raises:
        Invalid: There is no watermark, a column is missing, the frame is not a stream, or side outputs are
            not supported for it.

    Example:
        orders = hf.dedupe(events, by=["customer", "drink", "ts"])
        assert orders.columns == events.columns
    """
    keys = key_columns(df, by, where=_WHERE)
    require_stream(df, where=_WHERE, hint=f"use df.dropDuplicates({keys!r}), which needs no state")
    if time is None:
        if watermark is not None:
            raise Invalid(
                "watermark= needs an event-time column",
                code="HF-E2288",
                where=_WHERE,
                hint=f'name the column: time="ts", watermark={watermark!r}',
            )
        time = next(iter(watermarks(df)), None)
    if time is None:
        raise Invalid(
            f"the stream has no watermark, and {_WHY}",
            code="HF-E2289",
            where=_WHERE,
            hint='give the time column and the allowed lateness: time="ts", watermark="10 minutes"',
        )
    require_time(df, time, where=_WHERE)
    marked = with_watermark(df, time, watermark, where=_WHERE)
    require_watermark(marked, time, where=_WHERE, why=_WHY)
    passed = marked.dropDuplicatesWithinWatermark(keys)
    if not side_outputs:
        return passed
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    check_side_outputs([marked], marked.columns, where=_WHERE)
    late = late_side(marked, F.col(quoted(time)), stream="event", event=marked.columns)
    return with_late_rows(passed, [late])
