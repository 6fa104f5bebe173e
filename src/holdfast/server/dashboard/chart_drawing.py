"""The drawing of charts as SVG: lines, thresholds, events, labels and hover areas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.server.dashboard.charts import (
    DAY,
    MINUTE,
    WIDTH,
    Chart,
    Marker,
    Point,
    Threshold,
    TimeAxis,
    round_length,
)
from holdfast.server.dashboard.figures import BY_UNIT, clock, instant, minute

HEIGHT: Final = 120
_HEADROOM: Final = 1.08
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)
_MOST_TICKS: Final = 7
# Half the width of a hover area where no neighbour limits it.
_REACH: Final = 8.0
# Markers of one type that are closer than this are drawn as one.
_MARKER_WIDTH: Final = 4
# A threshold higher than this multiple of the largest value would make the line flat.
_THRESHOLD_REACH: Final = 4


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
        percent: The position, in percent of the width.
        at_ms: The time.
        text: The time in UTC, for display.
        daily: Whether labels are whole days apart; scripts then move them to midnight in the reader's time
            zone.
    """

    percent: float
    at_ms: int
    text: str
    daily: bool


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """The line of a threshold.

    Attributes:
        percent: The position, in percent of the height; None if it is far above all values.
        below: Whether the label must be below the line for lack of room.
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
    """The vertical line of one or several events at almost the same time."""

    event: str
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The parts of a chart's SVG.

    Attributes:
        label: The description of the chart: the range of time, the newest value, thresholds and events.
        line: The SVG path of the line, interrupted at gaps.
        area: The SVG path of the area below the line.
        end: The last point of the line.
        top: The value at the upper edge, as text.
        middle: The value at half height, as text; empty if the unit requires an integer and the value is not
            one.
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
    # A fraction of a row is not meaningful.
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
    """Return the SVG path of a sparkline; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    top = max(values) or 1.0
    step = width / len(values)
    spots = [
        (round((index + 0.5) * step, 2), _y(value, top, height - 4) + 2) for index, value in enumerate(values)
    ]
    return _path(spots)


def ticks(axis: TimeAxis) -> tuple[Tick, ...]:
    """Return the labels of a time axis at round intervals, with dates at midnight."""
    step = round_length(axis.end_ms - axis.start_ms, _MOST_TICKS)
    first = -(-axis.start_ms // step) * step
    return tuple(
        Tick(round(axis.x(at_ms) / WIDTH * 100, 2), at_ms, _tick_text(at_ms, step), step >= DAY)
        for at_ms in range(first, axis.end_ms + 1, step)
    )


def _tick_text(at_ms: int, step: int) -> str:
    if at_ms % DAY == 0:
        return minute(at_ms)[5:10]
    return clock(at_ms) if step < MINUTE else clock(at_ms)[:5]


def marker_lines(markers: Iterable[Marker], axis: TimeAxis) -> tuple[MarkerLine, ...]:
    """Return the lines of the events in a range; events of one type that are very close share a line."""
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
    """Return the points of the line, divided into segments where no batch was committed for a long time."""
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
    """Return the hover area of each point, which extends half-way to its neighbours but not across a gap."""
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
    """Return the SVG path through points; a single point is drawn as a dot."""
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
