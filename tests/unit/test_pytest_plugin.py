"""The fixtures for the tests of jobs, in a project of their user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from golden import golden_on_disk

CONFTEST = 'pytest_plugins = ["holdfast.pytest_plugin"]\n'
TESTS = """\
import holdfast as hf


class Visits(hf.Keyed):
    count = hf.value(int, default=0)

    def on_event(self, event, state, ctx):
        state.count += 1
        yield ctx.key.who, state.count


def test_visits_are_counted(hf_harness):
    visits = hf_harness(Visits(), by="who", events="who string", output="who string, count long")
    assert visits.send({"who": "ann"}, {"who": "ann"})[-1]["count"] == 2


def test_the_golden_checkpoint_can_be_changed(hf_golden):
    checkpoint = hf_golden("visits")
    assert hf.state(checkpoint).batch > 0
    (checkpoint / "metadata").unlink()


def test_it_is_a_new_copy_each_time(hf_golden):
    assert (hf_golden("visits") / "metadata").is_file()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdfast_golden = checkpoints\n")
    (tmp_path / "test_visits.py").write_text(TESTS)
    golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "checkpoints" / "visits")
    return tmp_path


def run_in(project: Path) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_harnesses_and_copies_of_golden_checkpoints(project: Path) -> None:
    said = run_in(project)
    assert "3 passed" in said, said


def test_a_damaged_golden_checkpoint_fails_the_test_that_wants_it(project: Path) -> None:
    [state, *_] = sorted((project / "checkpoints" / "visits" / "state").rglob("*.zip"))
    state.write_bytes(state.read_bytes()[:-9])
    said = run_in(project)
    assert "2 failed, 1 passed" in said, said
    assert "the golden checkpoint" in said
    assert state.name in said
