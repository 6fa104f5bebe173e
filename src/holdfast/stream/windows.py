"""The windows over event time (tumbling, sliding and session), with Spark's own aggregation.

No Python code runs per row. `windowed(…).agg(…)` has the plan of `groupBy(window, …).agg(…)`, with the two
ends of the window as ordinary columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Invalid
from holdfast.stream.event_time import (
    names_of,
    quoted,
    refuse_repeated,
    require_columns,
    require_time,
    require_watermark,
    spark_interval,
    watermarks,
    with_watermark,
)
from holdfast.stream.late import check_side_outputs, late_side, with_late_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_WHERE = "holdfast.windowed(…)"
_ENDS = ("window_start", "window_end")
_Fixed = tuple[str, "str | None", "str | None"]
# The column with the window of a late row; its name cannot occur in the frame.
_MISSED = "holdfast_missed_window"
_MERGES_EARLY = "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition"


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """Rows in windows, ready for aggregates; returned by `hf.windowed`.

    Attributes:
        frame: The rows.
        window: The window of a row, as a column named `window` (`session_window` for sessions).
        by: The other columns by which rows are grouped.
        name: The name of the window column.
        side_outputs: Whether late rows are returned as side outputs.
        session: For sessions, the time column and the gap in Spark's notation, otherwise None.

    Example:
        from pyspark.sql import functions as F

        hours: hf.WindowedStream = hf.windowed(events, time="ts", size="1 hour")
        assert hours.agg(F.count("*").alias("sales")).columns == ["window_start", "window_end", "sales"]
    """

    frame: DataFrame
    window: Column
    by: tuple[str, ...]
    name: str
    side_outputs: bool = False
    session: tuple[str, str] | None = None

    def agg(self, *aggregates: Column) -> DataFrame:
        """Aggregate each window.

        The result has the columns `window_start` and `window_end`, the grouping columns, and the aggregates,
        each named by its `.alias(…)`. The ends are timestamps without a watermark; to add a second operator
        in event time, write both operators with `F.window` and `F.window_time`.

        Spark stores one row of state per window and group. The output modes `append` (a window is returned
        once, when the watermark has passed its end) and `update` (a window is returned after each change) are
        supported; for session windows only `append`.

        With `side_outputs=True` a late row is returned once for each window that it missed, with the ends of
        that window and the grouping columns, and nulls for the aggregates.

        Raises:
            Invalid: There is no aggregate, two columns of the result have the same name, or side outputs are
                not supported for this frame.
        """
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        if not aggregates:
            raise Invalid(
                "no aggregate given",
                code="HF-E2398",
                where=f"{_WHERE}.agg(…)",
                hint='give at least one aggregate, as in .agg(F.count("*").alias("visits"))',
            )
        groups = [F.col(quoted(name)) for name in self.by]
        counted = self.frame.groupBy(self.window, *groups).agg(*aggregates)
        computed = counted.columns[1 + len(self.by) :]
        hint = f"rename the aggregates {', '.join(computed)} with .alias(…)"
        names = [*_ENDS, *self.by, *computed]
        fact = "a column name is used twice in the result, or by the window"
        refuse_repeated(names, where=f"{_WHERE}.agg(…)", hint=hint, taken=[self.name], fact=fact)
        main = counted.select(
            F.col(f"{self.name}.start").alias(_ENDS[0]),
            F.col(f"{self.name}.end").alias(_ENDS[1]),
            *(F.col(quoted(name)) for name in [*self.by, *computed]),
        )
        if not self.side_outputs:
            return main
        check_side_outputs([self.frame], names, where=f"{_WHERE}.agg(…)")
        return with_late_rows(main, [self._late()])

    def _late(self) -> DataFrame:
        """Return the late rows, each once for every window that it missed."""
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        if self.session is None:
            rows = self.frame.select("*", self.window.alias(_MISSED))
            start, end = F.col(f"{_MISSED}.start"), F.col(f"{_MISSED}.end")
        else:
            time, gap = self.session
            rows, start = self.frame, F.col(quoted(time))
            end = start + F.expr(f"INTERVAL {gap}")
        shown = {_ENDS[0]: start, _ENDS[1]: end, **{name: F.col(quoted(name)) for name in self.by}}
        return late_side(rows, end, stream="event", event=self.frame.columns, shown=shown)


def windowed(
    df: DataFrame,
    *,
    time: str,
    size: Duration | None = None,
    by: str | Iterable[str] = (),
    slide: Duration | None = None,
    gap: Duration | None = None,
    offset: Duration | None = None,
    watermark: Duration | None = None,
    side_outputs: bool = False,
) -> WindowedStream:
    """Assign rows to windows of event time; call `.agg(…)` on the result.

    With `size` alone the windows are tumbling; with `size` and `slide` they are sliding, and a row is in each
    window that covers its time. With `gap` they are sessions, which end after this time without a row.

    A window includes its start but not its end. Windows begin at multiples of their size (or slide) after
    1970-01-01T00:00Z, a Thursday; for weeks from Monday, set `size="7 days", offset="4 days"`.

    Without a watermark the state of a stream is never deleted, and Spark rejects output mode `append`. With a
    watermark, a row whose window ended before the watermark is late and is dropped; a row older than the
    watermark whose window is still open is counted. Spark runs a filter on columns other than the time
    *below* the watermark, wherever you write it, so the rows that it removes do not advance the watermark.

    Args:
        df: The rows, streaming or not.
        time: The event-time column.
        size: The length of a window.
        by: The other columns by which rows are grouped.
        slide: The interval between window starts; at most `size`.
        gap: The time without rows that ends a session.
        offset: The start of the first window, after 1970-01-01T00:00Z.
        watermark: The allowed lateness of a row; None if the frame already has a watermark.
        side_outputs: Whether to return late rows, too. The columns `side` ("late", or null for a window),
            `side_stream`, `side_event` (the row as JSON) and `side_error` (always null) are added. The stream
            is read a second time for late rows, so Spark counts its rows twice. Set it at the first start.

    Raises:
        Invalid: A column or a duration is invalid, `gap` is combined with `size`, `slide` or `offset`, the
            frame already has a watermark, or `side_outputs` is set and the frame has no watermark on the time
            column.

    Example:
        from pyspark.sql import functions as F

        hours = hf.windowed(events, time="ts", size="1 hour", by="drink")
        sales = hours.agg(F.sum("amount").alias("sales"))
        assert sales.columns == ["window_start", "window_end", "drink", "sales"]
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    groups = names_of(by, where=_WHERE)
    require_time(df, time, where=_WHERE)
    require_columns(df, groups, where=_WHERE)
    frame = with_watermark(df, time, watermark, where=_WHERE)
    if watermarks(frame):
        require_watermark(frame, time, where=_WHERE, why="with one on a different column no window closes")
    elif side_outputs:
        require_watermark(frame, time, where=_WHERE, why="without one no row is late")
    if gap is not None:
        if size is not None or slide is not None or offset is not None:
            raise Invalid(
                "gap cannot be combined with size, slide or offset",
                code="HF-E2399",
                where=_WHERE,
                expected="`gap` alone, or `size` with optional `slide` and `offset`",
                hint="for sessions, keep only `gap`; for windows of a fixed length, remove `gap`",
            )
        length = spark_interval(parse_duration(gap, f"{_WHERE}: gap"))
        if side_outputs:
            _refuse_early_merges(frame)
        return WindowedStream(
            frame, F.session_window(quoted(time), length), tuple(groups), "session_window",
            side_outputs, (time, length),
        )  # fmt: skip
    length, step, start = _fixed(size, slide, offset)
    window = F.window(quoted(time), length, step, start)
    return WindowedStream(frame, window, tuple(groups), "window", side_outputs)


