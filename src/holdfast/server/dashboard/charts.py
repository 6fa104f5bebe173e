"""Charts of values over time, as points and as SVG.

A chart has about 200 points at most. If a range of time has more batches, it is divided into equal intervals,
and a point is the largest value of its interval. Times are epoch milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Final, Generic, TypeVar

from holdfast.server.dashboard.figures import BY_UNIT, clock, instant, minute

T = TypeVar("T")

MOST_POINTS: Final = 200
WIDTH: Final = 600
HEIGHT: Final = 120
_HEADROOM: Final = 1.08
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
# The ranges that a reader can choose, with the words for them; None is everything that is kept.
RANGES: Final[Mapping[str, tuple[str, int | None]]] = {
    "hour": ("Last hour", _HOUR),
    "day": ("Last day", _DAY),
    "week": ("Last week", 7 * _DAY),
    "all": ("All kept", None),
}
ALL: Final = "all"
_SHORTEST: Final = _MINUTE
# The lengths of intervals and the distances of tick labels.
_LENGTHS: Final = (
    *(seconds * _SECOND for seconds in (1, 2, 5, 10, 20, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 20, 30)),
    *(hours * _HOUR for hours in (1, 2, 4, 6, 12)),
    *(days * _DAY for days in (1, 2, 4, 7, 14, 28, 56, 112, 224, 448)),
)
_MOST_TICKS: Final = 7
# The line is interrupted where no batch was committed for so many usual intervals, and for at least so long.
_GAP_INTERVALS: Final = 3
_SHORTEST_GAP: Final = 10 * _SECOND
# Half the width of a hover area where no neighbour limits it.
_REACH: Final = 8.0
# Markers of one kind that are closer are drawn as one.
_MARKER_WIDTH: Final = 4
# A threshold that is higher than so many times the largest value would make the line flat.
_THRESHOLD_REACH: Final = 4


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The range of time of a chart.

    Attributes:
        start_ms: The left edge.
        end_ms: The right edge.
    """

    start_ms: int
    end_ms: int

    @property
    def interval_ms(self) -> int:
        """The length of an interval whose batches are combined into one point, if there are many."""
        return _length(self.end_ms - self.start_ms, MOST_POINTS + 2)

    def x(self, at_ms: int) -> float:
        """Return the horizontal position of a time."""
        return round((at_ms - self.start_ms) / (self.end_ms - self.start_ms) * WIDTH, 2)


