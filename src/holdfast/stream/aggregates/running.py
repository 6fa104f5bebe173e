"""Aggregates over the last stretch of event time, one for each event: a running average that forgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.config.checks import one_of
from holdfast.config.units import Duration, parse_duration
from holdfast.stream.event_time import timed_stream
from holdfast.stream.keyed.keyed_stream import KEY_GROUPS, keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHERE = "holdfast.running(…)"
_WHY = "without one no event is ever retired"
EMITS = ("final", "early")


def running(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    time: str,
    size: Duration,
    agg: Mapping[str, str],
    emit: str = "final",
    watermark: Duration | None = None,
    name: str = "running",
    side_outputs: bool = False,
    key_groups: int = KEY_GROUPS,
) -> DataFrame:
    """Give each event the aggregates of its key over the last `size` of event time, itself included.

    The range of an event at time t is [t - size, t], both ends included, and all events of the key at t are
    in it: SQL's `OVER (PARTITION BY … ORDER BY … RANGE BETWEEN INTERVAL … PRECEDING AND CURRENT ROW)`.

    Results are exact. Whole numbers and decimals are added exactly, floating-point numbers too and rounded
    once at the end; nothing is left of events that were retired, and the order of arrival does not matter.

    With `emit="final"` an event comes out once, when the watermark has reached it: then all events of its
    range are there. With `emit="early"` it comes out in its own batch, with what has arrived until then, that
    batch included; an event that comes in time but after it is not in its figures.

    State: the events themselves, until nobody looks back at them; "final" keeps all their columns, "early"
    the time and what is aggregated, so select what you need before. A batch reads what the keys it touches
    keep. For one figure a window in place of one an event, `holdfast.windowed` with `slide` keeps sums alone.

    Args:
        df: A stream. Rows without a time are left out.
        by: The key columns.
        time: The column with the event time.
        size: How far an event looks back.
        agg: For each new column an aggregate: `{"mean": "avg(amount)", "orders": "count(*)"}`; of avg,
            count, max, min and sum.
        emit: "final" or "early".
        watermark: How late a row may come. Leave it out if the frame has a watermark already.
        name: The operator's name; one in each query.
        side_outputs: Put late events out at the side, as `process` does.
        key_groups: As in `holdfast.keyed`.

    Returns:
        A stream of the columns of `df` and the aggregates. It has no watermark.

    Raises:
        Invalid: A column, duration, aggregate or choice is wrong, or there is no watermark.
    """
    from holdfast.stream.aggregates.measures import measures_of
    from holdfast.stream.aggregates.range_processors import RangeAggregation, early_over, final_over
    from holdfast.worker.declarations.types import schema_of

    at_rest = "pyspark.sql.Window with rangeBetween"
    keys, timed = timed_stream(df, by, time, watermark, where=_WHERE, why=_WHY, at_rest=at_rest)
    final = one_of(emit, f"{_WHERE}: emit", EMITS) == "final"
    size_us = parse_duration(size, f"{_WHERE}: size") * 1_000
    schema = schema_of(df.schema)
    measures = measures_of(agg, schema, schema.names, where=_WHERE)
    measured = [measure.column for measure in measures if measure.column is not None]
    needed = [column for column in schema.names if column not in keys] if final else [time]
    stored = tuple(dict.fromkeys([*needed, *measured]))
    over = RangeAggregation(schema, tuple(keys), time, size_us, measures, stored)
    return keyed(timed, by=keys, key_groups=key_groups).process(
        final_over(over) if final else early_over(over),
        output=over.output,
        name=name,
        side_outputs=side_outputs,
    )
