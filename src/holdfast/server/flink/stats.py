"""Minimum, maximum, mean and percentiles of a handful of numbers, as Flink tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_PERCENTILES: Final = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9))
NOT_A_NUMBER: Final = "NaN"


def stats(values: Sequence[int], *, percentiles: bool = True) -> dict[str, Any]:
    """The numbers of a sample; percentiles are the text `NaN` where there are none.

    Args:
        values: The sample.
        percentiles: Whether to work them out. Flink does not for the tasks of a single checkpoint.
    """
    ordered = sorted(values)
    known = percentiles and bool(ordered)
    return {
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "avg": sum(ordered) // len(ordered) if ordered else 0,
        **{name: percentile(ordered, part) if known else NOT_A_NUMBER for name, part in _PERCENTILES},
    }


def percentile(ordered: Sequence[int], part: float) -> float:
    """A percentile between the two values nearest to it, counted from one to n + 1."""
    position = part * (len(ordered) + 1) / 100
    below = int(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)
