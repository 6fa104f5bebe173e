"""Whether the long form of tests is run: every kind with every provider, and every kill.

`make proof` runs it, with `HOLDFAST_GRID=all`, which takes hours. Otherwise each of these tests runs in a
short form, or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pytest

WHOLE: Final = os.environ.get("HOLDFAST_GRID") == "all"

_Value = TypeVar("_Value")

QUICK: Final = "tests/unit/"

PROOF_ONLY: Final = Path(__file__).parents[1] / "proof.txt"


def one_in(number: int, values: Sequence[_Value]) -> Sequence[_Value]:
    """Return all values of a parameter in the long form, otherwise one in so many."""
    return values if WHOLE else values[::number]


def is_proof_only(test_id: str) -> bool:
    """True if only the long form runs a test."""
    return _PROOF_ONLY.match(test_id) is not None


def proof_only() -> list[str]:
    """Return how the ids of these tests begin; `*` stands for anything."""
    lines = PROOF_ONLY.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


_PROOF_ONLY: Final = re.compile("|".join(re.escape(line).replace(r"\*", ".*") for line in proof_only()))


def dealt(tests: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the files of slow tests to all workers, and unit tests behind them.

    With `--dist worksteal` a worker begins with one equal share, in order, and then takes tests from the end
    of another share. Unit tests at the end of each level what is left.
    """
    quick: list[pytest.Item] = []
    slow: dict[Path, list[pytest.Item]] = {}
    for test in tests:
        if test.nodeid.startswith(QUICK):
            quick.append(test)
        else:
            slow.setdefault(test.path, []).append(test)
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, file in enumerate(slow.values()):
        shares[number % workers] += file
    taken = 0
    for left, share in enumerate(shares):
        size = (len(tests) - sum(len(done) for done in shares[:left])) // (workers - left)
        more = max(size - len(share), 0)
        share.extend(quick[taken : taken + more])
        taken += more
    return [test for share in shares for test in share]
