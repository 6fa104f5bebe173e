"""What measurements share: processor time, and what a process that failed is quoted with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast_bench.measure import cause_in, median_within, processor_time

# Works for a while by its own count, says so, and goes on when it is told to.
WORK = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\n"


@pytest.mark.slow
def test_the_processor_time_of_what_was_started_counts_while_it_lives_and_after() -> None:
    before = processor_time()
    started = [sys.executable, "-c", f"{WORK}input()"]
    starts = f"import subprocess, sys\nsubprocess.run({started!r}, check=True)"
    with subprocess.Popen(
        [sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        living = processor_time() - before
        process.communicate("\n")
    assert process.returncode == 0
    assert living > 0.28
    assert processor_time() - before >= living


# In a process of its own, which adopts orphans until its end.
ORPHAN = f"""
import subprocess, sys, time
from pathlib import Path
from holdfast_bench.measure import Beginning, processor_time
began = Beginning.now()
work = [sys.executable, "-c", {WORK!r}]
starts = f"import subprocess; print(subprocess.Popen({{work!r}}, stdout=subprocess.DEVNULL).pid)"
parent = [sys.executable, "-W", "ignore", "-c", starts]
pid = int(subprocess.run(parent, check=True, stdout=subprocess.PIPE).stdout)
while ") Z " not in Path("/proc", str(pid), "stat").read_text():
    time.sleep(0.01)
print(processor_time() - began.ours)
"""


@pytest.mark.slow
def test_the_processor_time_of_an_orphan_counts_after_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], check=True, capture_output=True, text=True, timeout=60
    )
    assert float(done.stdout) > 0.28


def test_the_cause_is_told_and_not_what_came_after_it() -> None:
    raised = ["Traceback (most recent call last):", '  File "x.py", line 1', "ValueError: too many"]
    noise = [f"VersionEdit {number}" for number in range(100)]
    assert list(cause_in([*noise, *raised, *noise]))[:3] == raised
    assert len(cause_in([*raised, *noise])) == 40


def test_without_a_traceback_the_last_lines_are_told() -> None:
    lines = [f"line {number}" for number in range(100)]
    assert list(cause_in(lines)) == lines[60:]
    assert list(cause_in(["killed"])) == ["killed"]


@pytest.mark.parametrize(
    ("count", "below"),
    # How many values lie outside on each side, from a table of the sign test at five in a hundred.
    [
        (1, 0),
        (5, 0),
        (6, 0),
        (8, 0),
        (9, 1),
        (12, 2),
        (15, 3),
        (20, 5),
        (24, 6),
        (25, 7),
        (48, 16),
        (100, 39),
    ],
)
def test_between_what_a_median_is(count: int, below: int) -> None:
    assert median_within([float(each) for each in range(count, 0, -1)]) == (below + 1, count - below)
