"""Numbers as people read them."""

from __future__ import annotations

import datetime as dt
import math
from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNTS: Final = ("", "k", "M", "G")
NOTHING: Final = "–"


def size(count: float | None) -> str:
    """`0 B`, `980 B`, `1.2 KiB`, `34 MiB`, in powers of 1024 as everywhere in Holdfast."""
    if count is None:
        return NOTHING
    value, unit = float(count), 0
    while value >= 1023.5 and unit < len(_BYTES) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0 or value >= 99.95:
        return f"{value:.0f} {_BYTES[unit]}"
    return f"{f'{value:.1f}'.removesuffix('.0')} {_BYTES[unit]}"


def count(number: float | None) -> str:
    """`0`, `9,999`, `12.3 k`, `1.20 M`: short enough for a table, exact while that is short."""
    if number is None:
        return NOTHING
    if abs(number) < 10_000:
        return f"{number:,.0f}"
    value, unit = float(number), 0
    while abs(value) >= 999.5 and unit < len(_COUNTS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_COUNTS[unit]}"


def exact(number: int | None) -> str:
    """`1,234,567`."""
    return NOTHING if number is None else f"{number:,}"


def rate(number: float | None) -> str:
    """`0`, `0.4`, `12`, `1,200`, `98.7 k`, each a second."""
    if number is None:
        return NOTHING
    return f"{number:.1f}" if 0 < number < 10 else count(number)


def duration(ms: float | None) -> str:
    """`0 ms`, `30 µs`, `45 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    if ms is None:
        return NOTHING
    if ms < 999.5:
        return _short(ms)
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _short(ms: float) -> str:
    if 0 < ms < 0.9995:
        return f"{ms * 1000:.0f} µs"
    return f"{ms:.1f} ms" if ms < 9.95 and ms != round(ms) else f"{ms:.0f} ms"


def share(part: float | None) -> str:
    """`0 %`, `0.3 %`, `42 %`."""
    if part is None:
        return NOTHING
    return f"{part * 100:.1f} %" if 0 < part < 0.0995 else f"{part * 100:.0f} %"


def ago(at_ms: int | None, now_ms: int) -> str:
    """How long ago something was: `just now`, `12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`."""
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


def instant(ms: int | None) -> str:
    """`2026-03-05 08:41:07 UTC`."""
    if ms is None:
        return NOTHING
    return _utc(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(ms: int | None) -> str:
    """`08:41:07`."""
    return NOTHING if ms is None else _utc(ms).strftime("%H:%M:%S")


def machine_time(ms: int) -> str:
    """An instant as HTML wants it."""
    return _utc(ms).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _utc(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc)


# How the values of a chart are told, by its unit.
BY_UNIT: Final = {"ms": duration, "bytes": size, "rows": count, "rows/s": rate, "files": count}
