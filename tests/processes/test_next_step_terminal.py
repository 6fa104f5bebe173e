"""The next call is named on a real terminal, below the answer, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import on_terminal

from golden import golden_on_disk

VERIFY = ("checkpoint", "verify", "checkpoints/visits")


@pytest.fixture(autouse=True)
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk("visits", tmp_path / "checkpoints" / "visits")


def test_it_stands_below_the_answer(tmp_path: Path, home: Path) -> None:
    seen = on_terminal(VERIFY, tmp_path, home)
    assert seen.code == 0
    *_, answer, last = seen.lines
    assert answer.endswith("bytes read)"), seen
    assert last == "next: holdfast savepoint take checkpoints/visits savepoints"


@pytest.mark.parametrize(
    ("more", "piped"), [([], True), (["--json"], False), (["-q"], False)], ids=["pipe", "json", "quiet"]
)
def test_it_stands_nowhere_else(more: list[str], piped: bool, tmp_path: Path, home: Path) -> None:
    seen = on_terminal([*VERIFY, *more], tmp_path, home, piped=piped)
    assert seen.code == 0
    shown = "\n".join([*seen.lines, seen.piped])
    assert "next:" not in shown
    assert "whole" in shown or '"ok": true' in shown
