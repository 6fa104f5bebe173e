"""Every verb on terminals of 40 and 200 columns, closed or full streams, odd locales."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from command import environment
from forked_cli import ForkedCli, forked_cli
from verb_calls import GOES_ON, STARTS_SPARK, WORKING, furnished, leaves, lines_of, verb_of, words_of

SEED: Final = os.environ.get("HOLDFAST_SEED", "terminals")
NUMBERS: Final = count()
LINES: Final = lines_of(WORKING)

# What moves a cursor or gives a colour, and what stands before a value.
CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9 -]*  +")
# What stays in one piece, however wide: a command, a key between quotes, any other word.
PIECE: Final = re.compile(r"`[^`]*`\S*|'[^']*'\S*|\S+")
# A line that is a command to be typed, or is of a file that is shown as it stands.
AS_IT_STANDS: Final = ("$ ", '{"arrival_id": ')


@pytest.fixture(scope="module")
def cli() -> Iterator[ForkedCli]:
    with forked_cli() as made:
        yield made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with furnished(tmp_path_factory.mktemp("place")) as folder:
        yield folder


def around(place: Path, **variables: str) -> dict[str, str]:
    return {**environment(place / "home"), "TERM": "xterm-256color", **variables}


def typed(line: str, place: Path) -> list[str]:
    return words_of(line, place, f"made-{next(NUMBERS)}")


def test_every_verb_is_tried() -> None:
    assert {verb_of(line) for line in LINES} == leaves() - STARTS_SPARK - GOES_ON


def too_wide(shown: str, columns: int) -> list[str]:
    """Lines that are wider than the terminal and could have been broken."""
    lines = CONTROL.sub("", shown).replace("\r", "\n").split("\n")
    return [line for line in lines if len(line) > columns and is_breakable(line)]


def is_breakable(line: str) -> bool:
    if line.startswith(AS_IT_STANDS):
        return False
    rest = line.strip()
    named = FIELD.match(rest)
    return len(PIECE.findall(rest[named.end() :] if named else rest)) > 1


@pytest.mark.parametrize("columns", [40, 200])
@pytest.mark.parametrize("line", LINES)
def test_what_is_shown_fits_the_terminal(line: str, columns: int, cli: ForkedCli, place: Path) -> None:
    said = cli.on_terminal(typed(line, place), cwd=place, environ=around(place), columns=columns)
    assert said.returncode == 0, said.stdout
    assert "Traceback" not in said.stdout
    if line != "alerts export":  # it is a file, in one piece
        assert too_wide(said.stdout, columns) == []
