"""A bench that is broken off tells what it has measured, says so, and leaves no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_table import in_group

from holdfast_bench.measure import at_its_end, so_far, time_commands

pytestmark = pytest.mark.slow


# Python kills the command that it waited for, and leaves it to the end of the process to collect it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_timings_of_a_measurement_that_was_broken_off_are_kept(tmp_path: Path) -> None:
    # The first round is not counted, two are, and in the fourth the second command is interrupted.
    count = (
        f"echo >> {tmp_path}/n; [ $(wc -l < {tmp_path}/n) -lt 4 ] || {{ kill -INT $PPID; exec sleep 600; }}"
    )
    at_its_end()
    with pytest.raises(KeyboardInterrupt):
        time_commands({"first": ["true"], "second": ["sh", "-c", count]}, 9)
    assert {series.name: len(series.seconds) for series in so_far()} == {"first": 3, "second": 2}
    at_its_end()
    assert so_far() == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_verb_says_that_it_was_broken_off(number: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "bench", "startup", "--runs", "100", "--json"],
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert "measuring startup" in process.stderr.readline()
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        out, words = process.communicate(timeout=60)
    found = json.loads(out)
    assert (process.returncode, found["broken_off"], found["benches"]) == (130, True, [])
    assert "interrupted" in words
    assert "Traceback" not in words
    deadline = time.monotonic() + 60
    while in_group(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
