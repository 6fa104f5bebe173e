"""The growth of each operator's state, and forecasts of when it reaches a limit."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from holdfast.json_shapes import JsonShape
from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.job_metrics import operator_bytes, operator_label, state_bytes, stored_bytes
from holdfast.quantities import rounded_size

# The maximum number of points, because the number of their pairs grows with the square.
_POINTS: Final = 60
LEAST_POINTS: Final = 10
LEAST_SPAN_MS: Final = 300_000
# The share of rising pairs of points that counts as growth and not as noise.
_RISING: Final = 0.75


def enough(points: Sequence[tuple[int, float]]) -> bool:
    """Return whether there are enough points to distinguish growth from noise: ten over five minutes."""
    return len(points) >= LEAST_POINTS and points[-1][0] - points[0][0] >= LEAST_SPAN_MS


def growth_per_ms(points: Sequence[tuple[int, float]]) -> float | None:
    """Return the growth rate as the median of the slopes between all pairs of points (Theil and Sen).

    Args:
        points: Pairs of a time in milliseconds, ascending, and a value.

    Returns:
        The growth per millisecond; None if there are fewer than ten points, if they span less than five
        minutes, or if the value does not grow.
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
    """Return the time in milliseconds from the last point until the value reaches a limit.

    Returns:
        0 if the value has reached the limit; None if it does not grow or there are too few points.
    """
    if not points:
        return None
    if points[-1][1] >= limit:
        return 0.0
    slope = growth_per_ms(points)
    if slope is None:
        return None
    # From the height of the line at the end, so that an outlier there has no effect.
    end = points[-1][0]
    height = statistics.median(value + slope * (end - moment) for moment, value in _thinned(points))
    return max(limit - height, 0.0) / slope


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    if len(points) <= _POINTS:
        return list(points)
    step = (len(points) - 1) / (_POINTS - 1)
    return [points[round(index * step)] for index in range(_POINTS)]


DAY_MS: Final = 86_400_000


