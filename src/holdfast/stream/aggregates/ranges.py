"""Aggregates over ranges of sorted rows, each as if it were computed from its own rows alone.

Sums are differences of running totals, which is exact only because the totals are: numbers are added as
whole numbers of their smallest unit, floating-point ones too. What is retired leaves no trace in the last
digits, and a result does not depend on the order in which rows arrived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import offsets_of
from holdfast.worker.runtime.table_state.vectors import numbers_of, valid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.stream.aggregates.measures import Measure

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_LOWEST = np.iinfo(np.int64).min
_TOO_LARGE = 2**63


def ranges_before(position: Numbers, at: Numbers, asked: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Find for some rows the range of rows of their key that are no later, and earlier by at most `size`.

    Args:
        position: The key of each row; rows are sorted by it and then by their time.
        at: The time of each row.
        asked: Which rows to find it for.
        size: How far back; that far exactly is in the range.

    Returns:
        The first row of each range, and the one after its last. Rows at the same time are all in it.
    """
    keys, times = position[asked], at[asked]
    first = np.maximum(times, _LOWEST + size) - size
    start = _rows_before(position, at, keys, first, same_time=False)
    return start, _rows_before(position, at, keys, times, same_time=True)


def aggregate(measure: Measure, column: pa.Array | None, start: Numbers, stop: Numbers) -> pa.Array:
    """Compute one aggregate over ranges of a column.

    Raises:
        Invalid: A sum does not fit its type.
    """
    if column is None:
        return pa.array(stop - start)
    there = valid(column)
    counts = _over(there.astype(np.int64), start, stop)
    if measure.function == "count":
        return pa.array(counts)
    if measure.function in ("min", "max"):
        return _extremes(column, there, start, stop, largest=measure.function == "max")
    if kinds.is_floating(column.type):
        return _float_results(measure, numbers_of(column), counts, start, stop)
    units = _units(column, there)
    return _whole_results(measure, _totals(units, start, stop), counts)


def _rows_before(
    position: Numbers, at: Numbers, keys: Numbers, times: Numbers, *, same_time: bool
) -> Numbers:
    """Count the rows before each pair of key and time; with `same_time` also those exactly there."""
    rows = len(position)
    side = np.repeat([0, 1] if same_time else [1, 0], [rows, len(keys)])
    order = np.lexsort((side, np.concatenate([at, times]), np.concatenate([position, keys])))
    is_row = order < rows
    counts = np.empty(len(keys), np.int64)
    counts[order[~is_row] - rows] = np.cumsum(is_row)[~is_row]
    return counts


def _over(values: Numbers, start: Numbers, stop: Numbers) -> Numbers:
    """Sum each range. Totals may wrap around; a difference that fits 64 bits is right all the same."""
    totals = offsets_of(values)
    sums: Numbers = totals[stop] - totals[start]
    return sums


def _totals(units: Numbers | list[int], start: Numbers, stop: Numbers) -> Numbers | list[int]:
    """The exact sum of each range, as numpy where they all fit 64 bits."""
    if not len(start):
        return np.zeros(0, np.int64)
    if isinstance(units, np.ndarray):
        largest = max(int(units.max()), -int(units.min()))
        if largest * int((stop - start).max()) < _TOO_LARGE:
            return _over(units, start, stop)
        units = units.tolist()
    totals = list(accumulate(units, initial=0))
    return [totals[b] - totals[a] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]


def _units(column: pa.Array, there: Mask) -> Numbers | list[int]:
    """Whole numbers as they are, decimals in units of their last digit; 0 for null."""
    if not kinds.is_decimal(column.type):
        return numbers_of(column)
    raw = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
    low, high = np.where(there, raw[:, 0], 0), np.where(there, raw[:, 1], 0)
    if (high == low >> 63).all():
        return low
    return [(h << 64) | b for h, b in zip(high.tolist(), low.view(np.uint64).tolist(), strict=True)]


def _whole_results(measure: Measure, totals: Numbers | list[int], counts: Numbers) -> pa.Array:
    """Sums or averages of whole numbers or decimals; null where there was nothing."""
    none = counts == 0
    if measure.function == "sum" and isinstance(totals, np.ndarray) and kinds.is_integer(measure.output):
        return pa.array(totals, mask=none)
    listed = totals.tolist() if isinstance(totals, np.ndarray) else totals
    if measure.function == "sum":
        return _exactly(measure, listed, none)
    pairs = zip(listed, counts.tolist(), strict=True)
    if not kinds.is_decimal(measure.output):
        return pa.array([total / count if count else None for total, count in pairs], pa.float64())
    scale = measure.input.scale if measure.input is not None else 0
    factor = 10 ** (measure.output.scale - scale)
    return _exactly(measure, [_half_up(total * factor, max(count, 1)) for total, count in pairs], none)


