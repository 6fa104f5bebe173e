"""The list of tests that only the long form runs names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

from grid import proof_only

ROOT = Path(__file__).parents[2]


def test_every_line_begins_the_id_of_a_test() -> None:
    for line in proof_only():
        path, _, name = line.partition("::")
        files = [*ROOT.glob(path.partition("[")[0].rstrip("*") + "*")]
        function = re.escape(name.partition("[")[0]).replace(r"\*", ".*")
        assert any(re.search(rf"^def {function}", file.read_text(), re.MULTILINE) for file in files), line


def test_no_line_is_there_twice() -> None:
    lines = proof_only()
    assert [line for line in lines if any(line != other and line.startswith(other) for other in lines)] == []
    assert len(lines) == len(set(lines))
