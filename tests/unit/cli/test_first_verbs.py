"""`holdfast` alone: the verbs to begin with, each in a line that works as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command import Holdfast

from golden import NAMES, golden_on_disk
from holdfast.cli.help_text import FIRST

NAME = next(name for name in NAMES if "aggregate-format2" in name)


def test_it_shows_five_of_them_and_where_the_others_are(holdfast: Holdfast) -> None:
    said = holdfast()
    # As everywhere where a verb is missing.
    assert (said.returncode, said.stdout) == (holdfast("state").returncode, "") == (2, "")
    for command, why in FIRST:
        assert f"  {command} " in said.stderr
        assert why in said.stderr
    assert "holdfast --help" in said.stderr
    assert max(map(len, said.stderr.splitlines())) <= 80
    assert len(said.stderr.splitlines()) <= 12


def test_help_has_all_as_before(holdfast: Holdfast) -> None:
    assert holdfast("-h").stdout == holdfast("--help").stdout
    assert "  rescale " in holdfast("-h").stdout


@pytest.mark.parametrize("command", [command for command, _ in FIRST])
@pytest.mark.slow
def test_each_line_can_be_typed(holdfast: Holdfast, tmp_path: Path, command: str) -> None:
    golden_on_disk(NAME, tmp_path / "checkpoints" / "visits")
    words = ["c1" if word == "ann" else word for word in shlex.split(command)[1:]]
    said = holdfast(*words)
    assert said.returncode == 0, said.stderr
