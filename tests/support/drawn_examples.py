"""Which examples the property tests try: the same ones in each run, or ones drawn anew from a seed.

A plugin of pytest. Without HOLDFAST_SEED a failure on one machine is a failure on all. `make proof` draws a
seed, prints it and sets it here; a second run with this seed tries the same examples, and the examples that
failed, which are kept in `.hypothesis/examples`.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, Final

import pytest
from grid import WHOLE
from hypothesis import seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine

SEED: Final = os.environ.get("HOLDFAST_SEED")
KEPT: Final = Path(os.environ.get("HOLDFAST_KEPT") or Path(__file__).parents[2] / ".hypothesis" / "examples")
_SETTINGS: Final = "_hypothesis_internal_use_settings"
# How many times as many examples the long form tries.
MORE: Final = 5 if WHOLE else 1

settings.register_profile("holdfast", derandomize=True, deadline=None, max_examples=100 if WHOLE else 40)
settings.register_profile(
    "drawn",
    settings.get_profile("holdfast"),
    derandomize=False,
    max_examples=40 * MORE,
    database=DirectoryBasedExampleDatabase(KEPT),
    print_blob=True,
)
settings.load_profile("holdfast" if SEED is None else "drawn")


def pytest_report_header() -> str | None:
    """Print the seed, with which a run can be repeated."""
    return None if SEED is None else f"examples: HOLDFAST_SEED={SEED}, failed ones are kept in {KEPT}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each property test a seed of its own, whatever other tests run."""
    if SEED is None:
        return
    for item in items:
        test = getattr(item, "obj", None)
        if getattr(test, "is_hypothesis_test", False):
            function = getattr(test, "__func__", test)
            # The cases of a parametrized test are one function.
            drawn = seed(seed_of(item.nodeid.partition("[")[0]))
            for each in _machines(function) or [function]:
                given = getattr(each, _SETTINGS, None)
                drawn(each)
                # A seed would turn off the keeping of what fails.
                setattr(each, _SETTINGS, given)


def _machines(function: Any) -> list[Any]:
    """Return the state machine that a test runs, which then has the seed."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    return [each for each in held if isinstance(each, type) and issubclass(each, RuleBasedStateMachine)]


def seed_of(test_id: str) -> int:
    """Return the seed of a test."""
    return zlib.crc32(f"{SEED} {test_id}".encode())