def time_axis(name: str, end_ms: int, oldest_ms: int | None) -> TimeAxis:
    """Return the axis of a range.

    Its edges are multiples of the interval, so that a batch stays in its interval while time passes.

    Args:
        name: The range, one of `RANGES`.
        end_ms: The end of the range: now, or the end of the job.
        oldest_ms: The time of the oldest batch, the beginning of `all`.
    """
    length = RANGES[name][1]
    oldest = end_ms if oldest_ms is None else oldest_ms
    span = max(end_ms - oldest, _SHORTEST) if length is None else length
    interval = _length(span, MOST_POINTS)
    end = -(-end_ms // interval) * interval
    start = end - length if length is not None else (end_ms - span) // interval * interval
    return TimeAxis(start, end)


def _length(span_ms: int, most: int) -> int:
    """Return the shortest round length that divides a span into at most so many parts."""
    return next((length for length in _LENGTHS if length * most >= span_ms), _LENGTHS[-1])


@dataclass(frozen=True, slots=True)
class Bucket(Generic[T]):
    """The batches of one point, oldest first; at least one.

    Attributes:
        first: The id of the first batch.
        last: The id of the last one.
        at_ms: The time when the last one was committed.
        batches: The batches.
    """

    first: int
    last: int
    at_ms: int
    batches: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Timeline(Generic[T]):
    """The batches of all charts of a page, by time.

    Attributes:
        axis: The range of time.
        gap_ms: The distance of two points beyond which the line is interrupted.
        buckets: The batches in the range, by point.
        newest: The newest batch, also where it is outside the range; None without batches.
    """

    axis: TimeAxis
    gap_ms: int
    buckets: tuple[Bucket[T], ...]
    newest: T | None


def timeline(
    batches: Iterable[T], at_ms: Callable[[T], int], number: Callable[[T], int], name: str, end_ms: int
) -> Timeline[T]:
    """Return batches by time.

    Args:
        batches: The batches.
        at_ms: Returns the time of a batch.
        number: Returns the id of a batch.
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
    """The largest value of one or several batches.

    Attributes:
        first: The first of the batches.
        last: The last of the batches.
        at_ms: The time when the last one was committed.
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
    """An event in the life of a job, drawn as a vertical line.

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
        start_ms: The beginning of the range of time.
        end_ms: The end of the range.
        gap_ms: The distance of two points beyond which the line is interrupted.
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
        """The range of time."""
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
class HoverArea:
    """The area that shows the value of one point."""

    x: float
    width: float
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the time axis.

    Attributes:
        percent: Its position, in percent of the width.
        at_ms: The time.
        text: The time in UTC, for display.
        daily: True if labels are whole days apart; scripts move them to midnight in the reader's time zone.
    """

    percent: float
    at_ms: int
    text: str
    daily: bool


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """The line of a threshold.

    Attributes:
        percent: Its position, in percent of the height; None if it is far above all values.
        below: True if there is no room for a label above the line.
        rule: The name of the alert rule.
        threshold: The threshold, for display.
    """

    percent: float | None
    below: bool
    rule: str
    threshold: str

    @property
    def text(self) -> str:
        """The label of the line."""
        return f"Alert above {self.threshold}"


@dataclass(frozen=True, slots=True)
class MarkerLine:
    """The vertical line of one event, or of several at almost the same time."""

    event: str
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as SVG.

    Attributes:
        label: The chart as a sentence: its range of time, its newest value, thresholds and events.
        line: The path of the line, interrupted at gaps.
        area: The path of the area below it.
        end: The end of the line.
        top: The value at the upper edge, as text.
        middle: The value half-way, as text; empty if it has to be an integer and is not.
        hits: The hover areas.
        ticks: The labels of the time axis.
        thresholds: The lines of thresholds.
        markers: The lines of events.
    """

    label: str
    line: str
    area: str
    end: tuple[float, float]
    top: str
    middle: str
    hits: tuple[HoverArea, ...]
    ticks: tuple[Tick, ...]
    thresholds: tuple[ThresholdLine, ...]
    markers: tuple[MarkerLine, ...]


def drawing(shown: Chart, markers: Sequence[Marker] = ()) -> Drawing | None:
    """Return the drawing of a chart; None without points."""
    if not shown.points:
        return None
    format_value = BY_UNIT[shown.unit]
    near = [
        threshold.value
        for threshold in shown.thresholds
        if threshold.value <= _THRESHOLD_REACH * shown.highest
    ]
    top = _edge(max([shown.highest, *near]) * _HEADROOM, shown.unit)
    segments = _segments(shown, top)
    lines = tuple(_threshold_line(threshold, top) for threshold in shown.thresholds)
    events = marker_lines(markers, shown.axis)
    # Half of a few rows is not a number of rows.
    whole = shown.unit in ("rows", "files", "records", "versions")
    return Drawing(
        _label(shown, lines, markers),
        "".join(_path(segment) for segment in segments),
        "".join(_area(segment) for segment in segments),
        segments[-1][-1],
        format_value(top),
        "" if whole and top < 10 and top % 2 else format_value(top / 2),
        _hover_areas(shown),
        ticks(shown.axis),
        lines,
        events,
    )


def spark(values: Sequence[float], width: int = 120, height: int = 28) -> str:
    """Return the path of a small line without axes; empty below two values."""
    if len(values) < 2:
        return ""
    top = max(values) or 1.0
    step = width / len(values)
    spots = [
        (round((index + 0.5) * step, 2), _y(value, top, height - 4) + 2) for index, value in enumerate(values)
    ]
    return _path(spots)


def ticks(axis: TimeAxis) -> tuple[Tick, ...]:
    """Return the labels of a time axis: times at round distances, dates at midnight."""
    step = _length(axis.end_ms - axis.start_ms, _MOST_TICKS)
    first = -(-axis.start_ms // step) * step
    return tuple(
        Tick(round(axis.x(at_ms) / WIDTH * 100, 2), at_ms, _tick_text(at_ms, step), step >= _DAY)
        for at_ms in range(first, axis.end_ms + 1, step)
    )


def _tick_text(at_ms: int, step: int) -> str:
    if at_ms % _DAY == 0:
        return minute(at_ms)[5:10]
    return clock(at_ms) if step < _MINUTE else clock(at_ms)[:5]


def marker_lines(markers: Iterable[Marker], axis: TimeAxis) -> tuple[MarkerLine, ...]:
    """Return the lines of events in a range; events of one kind that are very close share a line."""
    groups: dict[tuple[str, int], list[Marker]] = {}
    for marker in sorted(markers, key=lambda marker: marker.at_ms):
        if axis.start_ms <= marker.at_ms <= axis.end_ms:
            slot = int(axis.x(marker.at_ms) // _MARKER_WIDTH)
            groups.setdefault((marker.event, slot), []).append(marker)
    return tuple(_marker_line(event, group, axis) for (event, _), group in groups.items())


def _marker_line(event: str, group: Sequence[Marker], axis: TimeAxis) -> MarkerLine:
    newest = group[-1]
    text = f"{newest.text} · {instant(newest.at_ms)}"
    if len(group) > 1:
        text = f"{_counted(event, len(group))}, the last: {text}"
    return MarkerLine(event, axis.x(newest.at_ms), text)


_EVENT_WORDS: Final = {
    "restart": ("restart", "restarts"),
    "savepoint": ("savepoint", "savepoints"),
    "savepoint-failed": ("failed savepoint", "failed savepoints"),
}


def _counted(event: str, count: int) -> str:
    return f"{count} {_EVENT_WORDS[event][count > 1]}"


def _label(shown: Chart, lines: Sequence[ThresholdLine], markers: Sequence[Marker]) -> str:
    format_value = BY_UNIT[shown.unit]
    newest = "unknown" if shown.newest is None else format_value(shown.newest)
    events = Counter(
        marker.event for marker in markers if shown.start_ms <= marker.at_ms <= shown.end_ms
    ).items()
    parts = [
        f"{shown.title} from {minute(shown.start_ms)} to {minute(shown.end_ms)} UTC",
        f"Newest {newest}, smallest {format_value(shown.lowest)}, largest {format_value(shown.highest)}",
        *(line.text for line in lines),
        ", ".join(_counted(event, count) for event, count in events),
    ]
    return ". ".join(filter(None, parts))


def _threshold_line(threshold: Threshold, top: float) -> ThresholdLine:
    if threshold.value > top:
        return ThresholdLine(None, False, threshold.rule, threshold.text)
    percent = round(_y(threshold.value, top, HEIGHT) / HEIGHT * 100, 2)
    return ThresholdLine(percent, percent < 15, threshold.rule, threshold.text)


def _segments(shown: Chart, top: float) -> list[list[tuple[float, float]]]:
    """Return the spots of the line, divided where no batch was committed for long."""
    axis = shown.axis
    segments: list[list[tuple[float, float]]] = []
    former: Point | None = None
    for point in shown.points:
        if former is None or point.at_ms - former.at_ms > shown.gap_ms:
            segments.append([])
        segments[-1].append((axis.x(point.at_ms), _y(point.value, top, HEIGHT)))
        former = point
    return segments


def _hover_areas(shown: Chart) -> tuple[HoverArea, ...]:
    """Return the hover area of each point: half-way to its neighbours, but not across a gap."""
    axis, format_value = shown.axis, BY_UNIT[shown.unit]
    xs = [axis.x(point.at_ms) for point in shown.points]
    areas = []
    for index, point in enumerate(shown.points):
        left, right = max(xs[index] - _REACH, 0.0), min(xs[index] + _REACH, float(WIDTH))
        if index and point.at_ms - shown.points[index - 1].at_ms <= shown.gap_ms:
            left = (xs[index - 1] + xs[index]) / 2
        if index + 1 < len(xs) and shown.points[index + 1].at_ms - point.at_ms <= shown.gap_ms:
            right = (xs[index] + xs[index + 1]) / 2
        text = f"{_batches(point)}: {format_value(point.value)}"
        areas.append(HoverArea(round(left, 2), round(right - left, 2), point.at_ms, text))
    return tuple(areas)


def _batches(point: Point) -> str:
    return f"batch {point.last}" if point.first == point.last else f"batches {point.first}–{point.last}"


def _y(value: float, top: float, height: float) -> float:
    return round(height - height * min(max(value / top, 0.0), 1.0), 2)


def _path(spots: Sequence[tuple[float, float]]) -> str:
    """Return the path through spots; a single one is a dot."""
    if len(spots) == 1:
        return f"M{spots[0][0]:g} {spots[0][1]:g}h.01"
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in spots)


def _area(spots: Sequence[tuple[float, float]]) -> str:
    if len(spots) == 1:
        return ""
    return f"{_path(spots)}L{spots[-1][0]:g} {HEIGHT}L{spots[0][0]:g} {HEIGHT}Z"


def _edge(highest: float, unit: str) -> float:
    """Return a round number that is at least the highest value, in its display unit."""
    if highest <= 0:
        return 1.0
    scale = 1.0
    if unit == "bytes":
        while highest / scale >= 1024:
            scale *= 1024
    elif unit == "ms" and highest >= 60_000:
        scale = 60_000 if highest < 3_600_000 else 3_600_000
    power = 10.0 ** math.floor(math.log10(highest / scale))
    return next(step * power * scale for step in _STEPS if step * power * scale >= highest)


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
