"""The wall clock and the clock of leases."""

from __future__ import annotations

import time
from typing import Final

_BOOT_TIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def now_ms() -> int:
    """Return the wall-clock time in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def steady_s() -> float:
    """Return seconds on a clock that never goes back and also runs while the machine is suspended.

    A lease ends while its holder's machine is suspended, and the holder must see that on its own clock.
    Linux's monotonic clock stops during suspend, so the boot-time clock is used where it exists.
    """
    if _BOOT_TIME is None:
        return time.monotonic()
    return time.clock_gettime(_BOOT_TIME)
