"""Format numbers, times and charts for display, as text and as SVG paths.

Times are epoch milliseconds; an unknown number is None and displayed as a dash.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.advice.prices import money_text
from holdfast.quantities import rounded_duration, rounded_size

_COUNTS: Final = ("", "k", "M", "G")
NOTHING: Final = "–"


def _or_dash(tell: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return the same function for a number that may be None."""
    return lambda number: NOTHING if number is None else tell(number)


size: Final = _or_dash(rounded_size)
duration: Final = _or_dash(rounded_duration)
money: Final = _or_dash(money_text)


@_or_dash
def count(number: float) -> str:
    """Format a count for a table: `0`, `9,999`, `12.3 k`, `1.20 M`."""
    if abs(number) < 10_000:
        return f"{number:,.0f}"
    value, unit = float(number), 0
    while abs(value) >= 999.5 and unit < len(_COUNTS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_COUNTS[unit]}"


@_or_dash
def exact(number: float) -> str:
    """`1,234,567`."""
    return f"{number:,}"


@_or_dash
def rate(number: float) -> str:
    """Format a rate per second: `0`, `0.4`, `12`, `1,200`, `98.7 k`."""
    return f"{number:.1f}" if 0 < number < 10 else count(number)


@_or_dash
def share(part: float) -> str:
    """Format a share: `0 %`, `0.3 %`, `42 %`."""
    return f"{part * 100:.1f} %" if 0 < part < 0.0995 else f"{part * 100:.0f} %"


def ago(at_ms: int | None, now_ms: int) -> str:
    """Return a time relative to now: `just now`, `12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`."""
    if at_ms is None:
        return NOTHING
    seconds = (now_ms - at_ms) / 1000
    if seconds < -1:
        return f"in {duration(-seconds * 1000)}"
    if seconds < 2:
        return "just now"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{math.floor(seconds / length)} {unit} ago"
    return f"{math.floor(seconds)} s ago"


@_or_dash
def instant(ms: float) -> str:
    """Format a time: `2026-03-05 08:41:07 UTC`."""
    return _utc(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


@_or_dash
def clock(ms: float) -> str:
    """`08:41:07`."""
    return _utc(ms).strftime("%H:%M:%S")


def machine_time(ms: int) -> str:
    """Format a time for HTML."""
    return _utc(ms).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _utc(ms: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc)


# How the values of a chart are told, by its unit.
BY_UNIT: Final = {"ms": duration, "bytes": size, "rows": count, "rows/s": rate, "files": count}


# More points than this are folded: a person cannot tell them apart on half a screen.
MOST_POINTS: Final = 90
WIDTH: Final = 600
HEIGHT: Final = 120
_HEADROOM: Final = 1.08
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)


@dataclass(frozen=True, slots=True)
class Point:
    """A value of one batch, or of several folded batches.

    Attributes:
        first: The first of the batches.
        last: The last of the batches.
        at_ms: The time when the last one was committed, in epoch milliseconds.
        value: The value, in the chart's unit.
    """

    first: int
    last: int
    at_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The history of one value.

    Attributes:
        key: The name in JSON.
        title: The title.
        unit: `ms`, `bytes`, `rows`, `rows/s` or `files`.
        folding: The function for points of several batches: `largest`, `newest`, `sum` or `mean`.
        newest: The value of the newest batch.
        points: The points, oldest first.
    """

    key: str
    title: str
    unit: str
    folding: str
    newest: float | None
    points: tuple[Point, ...]

    @property
    def highest(self) -> float:
        """The largest value; 0 without points."""
        return max((point.value for point in self.points), default=0.0)

    @property
    def lowest(self) -> float:
        """The smallest value; 0 without points."""
        return min((point.value for point in self.points), default=0.0)


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """The hover area and text of one point."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as SVG.

    Attributes:
        line: The path of the line.
        area: The path of the area below it.
        end: The end of the line.
        top: The value at the upper edge, as text.
        middle: The value half-way, as text; empty if it has to be an integer and is not.
        hits: The hover areas.
    """

    line: str
    area: str
    end: tuple[float, float]
    top: str
    middle: str
    hits: tuple[ChartPoint, ...]


_FOLDS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "largest": max,
    "newest": lambda values: values[-1],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
}


def chart(
    key: str, title: str, unit: str, folding: str, points: Sequence[Point], most: int = MOST_POINTS
) -> Chart:
    """Return a chart of these points; neighbours are folded if there are too many."""
    newest = points[-1].value if points else None
    size = math.ceil(len(points) / most) or 1
    folded = []
    # Counted from the newest, so that only the oldest point can be of fewer batches.
    for end in range(len(points), 0, -size):
        part = points[max(0, end - size) : end]
        value = _FOLDS[folding]([point.value for point in part])
        folded.append(Point(part[0].first, part[-1].last, part[-1].at_ms, value))
    return Chart(key, title, unit, folding, newest, tuple(reversed(folded)))


def drawing(shown: Chart) -> Drawing | None:
    """Return the drawing of a chart; None if there is nothing to draw."""
    if not shown.points:
        return None
    tell = BY_UNIT[shown.unit]
    top = _edge(shown.highest * _HEADROOM, shown.unit)
    values = [point.value for point in shown.points]
    spots = _spots(values, top, WIDTH, HEIGHT)
    line = _path(spots)
    area = f"{line}L{spots[-1][0]:g} {HEIGHT}L{spots[0][0]:g} {HEIGHT}Z"
    step = WIDTH / len(values)
    hits = tuple(
        ChartPoint(round(index * step, 2), round(step, 2), f"{_batches(point)}: {tell(point.value)}")
        for index, point in enumerate(shown.points)
    )
    # Half of a few rows is not a number of rows.
    middle = "" if shown.unit in ("rows", "files") and top < 10 and top % 2 else tell(top / 2)
    return Drawing(line, area, spots[-1], tell(top), middle, hits)


def spark(values: Sequence[float], width: int = 120, height: int = 28) -> str:
    """Return the path of a small line without axes; empty below two values."""
    if len(values) < 2:
        return ""
    inner = [(x, y + 2) for x, y in _spots(values, max(values) or 1.0, width, height - 4)]
    return _path(inner)


def _batches(point: Point) -> str:
    return f"batch {point.last}" if point.first == point.last else f"batches {point.first}–{point.last}"


def _spots(values: Sequence[float], top: float, width: float, height: float) -> list[tuple[float, float]]:
    """Return the point of each value, in the middle of its step."""
    step = width / len(values)
    return [
        (round((index + 0.5) * step, 2), round(height - height * min(value / top, 1.0), 2))
        for index, value in enumerate(values)
    ]


def _path(spots: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in spots)


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
