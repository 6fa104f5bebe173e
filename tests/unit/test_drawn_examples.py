"""The examples of property tests: the same ones in each run, or drawn from a seed that a run prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
PROPERTY = """
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@given(st.integers())
def test_number(number):
    print("drawn", number)

class Machine(RuleBasedStateMachine):
    @rule(number=st.integers())
    def step(self, number):
        print("drawn", number)

TestMachine = Machine.TestCase
"""


FAILING = """
from hypothesis import given, strategies as st

@given(st.integers(0, 1 << 40))
def test_number(number):
    print("drawn", number)
    assert number != 7 << 33 and number < 1 << 39
"""


def drawn(folder: Path, seed: str | None, program: str = PROPERTY) -> list[str]:
    (folder / "test_it.py").write_text(program)
    environment = {key: value for key, value in os.environ.items() if key != "HOLDFAST_SEED"}
    environment |= {"PYTHONPATH": str(SUPPORT), "HOLDFAST_KEPT": str(folder / "kept")}
    environment |= {} if seed is None else {"HOLDFAST_SEED": seed}
    words = (sys.executable, "-m", "pytest", "-s", "-p", "drawn_examples", "-c", "/dev/null", "test_it.py")
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (program == FAILING)
    assert (f"HOLDFAST_SEED={seed}," in done.stdout) == (seed is not None)
    return [line.rpartition("drawn ")[2] for line in done.stdout.splitlines() if "drawn " in line]


@pytest.mark.slow
def test_a_seed_gives_the_same_examples_again(tmp_path: Path) -> None:
    first = drawn(tmp_path, "1")
    assert len(first) > 80
    assert drawn(tmp_path, "1") == first
    assert drawn(tmp_path, "2") != first
    assert drawn(tmp_path, None) == drawn(tmp_path, None)


@pytest.mark.slow
def test_what_failed_is_tried_first_with_any_seed(tmp_path: Path) -> None:
    failed = drawn(tmp_path, "1", FAILING)[-1]
    assert drawn(tmp_path, "2", FAILING)[0] == failed == str(1 << 39)
