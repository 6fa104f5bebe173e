"""The wall clock, as all rooms count time."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The time of day in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000
