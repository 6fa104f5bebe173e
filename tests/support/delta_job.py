"""A job with Delta in its session, run where its jars can be fetched."""

from __future__ import annotations

from pathlib import Path

from command import Holdfast
from required import missing_service


def run_delta_job(holdfast: Holdfast, home: Path, code: int = 0) -> str:
    """Run `job.py`, whose job is called `rows`, to its end; what it said."""
    said = holdfast("run", "job.py", "--no-rest", timeout=300)
    logs = [log.read_text() for log in home.glob("jobs/rows/driver-*.log")]
    if said.returncode != code and any("unresolved dependency: io.delta" in log for log in logs):
        missing_service("Delta's jars cannot be fetched from here")
    assert said.returncode == code, said.stderr
    return said.stderr
