"""Charts of values over time.

A chart has about 200 points at most. If a range of time has more batches, it is divided into equal intervals,
and a point is the largest value of its interval. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Final, Generic, TypeVar

from holdfast.server.dashboard.figures import BY_UNIT

T = TypeVar("T")

MOST_POINTS: Final = 200
WIDTH: Final = 600

_SECOND: Final = 1000
MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * MINUTE
DAY: Final = 24 * _HOUR
# The ranges of time that a reader can choose, with their labels; None is all stored batches.
RANGES: Final[Mapping[str, tuple[str, int | None]]] = {
    "hour": ("Last hour", _HOUR),
    "day": ("Last day", DAY),
    "week": ("Last week", 7 * DAY),
    "all": ("All kept", None),
}
ALL: Final = "all"
_SHORTEST: Final = MINUTE
# The lengths of intervals and the distances of tick labels.
_LENGTHS: Final = (
    *(seconds * _SECOND for seconds in (1, 2, 5, 10, 20, 30)),
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 20, 30)),
    *(hours * _HOUR for hours in (1, 2, 4, 6, 12)),
    *(days * DAY for days in (1, 2, 4, 7, 14, 28, 56, 112, 224, 448)),
)
# The line is interrupted if no batch was committed for this multiple of the usual interval, and for at least
# this time.
_GAP_INTERVALS: Final = 3
_SHORTEST_GAP: Final = 10 * _SECOND


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time axis of a chart.

    Attributes:
        start_ms: The time at the left edge.
        end_ms: The time at the right edge.
    """

    start_ms: int
    end_ms: int

    @property
    def interval_ms(self) -> int:
        """The length of the interval whose batches are combined into one point, if there are many batches."""
        return round_length(self.end_ms - self.start_ms, MOST_POINTS + 2)

    def x(self, at_ms: int) -> float:
        """Return the horizontal position of a time."""
        return round((at_ms - self.start_ms) / (self.end_ms - self.start_ms) * WIDTH, 2)


