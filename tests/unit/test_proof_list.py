"""The list of tests that only the long form runs names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

from grid import proof_only

ROOT = Path(__file__).parents[2]


def test_every_line_begins_the_id_of_a_test() -> None:
    for line in proof_only():
        file, _, name = line.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name.partition('[')[0]}\b", text, re.MULTILINE), line


def test_no_line_is_there_twice() -> None:
    lines = proof_only()
    assert [line for line in lines if any(line != other and line.startswith(other) for other in lines)] == []
    assert len(lines) == len(set(lines))
