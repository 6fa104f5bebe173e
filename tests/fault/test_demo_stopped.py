"""A demo that is stopped midway has no verdict: what is missing was not read."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command import PROGRAM
from running_job import until

pytestmark = [pytest.mark.fault, pytest.mark.spark]


def test_a_demo_that_is_stopped_midway_says_so_and_gives_no_verdict(tmp_path: Path) -> None:
    with subprocess.Popen(
        [PROGRAM, "demo", "--keep", "shop"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            until(lambda: any((tmp_path / "shop").glob("checkpoint/**/commits/0")), "a first batch")
            process.send_signal(signal.SIGTERM)
            said, told = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said == ""
    assert told.splitlines()[-1] == "interrupted before the end of the day; no results were checked"
