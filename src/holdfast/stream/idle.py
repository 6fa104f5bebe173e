"""A watermark that an idle stream does not hold back."""

from __future__ import annotations

import atexit
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.config.units import Duration, parse_duration
from holdfast.engine.described import IDLE_PLACE, IDLE_SOURCES, IDLE_TICKS, sources_in
from holdfast.errors import Invalid
from holdfast.stream.event_time import quoted, require_stream, require_time, spark_interval, with_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_WHERE: Final = "holdfast.watermarked(…)"
_IS_TICK: Final = "holdfast_is_tick"
# A time before any event, written so that Spark's optimizer cannot treat it as a constant.
_NEVER: Final = "timestamp_micros(-62135596800000000)"


def watermarked(
    df: DataFrame, *, time: str, delay: Duration, idle_after: Duration | None = None
) -> DataFrame:
    """Set a watermark on a stream; with `idle_after`, an idle stream holds back the other streams only
    briefly.

    The watermark of a query is the smallest of its streams' watermarks, so a stream that sends nothing holds
    all others back: no window closes, no unmatched row is returned, and the state grows. With `idle_after` a
    stream counts as idle when Spark has found no rows in it for that long. While it is idle, its watermark
    follows the clock: it is the time up to which the stream is known to have no rows, minus the delay. It
    advances once per tenth of `idle_after` and at most once a second.

    In exchange, rows that were in transit while the stream was idle are late if their windows have closed
    before they arrive. For a stream whose event times are far behind the clock, do not set `idle_after`
    shorter than its longest pause.

    The clock ticks are a separate source in the plan, so set `idle_after` at the query's first start; its
    value may change later. Start the query with Holdfast, and call this function once for each query. Filter
    the stream before the call, because Spark does not push a later filter below it.

    Args:
        df: A stream without a watermark.
        time: The event-time column.
        delay: The allowed lateness of a row.
        idle_after: The time without rows after which the stream is idle; with None it is never idle.

    Raises:
        Invalid: A column or a duration is invalid, or the frame has a watermark or is not a stream.

    Example:
        from pathlib import Path

        Path("refunds").mkdir()
        refunds = spark.readStream.schema("customer string, refund double, at timestamp").json("refunds")
        refunds = hf.watermarked(refunds, time="at", delay="10 minutes", idle_after="5 minutes")
        assert refunds.columns == ["customer", "refund", "at"]
    """
    require_time(df, time, where=_WHERE)
    require_stream(df, where=_WHERE)
    if idle_after is None:
        return with_watermark(df, time, delay, where=_WHERE)
    idle_after_ms = parse_duration(idle_after, f"{_WHERE}: idle_after")
    if _IS_TICK in df.columns:
        raise Invalid(
            "a column has a name that Holdfast reserves",
            code="HF-E2301",
            where=_WHERE,
            found=_IS_TICK,
            hint="rename the column with withColumnRenamed",
        )
    with_watermark(df, time, delay, where=_WHERE)
    return _without_ticks(_with_ticks(df, time, idle_after_ms), time, delay)


def _with_ticks(df: DataFrame, time: str, idle_after_ms: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.stream.idle_source import AT_MS, IDLE_AFTER, IdleTicks

    spark = df.sparkSession
    spark.dataSource.register(IdleTicks)
    options = {
        IDLE_PLACE: _place(),
        IDLE_SOURCES: str(len(sources_in(df))),
        IDLE_AFTER: str(idle_after_ms),
    }
    ticks = spark.readStream.format(IDLE_TICKS).options(**options).load()
    at = F.timestamp_millis(F.col(AT_MS))
    filled = [
        (at if field.name == time else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in df.schema.fields
    ]
    rows = df.withColumn(_IS_TICK, F.lit(False))
    return rows.union(ticks.select(*filled, F.lit(True).alias(_IS_TICK)))


def _without_ticks(both: DataFrame, time: str, delay: Duration) -> DataFrame:
    """Set the watermark on rows and ticks, and remove the ticks above it.

    Spark moves a filter below the watermark unless the filter uses the event time, and would also move the
    user's filters, which drop ticks. Spark moves no filter past a non-deterministic one.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    delay_ms = parse_duration(delay, f"{_WHERE}: delay", allow_zero=True)
    marked = both.withWatermark(time, spark_interval(delay_ms))
    is_row = ~F.col(_IS_TICK) | (F.col(quoted(time)) < F.expr(_NEVER))
    return marked.filter(is_row & (F.spark_partition_id() >= 0)).drop(_IS_TICK)


def _place() -> str:
    """Return the path of a file for the start parameters of the source of ticks, a separate process."""
    place = Path(tempfile.gettempdir()) / f"holdfast-idle-{uuid.uuid4().hex}.json"
    atexit.register(place.unlink, missing_ok=True)
    return str(place)
