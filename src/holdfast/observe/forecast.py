"""When something that grows will be full: a line that single outliers cannot bend."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

# Of more points only so many are looked at: the pairs between them grow with the square.
_POINTS: Final = 60
LEAST_POINTS: Final = 10
LEAST_SPAN_MS: Final = 300_000
# Of all pairs of points so many must go up before it counts as growth and not as noise.
_RISING: Final = 0.75


def enough(points: Sequence[tuple[int, float]]) -> bool:
    """Whether there are enough moments to tell growth from noise: ten of them, over five minutes."""
    return len(points) >= LEAST_POINTS and points[-1][0] - points[0][0] >= LEAST_SPAN_MS


def growth_per_ms(points: Sequence[tuple[int, float]]) -> float | None:
    """How fast a value grows, as the median of the slopes between all pairs of points (Theil and Sen).

    Args:
        points: Moments in milliseconds, ascending, and the value at each.

    Returns:
        None if there are fewer than ten moments, if they span less than five minutes, or if the value
        does not grow.
    """
    if not enough(points):
        return None
    thin = _thinned(points)
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(thin)
        for later in thin[index + 1 :]
        if later[0] > earlier[0]
    ]
    rising = sum(1 for slope in slopes if slope > 0)
    slope = statistics.median(slopes)
    return slope if slope > 0 and rising >= _RISING * len(slopes) else None


def full_in_ms(points: Sequence[tuple[int, float]], limit: float) -> float | None:
    """How long after the last moment the value reaches a limit, if it goes on growing as it did.

    Returns:
        0 where it is there already, None where it does not grow or too little is known.
    """
    if not points:
        return None
    if points[-1][1] >= limit:
        return 0.0
    slope = growth_per_ms(points)
    if slope is None:
        return None
    # From the line's own height at the end, so that an outlier there does not count either.
    end = points[-1][0]
    height = statistics.median(value + slope * (end - moment) for moment, value in _thinned(points))
    return max(limit - height, 0.0) / slope


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    if len(points) <= _POINTS:
        return list(points)
    step = (len(points) - 1) / (_POINTS - 1)
    return [points[round(index * step)] for index in range(_POINTS)]