def time_axis(name: str, end_ms: int, oldest_ms: int | None) -> TimeAxis:
    """Return the time axis of a named range.

    The edges are multiples of the interval, so that a batch stays in the same interval while time passes.

    Args:
        name: The range, one of `RANGES`.
        end_ms: The end of the range: now, or the end of the job.
        oldest_ms: The time of the oldest batch, which is the start of the range `all`.
    """
    length = RANGES[name][1]
    oldest = end_ms if oldest_ms is None else oldest_ms
    span = max(end_ms - oldest, _SHORTEST) if length is None else length
    interval = round_length(span, MOST_POINTS)
    end = -(-end_ms // interval) * interval
    start = end - length if length is not None else (end_ms - span) // interval * interval
    return TimeAxis(start, end)


def round_length(span_ms: int, most: int) -> int:
    """Return the shortest round length that divides a span into at most `most` parts."""
    return next((length for length in _LENGTHS if length * most >= span_ms), _LENGTHS[-1])


@dataclass(frozen=True, slots=True)
class Bucket(Generic[T]):
    """The batches that are combined into one point; at least one.

    Attributes:
        first: The id of the first batch.
        last: The id of the last batch.
        at_ms: The commit time of the last batch.
        batches: The batches, oldest first.
    """

    first: int
    last: int
    at_ms: int
    batches: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Timeline(Generic[T]):
    """The batches of all charts of a page, grouped by time.

    Attributes:
        axis: The range of time.
        gap_ms: The time between two points from which on the line is interrupted.
        buckets: The batches in the range, by point.
        newest: The newest batch, even if it is outside the range; None without batches.
    """

    axis: TimeAxis
    gap_ms: int
    buckets: tuple[Bucket[T], ...]
    newest: T | None


def timeline(
    batches: Iterable[T], at_ms: Callable[[T], int], number: Callable[[T], int], name: str, end_ms: int
) -> Timeline[T]:
    """Return batches grouped by time.

    Args:
        batches: The batches.
        at_ms: The function that returns the time of a batch.
        number: The function that returns the id of a batch.
        name: The range, one of `RANGES`.
        end_ms: The end of the range; a later batch extends it.
    """
    ordered = sorted(batches, key=at_ms)
    if ordered:
        end_ms = max(end_ms, at_ms(ordered[-1]))
    axis = time_axis(name, end_ms, at_ms(ordered[0]) if ordered else None)
    shown = [batch for batch in ordered if axis.start_ms <= at_ms(batch) <= axis.end_ms]
    gap_ms = _SHORTEST_GAP
    if len(shown) > 2:
        usual = median(at_ms(later) - at_ms(former) for former, later in pairwise(shown))
        gap_ms = max(gap_ms, round(usual * _GAP_INTERVALS))
    groups = [[batch] for batch in shown]
    if len(shown) > MOST_POINTS:
        groups = [list(group) for _, group in groupby(shown, lambda batch: at_ms(batch) // axis.interval_ms)]
        gap_ms = max(gap_ms, 2 * axis.interval_ms)
    buckets = tuple(
        Bucket(number(group[0]), number(group[-1]), at_ms(group[-1]), tuple(group)) for group in groups
    )
    return Timeline(axis, gap_ms, buckets, ordered[-1] if ordered else None)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a chart: the largest value of one or several batches.

    Attributes:
        first: The first of the batches.
        last: The last of the batches.
        at_ms: The commit time of the last batch.
        value: The value, in the chart's unit.
    """

    first: int
    last: int
    at_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """The threshold of an alert rule for the value of a chart.

    Attributes:
        rule: The rule's name.
        value: The threshold, in the chart's unit; larger values are wrong.
        text: The threshold for display.
    """

    rule: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Marker:
    """An event of a job, drawn as a vertical line.

    Attributes:
        event: `restart`, `savepoint` or `savepoint-failed`.
        at_ms: The time of the event.
        text: The event, for display.
    """

    event: str
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The history of one value.

    Attributes:
        key: The name in JSON.
        title: The title.
        unit: `ms`, `bytes`, `rows`, `rows/s`, `files`, `records` or `versions`.
        folding: The function for points of several batches: `largest`.
        newest: The value of the newest batch.
        points: The points, oldest first.
        start_ms: The start of the range of time.
        end_ms: The end of the range.
        gap_ms: The time between two points from which on the line is interrupted.
        thresholds: The thresholds of alert rules for this value.
    """

    key: str
    title: str
    unit: str
    folding: str
    newest: float | None
    points: tuple[Point, ...]
    start_ms: int
    end_ms: int
    gap_ms: int
    thresholds: tuple[Threshold, ...] = ()

    @property
    def axis(self) -> TimeAxis:
        """The time axis of the chart."""
        return TimeAxis(self.start_ms, self.end_ms)

    @property
    def highest(self) -> float:
        """The largest value; 0 without points."""
        return max((point.value for point in self.points), default=0.0)

    @property
    def lowest(self) -> float:
        """The smallest value; 0 without points."""
        return min((point.value for point in self.points), default=0.0)


def chart(
    key: str,
    title: str,
    unit: str,
    line: Timeline[T],
    value: Callable[[T], float | None],
    thresholds: Iterable[Threshold] = (),
) -> Chart:
    """Return the chart of a value of batches; batches without the value have no point."""
    points = []
    for bucket in line.buckets:
        known = [number for batch in bucket.batches if (number := value(batch)) is not None]
        if known:
            points.append(Point(bucket.first, bucket.last, bucket.at_ms, max(known)))
    newest = None if line.newest is None else value(line.newest)
    axis = line.axis
    return Chart(
        key,
        title,
        unit,
        "largest",
        newest,
        tuple(points),
        axis.start_ms,
        axis.end_ms,
        line.gap_ms,
        tuple(thresholds),
    )


@dataclass(frozen=True, slots=True)
class TableRow:
    """The values of all charts of a page at one point, for display."""

    batches: str
    at_ms: int
    values: tuple[str, ...]


def chart_table(charts: Sequence[Chart]) -> tuple[TableRow, ...]:
    """Return the points of charts with the same timeline as rows of one table, newest first."""
    rows: dict[tuple[int, int, int], list[float | None]] = {}
    for index, shown in enumerate(charts):
        for point in shown.points:
            key = (point.at_ms, point.first, point.last)
            rows.setdefault(key, [None] * len(charts))[index] = point.value
    formats = [BY_UNIT[shown.unit] for shown in charts]
    return tuple(
        TableRow(
            str(first) if first == last else f"{first}–{last}",
            at_ms,
            tuple(format_value(value) for format_value, value in zip(formats, values, strict=True)),
        )
        for (at_ms, first, last), values in sorted(rows.items(), reverse=True)
    )
