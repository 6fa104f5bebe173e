"""Time for the guard of checkpoints: what it waits for has passed as soon as it waits.

The guard takes all of its steps: it reserves, looks as often as ever, and compares every file. No query runs
on the checkpoints of these tests, so nothing could happen meanwhile. Tests that run one let the guard use the
machine's clocks.

As a program it is the `holdfast` command with such a guard.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.ownership import checkpoint_guard
from holdfast.ownership.checkpoint_guard import Timing

PROGRAM = (sys.executable, str(Path(__file__)))


def passing_time() -> Timing:
    """The machine's wall clock, and a steady one on which seconds pass by being waited for."""
    passed_s = 0.0

    def pause(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    return Timing(steady_s=lambda: passed_s, pause=pause)


if __name__ == "__main__":
    from holdfast.cli import main

    checkpoint_guard.MACHINE_TIMING = passing_time()
    main()
