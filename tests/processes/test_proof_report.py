"""The report of a part of `make proof` says what ran, what failed and why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"
TESTS = """
import pytest

def test_one(): pass
def test_two(): assert 1 == 2
def test_three(): pytest.skip("no server")
def test_four(broken): pass

@pytest.fixture
def broken(): raise ValueError("broken fixture")
"""


def test_a_report_has_outcomes_failures_and_skips(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    words = ["-q", "-n", "2", "-p", "proof_report", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "HOLDFAST_PROOF_PART": "7"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", str(tmp_path), "test_some.py"],
        env={**environment, "HOLDFAST_PROOF_REPORTS": str(tmp_path / "reports")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    text = (tmp_path / "reports" / "part-7.md").read_text()
    assert "| outcome | 1 passed, 2 failed, 1 skipped; exit 1 |" in text
    assert "- `test_some.py::test_two (call)`: `assert 1 == 2`" in text
    assert "- `test_some.py::test_four (setup)`: `ValueError: broken fixture`" in text
    assert "- 1: `no server`" in text
    assert "| `test_some.py` | 1 | 2 | 1 |" in text
    for line in ("begun", "commit", "time", "machine", "versions", "seeds"):
        assert f"| {line} | " in text
