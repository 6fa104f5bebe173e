"""Formatting of numbers and times for display.

Times are epoch milliseconds; an unknown number is None and displayed as a dash.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Final

from holdfast.advice.prices import money_text
from holdfast.quantities import rounded_duration, rounded_size

_COUNTS: Final = ("", "k", "M", "G")
NOTHING: Final = "–"


def _or_dash(format_number: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return a formatting function that also accepts None and displays it as a dash."""
    return lambda number: NOTHING if number is None else format_number(number)


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
    """Format a number exactly: `1,234,567`."""
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
def minute(ms: float) -> str:
    """Format a time without its seconds: `2026-03-05 08:41`."""
    return _utc(ms).strftime("%Y-%m-%d %H:%M")


@_or_dash
def clock(ms: float) -> str:
    """Format a time of day: `08:41:07`."""
    return _utc(ms).strftime("%H:%M:%S")


def machine_time(ms: int) -> str:
    """Format a time for the `datetime` attribute of HTML."""
    return _utc(ms).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _utc(ms: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc)


# The format of a chart's values, by its unit.
BY_UNIT: Final = {
    "ms": duration,
    "bytes": size,
    "rows": count,
    "rows/s": rate,
    "files": count,
    "records": count,
    "versions": count,
}
