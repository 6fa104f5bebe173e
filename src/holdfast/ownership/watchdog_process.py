"""The process of `LeaseWatchdog`, started from its source text, which uses only the standard library.

The process reads the end time from standard input, one line for each extension, and kills the given processes
when that time has passed. If the input is closed, the holder of the lease has died, but its children may
still write, so the end time remains in effect. A holder that releases its lease kills this process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_START_TIME = 19
_LOOK_S = 0.25


def main(ended: list[str]) -> None:
    """Wait until the lease is over, then kill the processes that may still write."""
    # An orderly stop signals the whole group, but this process must watch until the others have ended.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    until_s: float | None = None
    is_open = True
    while is_open or until_s is not None:
        # A wait does not count time in suspend, so it is short, and the clock is read again.
        left = None if until_s is None else min(max(until_s - _now(), 0.0), _LOOK_S)
        if is_open and select.select([0], [], [], left)[0]:
            lines = os.read(0, 1 << 16).split()
            is_open = bool(lines)
            until_s = float(lines[-1]) if lines else until_s
        elif not is_open and left and any(map(_lives, ended)):
            time.sleep(left)
        if until_s is not None and (_now() >= until_s or not any(map(_lives, ended))):
            break
    for process in ended:
        if _lives(process):
            sys.stderr.write(f"the lease was not renewed in time: process {process} was ended\n")
            sys.stderr.flush()
            _end(process)


def _now() -> float:
    """Return the time as `holdfast.clock.steady_s` does."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _lives(process: str) -> bool:
    number, _, started = process.partition(":")
    if number == "group":
        return _is_there(-int(started))
    return _is_there(int(number)) and started in ("", _started(number))


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(number: str) -> str:
    """Return the start of a process as `start_time` does, to detect a reused process id."""
    with suppress(OSError, IndexError):
        return (Path("/proc") / number / "stat").read_text().rpartition(")")[2].split()[_START_TIME]
    return ""


def _end(process: str) -> None:
    number, _, group = process.partition(":")
    with suppress(ProcessLookupError, PermissionError):
        if number == "group":
            os.killpg(int(group), signal.SIGKILL)
        else:
            os.kill(int(number), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
