"""A row of numbers as a line of small bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The newest numbers as bars from nothing to the largest of them; what is not known is a gap.

    Args:
        values: The numbers, oldest first.
        width: How many bars there may be.
    """
    shown = list(values)[-width:] if width > 0 else []
    largest = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, largest) for value in shown)


def _bar(value: float, largest: float) -> str:
    if largest <= 0:
        return _BARS[0]
    return _BARS[min(int(max(value, 0.0) / largest * len(_BARS)), len(_BARS) - 1)]
