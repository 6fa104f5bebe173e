"""Charts as values, and how they are drawn: lines of SVG that stretch to any width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.server.dashboard import number_format

# More points than this are folded: a person cannot tell them apart on half a screen.
MOST_POINTS: Final = 90
WIDTH: Final = 600
HEIGHT: Final = 120
_HEADROOM: Final = 1.08
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)


@dataclass(frozen=True, slots=True)
class Point:
    """A value of one batch, or of several that were folded into one.

    Attributes:
        first: The first of the batches.
        last: The last of them.
        at_ms: When the last one was committed, in epoch milliseconds.
        value: In the chart's unit.
    """

    first: int
    last: int
    at_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class Chart:
    """How one number has gone.

    Attributes:
        key: What it is called in JSON.
        title: What it is called.
        unit: `ms`, `bytes`, `rows`, `rows/s` or `files`.
        folding: What a point of several batches shows: `largest`, `newest`, `sum` or `mean`.
        newest: The value of the newest batch.
        points: Oldest first.
    """

    key: str
    title: str
    unit: str
    folding: str
    newest: float | None
    points: tuple[Point, ...]

    @property
    def highest(self) -> float:
        """The largest value; 0 where there is none."""
        return max((point.value for point in self.points), default=0.0)

    @property
    def lowest(self) -> float:
        """The smallest value; 0 where there is none."""
        return min((point.value for point in self.points), default=0.0)


@dataclass(frozen=True, slots=True)
class Hit:
    """The part of a drawing that tells of one point."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as SVG.

    Attributes:
        line: The path of the line.
        area: The path of what is below it.
        end: Where the line ends.
        top: The value at the upper edge, as text.
        middle: The value half-way; empty where it is not whole and has to be.
        hits: What is told of each point.
    """

    line: str
    area: str
    end: tuple[float, float]
    top: str
    middle: str
    hits: tuple[Hit, ...]


_FOLDS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "largest": max,
    "newest": lambda values: values[-1],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
}


def chart(
    key: str, title: str, unit: str, folding: str, points: Sequence[Point], most: int = MOST_POINTS
) -> Chart:
    """A chart of these points, with neighbours folded where there are too many of them."""
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
    """How a chart is drawn; None where there is nothing to draw."""
    if not shown.points:
        return None
    tell = number_format.BY_UNIT[shown.unit]
    top = _edge(shown.highest * _HEADROOM, shown.unit)
    values = [point.value for point in shown.points]
    spots = _spots(values, top, WIDTH, HEIGHT)
    line = _path(spots)
    area = f"{line}L{spots[-1][0]:g} {HEIGHT}L{spots[0][0]:g} {HEIGHT}Z"
    step = WIDTH / len(values)
    hits = tuple(
        Hit(round(index * step, 2), round(step, 2), f"{_batches(point)}: {tell(point.value)}")
        for index, point in enumerate(shown.points)
    )
    # Half of a few rows is no number of rows.
    middle = "" if shown.unit in ("rows", "files") and top < 10 and top % 2 else tell(top / 2)
    return Drawing(line, area, spots[-1], tell(top), middle, hits)


def spark(values: Sequence[float], width: int = 120, height: int = 28) -> str:
    """The path of a small line without axes; empty below two values."""
    if len(values) < 2:
        return ""
    inner = [(x, y + 2) for x, y in _spots(values, max(values) or 1.0, width, height - 4)]
    return _path(inner)


def _batches(point: Point) -> str:
    return f"batch {point.last}" if point.first == point.last else f"batches {point.first}–{point.last}"


def _spots(values: Sequence[float], top: float, width: float, height: float) -> list[tuple[float, float]]:
    """Where each value is, in the middle of its step."""
    step = width / len(values)
    return [
        (round((index + 0.5) * step, 2), round(height - height * min(value / top, 1.0), 2))
        for index, value in enumerate(values)
    ]


def _path(spots: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in spots)


def _edge(highest: float, unit: str) -> float:
    """A round number that is not below the highest value, in the unit that it is told in."""
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