def _refuse_early_merges(frame: DataFrame) -> None:
    """Raise an error if Spark merges sessions before it drops late rows, so that no single row is late."""
    if (frame.sparkSession.conf.get(_MERGES_EARLY, None) or "false").lower() == "true":
        raise Invalid(
            (
                "side_outputs=True cannot identify late rows, because Spark merges sessions before it"
                " drops late rows"
            ),
            code="HF-E2400",
            where=_WHERE,
            found=f"{_MERGES_EARLY}=true",
            hint=f"set {_MERGES_EARLY}=false, or remove side_outputs=True",
        )


def _fixed(size: Duration | None, slide: Duration | None, offset: Duration | None) -> _Fixed:
    if size is None:
        raise Invalid(
            "no window length given",
            code="HF-E2401",
            where=_WHERE,
            expected="`size`, or `gap` for sessions",
            hint='give a length, as in size="1 hour"',
        )
    size_ms = parse_duration(size, f"{_WHERE}: size")
    step_ms = size_ms if slide is None else parse_duration(slide, f"{_WHERE}: slide")
    if step_ms > size_ms:
        raise Invalid(
            "the slide is longer than the window, so rows between windows would be lost",
            code="HF-E2402",
            where=_WHERE,
            found=f"slide of {spark_interval(step_ms)}",
            expected=f"at most {spark_interval(size_ms)}",
            hint="remove `slide` for consecutive windows",
        )
    start = None
    if offset is not None:
        start = spark_interval(parse_duration(offset, f"{_WHERE}: offset", allow_zero=True) % step_ms)
    return spark_interval(size_ms), None if slide is None else spark_interval(step_ms), start
