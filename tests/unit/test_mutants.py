"""Mutants are drawn from a file's text, and know the lines whose tests may notice them."""

from __future__ import annotations

from executed_lines import SOURCE
from mutants import Mutant, mutants_of

_TEXT = """
def largest(values: list[int]) -> int:
    found = 0
    for value in values:
        if value > found:
            found = value
    return found
"""


def test_a_condition_and_a_constant_are_changed() -> None:
    changes = {(mutant.line, mutant.before, mutant.after) for mutant in mutants_of(_TEXT, "largest.py")}
    assert changes == {
        (3, "0", "(0 + 1)"),
        (5, "value > found", "(value >= found)"),
        (5, "value > found", "(not (value > found))"),
    }


def test_a_mutant_names_the_text_it_replaces() -> None:
    path = "formats/text.py"
    text = (SOURCE / "holdfast" / path).read_bytes()
    for mutant in mutants_of(text.decode(), path):
        assert text[mutant.start : mutant.end].decode() == mutant.before
        assert text.count(b"\n", 0, mutant.start) + 1 == mutant.line


def test_the_lines_begin_with_the_statement() -> None:
    path = "formats/text.py"
    lines = (SOURCE / "holdfast" / path).read_text("utf-8").splitlines()
    row = next(number for number, line in enumerate(lines, 1) if line.endswith("("))
    assert Mutant(path, row + 1, 0, 0, "x", "y").lines == range(row, row + 2)
