"""Formatting of measured durations, sizes and counts as text for people."""

from __future__ import annotations

from typing import Final

SIZE_NAMES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def rounded_duration(ms: float) -> str:
    """Format a measured duration: `30 µs`, `45 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`, `2 d 22 h`."""
    if 0 < ms < 0.9995:
        return f"{ms * 1000:.0f} µs"
    if ms < 999.5:
        return f"{ms:.1f} ms" if ms < 9.95 and ms != round(ms) else f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def rounded_size(size_bytes: float) -> str:
    """Format a measured size in powers of 1024: `980 B`, `1.2 KiB`, `34 MiB`."""
    *smaller, largest = SIZE_NAMES
    value, unit = float(size_bytes), largest
    for name in smaller:
        if value < 1023.5:
            unit = name
            break
        value /= 1024
    if unit == "B" or value >= 99.95:
        return f"{value:.0f} {unit}"
    return f"{f'{value:.1f}'.removesuffix('.0')} {unit}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `2 rows`, `2 batches`, `2 queries`."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