class Growing(str, Enum):
    """The verdict on the growth of a state."""

    GROWS = "grows"
    DOES_NOT_GROW = "does_not_grow"
    TOO_LITTLE_SEEN = "too_little_seen"

    @property
    def words(self) -> str:
        """Return the verdict as text for display."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Growth(JsonShape):
    """The growth of one operator's state.

    There are two forecasts, and the sooner one counts. The trend extrapolates the operator's sizes. Key
    arrival extrapolates the number of its keys, with the current size per key: it detects growth that the
    files of a store do not show yet, and predicts no growth if as many keys are removed as arrive.

    Attributes:
        operator: The operator's number in the plan and its short name.
        growing: `grows`, `does_not_grow` or `too_little_seen`.
        size_bytes: The current size.
        limit_bytes: The size limit: the query's limit minus the sizes of the other operators; None without a
            limit.
        bytes_a_day: The growth in bytes per day by the trend; None if the state does not grow.
        keys_a_day: The keys, or rows, added minus those removed per day; None if their number does not grow.
        new_keys: The number of keys, or rows, that arrived in the examined batches; None if not all are
            counted.
        removed_keys: The number of keys, or rows, removed in these batches.
        full_at_ms: The time when the state reaches the limit at its current growth, in epoch milliseconds.
        by: The forecast from which `full_at_ms` is computed: `trend` or `key_arrival`.
    """

    operator: str
    growing: Growing
    size_bytes: int
    limit_bytes: int | None
    bytes_a_day: float | None
    keys_a_day: float | None
    new_keys: int | None
    removed_keys: int | None
    full_at_ms: int | None
    by: str | None

    @property
    def why(self) -> str:
        """Return a sentence that describes the growth."""
        if self.growing is Growing.TOO_LITTLE_SEEN:
            return f"operator {self.operator}: fewer than ten batches, or less than five minutes of them"
        keys = (
            ""
            if self.new_keys is None
            else f": {self.new_keys:,} keys arrived, {self.removed_keys:,} were removed"
        )
        if self.growing is Growing.DOES_NOT_GROW:
            return f"operator {self.operator} does not grow{keys}"
        speeds = [
            *([] if self.bytes_a_day is None else [f"{rounded_size(self.bytes_a_day)} per day"]),
            *([] if self.keys_a_day is None else [f"{self.keys_a_day:,.0f} keys per day"]),
        ]
        return f"operator {self.operator} grows by {' and '.join(speeds)}{keys}"


def state_limit(thresholds: Mapping[str, float]) -> float | None:
    """Return the size limit of a query's state from the thresholds of a job's alerts."""
    return thresholds.get("state_size")


def growth(history: Sequence[BatchProgress], limit_bytes: float | None) -> tuple[Growth, ...]:
    """Return the growth of each operator of a query.

    Args:
        history: The newest batches of the query, oldest first.
        limit_bytes: The size limit of the query's state; None without one.
    """
    if not history:
        return ()
    same = _same_plan(history)
    newest = same[-1]
    whole = state_bytes(newest)
    found = []
    for index, operator in enumerate(newest.operators):
        size = operator_bytes(operator)
        limit = None if limit_bytes is None else max(int(limit_bytes) - (whole - size), 0)
        found.append(_growth(same, index, limit))
    return tuple(found)


def state_full_in_ms(history: Sequence[BatchProgress], limit_bytes: float | None) -> float | None:
    """Return the time from the newest batch until a query's state reaches its limit, in milliseconds.

    Returns:
        None if the state does not grow, if there are too few batches, or if it has reached the limit.
    """
    if limit_bytes is None or not history or not history[-1].operators:
        return None
    same = _same_plan(history)
    size = state_bytes(same[-1])
    points = [(batch.committed_ms, float(state_bytes(batch))) for batch in same if _in_files(batch)]
    by_trend = full_in_ms(points, limit_bytes)
    per_ms = sum(_arrival(same, index) or 0.0 for index in range(len(same[-1].operators)))
    by_arrival = (limit_bytes - size) / per_ms if per_ms and size < limit_bytes else None
    known = [left for left in (by_trend, by_arrival) if left]
    return min(known) if known else None


def _growth(history: Sequence[BatchProgress], index: int, limit_bytes: int | None) -> Growth:
    operator = history[-1].operators[index]
    now_ms, size = history[-1].committed_ms, operator_bytes(operator)
    sizes = _sizes(history, index)
    trend = growth_per_ms(sizes)
    counted = _counted(history, index)
    keys = growth_per_ms(counted)
    new, removed = _came_and_went(history, index)
    full: dict[str, float] = {}
    if limit_bytes is not None:
        by_trend = full_in_ms(sizes, limit_bytes)
        arriving = _arrival(history, index)
        if by_trend is not None:
            full["trend"] = by_trend
        if arriving:
            full["key_arrival"] = max(limit_bytes - size, 0) / arriving
    by = min(full, key=full.__getitem__) if full else None
    grows = trend is not None or keys is not None
    seen = enough(sizes) or enough(counted)
    return Growth(
        operator_label(index, operator),
        Growing.GROWS if grows else Growing.DOES_NOT_GROW if seen else Growing.TOO_LITTLE_SEEN,
        size,
        limit_bytes,
        None if trend is None else trend * DAY_MS,
        None if keys is None else keys * DAY_MS,
        new,
        removed,
        None if by is None or not grows else now_ms + round(full[by]),
        by if grows else None,
    )


def _same_plan(history: Sequence[BatchProgress]) -> list[BatchProgress]:
    """Return the batches with the same operators as the newest one."""
    number = len(history[-1].operators)
    return [batch for batch in history if len(batch.operators) == number]


def _in_files(batch: BatchProgress) -> bool:
    # Memory fills up to its bounds at first, which is not growth of state.
    return bool(batch.operators) and all(stored_bytes(operator) for operator in batch.operators)


def _sizes(history: Sequence[BatchProgress], index: int) -> list[tuple[int, float]]:
    found = ((batch.committed_ms, stored_bytes(batch.operators[index])) for batch in history)
    return [(at_ms, float(size)) for at_ms, size in found if size]


def _counted(history: Sequence[BatchProgress], index: int) -> list[tuple[int, float]]:
    found = ((batch.committed_ms, batch.operators[index].rows) for batch in history)
    return [(at_ms, float(rows)) for at_ms, rows in found if rows is not None]


def _arrival(history: Sequence[BatchProgress], index: int) -> float | None:
    """Return the bytes of arriving keys minus those of removed keys, per millisecond, or None."""
    operator = history[-1].operators[index]
    size = stored_bytes(operator)
    keys = growth_per_ms(_counted(history, index))
    return None if keys is None or not operator.rows or not size else keys * size / operator.rows


def _came_and_went(history: Sequence[BatchProgress], index: int) -> tuple[int | None, int | None]:
    """Return the numbers of keys that arrived and were removed in all batches except the first."""
    pairs = [(former.operators[index], later.operators[index]) for former, later in pairwise(history)]
    new = [_new_keys(former, later) for former, later in pairs]
    known = [number for number in new if number is not None]
    if not known or len(known) < len(new):
        return None, None
    return sum(known), sum(later.removed for _, later in pairs)


def _new_keys(former: OperatorProgress, later: OperatorProgress) -> int | None:
    """Return the number of new keys of a batch, derived from its totals; Spark counts only written keys."""
    if later.keyed is not None:
        return later.keyed.added
    if former.rows is None or later.rows is None:
        return None
    return max(later.rows - former.rows + later.removed, 0)