def _exactly(measure: Measure, values: Sequence[int], none: Mask) -> pa.Array:
    """Whole numbers, or units of a decimal's last digit, as a column of the measure's type."""
    kind = measure.output
    largest = 10**kind.precision - 1 if kinds.is_decimal(kind) else _TOO_LARGE - 1
    least = -largest if kinds.is_decimal(kind) else -_TOO_LARGE
    if any(not least <= value <= largest for value in values):
        raise Invalid(
            "a result does not fit its type",
            where=f"{measure.function}({measure.column})",
            expected=str(kind),
            hint="cast the column to a decimal with fewer digits, or to double",
        )
    if not kinds.is_decimal(kind):
        return pa.array(values, kind, mask=none)
    data = pa.py_buffer(b"".join(value.to_bytes(16, "little", signed=True) for value in values))
    column = pa.Array.from_buffers(kind, len(values), [None, data])
    return pc.if_else(pa.array(~none), column, pa.scalar(None, kind))


def _half_up(value: int, divisor: int) -> int:
    """Divide, a half rounded away from zero as Spark does."""
    rounded = (2 * abs(value) + divisor) // (2 * divisor)
    return rounded if value >= 0 else -rounded


def _float_results(
    measure: Measure, values: NDArray[np.float64], counts: Numbers, start: Numbers, stop: Numbers
) -> pa.Array:
    """Sums or averages of floating-point numbers, rounded once."""
    finite = np.isfinite(values)
    units, power = _float_units(np.where(finite, values, 0.0))
    totals = _totals(units, start, stop)
    results: list[float | None] = []
    for total, count in zip(map(int, totals), counts.tolist(), strict=True):
        divisor = count if measure.function == "avg" else 1
        results.append(_quotient(total, divisor, power) if count else None)
    if not finite.all():
        kept = {name: _over(of(values).astype(np.int64), start, stop) > 0 for name, of in _SPECIAL.items()}
        for row in np.flatnonzero(kept["nan"] | kept["up"] | kept["down"]).tolist():
            if kept["nan"][row] or (kept["up"][row] and kept["down"][row]):
                results[row] = math.nan
            else:
                results[row] = math.inf if kept["up"][row] else -math.inf
    return pa.array(results, pa.float64())


_SPECIAL: dict[str, Any] = {"nan": np.isnan, "up": np.isposinf, "down": np.isneginf}


def _float_units(values: NDArray[np.float64]) -> tuple[list[int], int]:
    """Floating-point numbers as whole numbers, and the power of two by which these are too large."""
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    shifts = exponents.astype(np.int64) - 53
    present = shifts[whole != 0]
    least = min(int(present.min()), 0) if len(present) else 0
    shifts = np.where(whole != 0, shifts - least, 0)
    units = [number << shift for number, shift in zip(whole.tolist(), shifts.tolist(), strict=True)]
    return units, -least


def _quotient(total: int, divisor: int, power: int) -> float:
    try:
        return total / (divisor << power)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _extremes(column: pa.Array, there: Mask, start: Numbers, stop: Numbers, *, largest: bool) -> pa.Array:
    """The least or largest value of each range; NaN is larger than every number, as in Spark SQL."""
    order = pc.array_sort_indices(column, null_placement="at_end").to_numpy().astype(np.int64)
    ranks = np.empty(len(column), np.int64)
    ranks[order] = np.arange(len(column))
    if largest:
        ranks = np.where(there, ranks, -1)
    rank = _least_of(-ranks, start, stop) if largest else _least_of(ranks, start, stop)
    rank = -rank if largest else rank
    none = (rank < 0) | (rank >= int(there.sum()))
    return column.take(pa.array(order[np.where(none, 0, rank)], mask=none))


def _least_of(ranks: Numbers, start: Numbers, stop: Numbers) -> Numbers:
    """The least rank of each range, which is that of two overlapping stretches of a power of two."""
    levels = np.frexp((stop - start).astype(np.float64))[1] - 1
    lowest = np.empty(len(start), np.int64)
    least = ranks
    for level in range(int(levels.max(initial=-1)) + 1):
        here = levels == level
        width = 1 << level
        lowest[here] = np.minimum(least[start[here]], least[stop[here] - width])
        least = np.minimum(least[:-width], least[width:])
    return lowest
