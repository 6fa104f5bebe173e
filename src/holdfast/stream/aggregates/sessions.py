"""Sessions of each key: opened, extended and closed in event time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.config.units import Duration, parse_duration
from holdfast.stream.event_time import quoted, timed_stream
from holdfast.stream.keyed.keyed_stream import KEY_GROUPS, keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHERE = "holdfast.sessions(…)"
_WHY = "without one no session ever ends"


def sessions(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    time: str,
    gap: Duration,
    agg: Mapping[str, str],
    longest: Duration | None = None,
    opened: bool = False,
    watermark: Duration | None = None,
    name: str = "sessions",
    side_outputs: bool = False,
    key_groups: int = KEY_GROUPS,
) -> DataFrame:
    """Follow the sessions of each key: events of which each comes at most `gap` after the one before it.

    A session comes out when it is closed, that is when the watermark has reached its end: `session_start` is
    its first event, `session_end` the last one plus `gap`. An event exactly at the end still belongs to it.

    Events are taken in by their times, when the watermark has reached them. So an event out of order that
    joins what looked like two sessions makes one, and rows do not depend on how the stream was cut into
    batches. With `opened=True` a row comes out as well when a session opens; it is never taken back, and the
    row that closes the session has the same key and start.

    State: the events that the watermark has not reached, with the columns that are aggregated; one row for
    the open session. Decimals and whole numbers are added exactly, floating-point numbers in the order of
    the event times.

    `holdfast.windowed` with `gap` gives sessions too, in Spark's own plan, with any aggregate. This operator
    is for a row at the start, for a longest session, and for late events at the side.

    Args:
        df: A stream. Rows without a time are left out.
        by: The key columns.
        time: The column with the event time.
        gap: The silence that ends a session.
        agg: For each new column an aggregate: `{"events": "count(*)", "spend": "sum(amount)"}`; of avg,
            count, max, min and sum.
        longest: How long a session may be. It ends at its start plus this at the latest; the next event
            opens another.
        opened: Add the column `session`, and rows with "open" in it beside those with "closed". An open row
            has no end and no aggregates.
        watermark: How late a row may come. Leave it out if the frame has a watermark already.
        name: The operator's name; one in each query.
        side_outputs: Put late events out at the side, as `process` does.
        key_groups: As in `holdfast.keyed`.

    Returns:
        A stream of the key columns, `session_start`, `session_end`, `session` if asked for, and the
        aggregates. It has no watermark.

    Raises:
        Invalid: A column, duration, aggregate or name is wrong, or there is no watermark.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.stream.aggregates.measures import measures_of
    from holdfast.stream.aggregates.session_processor import SessionSpec, result_names, tracker
    from holdfast.worker.declarations.types import schema_of

    at_rest = 'holdfast.windowed(df, time=…, gap="30 minutes")'
    keys, rows = timed_stream(df, by, time, watermark, where=_WHERE, why=_WHY, at_rest=at_rest)
    schema = schema_of(df.schema)
    gap_us = parse_duration(gap, f"{_WHERE}: gap") * 1_000
    longest_us = None if longest is None else parse_duration(longest, f"{_WHERE}: longest") * 1_000
    taken = result_names(keys, opened=opened)
    measures = measures_of(agg, schema, taken, where=_WHERE)
    tracked = SessionSpec(schema, tuple(keys), time, gap_us, longest_us, opened, measures)
    if not side_outputs:
        rows = rows.select(
            *(F.col(quoted(column)) for column in dict.fromkeys([*keys, time, *tracked.columns]))
        )
    return keyed(rows, by=keys, key_groups=key_groups).process(
        tracker(tracked), output=tracked.output, name=name, side_outputs=side_outputs
    )
