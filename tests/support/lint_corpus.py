"""Job files with what a linter is to find in them, and how much of that `holdfast lint` finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.advice.findings import Finding
from holdfast.advice.lint_api import lint_path as lint

FOLDER: Final = Path(__file__).resolve().parents[1] / "unit" / "advice"
CORPUS: Final = FOLDER / "corpus"
_ENTRY: Final = re.compile(r"\s{2,}")


@dataclass(frozen=True)
class Expected:
    """A finding that a person has written down: the rule, a text of its line, and whether lint is to find
    it."""

    rule: str
    text: str

    def is_met_by(self, finding: Finding, lines: list[str]) -> bool:
        """Whether a finding is this one."""
        return finding.rule == self.rule and self.text in lines[(finding.line or 1) - 1]


@dataclass(frozen=True)
class Scored:
    """What lint found in the corpus.

    Attributes:
        files: How many files there are.
        right: Findings that a person has written down too.
        false: Findings that nobody has written down, with their files.
        missed: What was written down and not found, with its file.
    """

    files: int
    right: int
    false: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def precision(self) -> float:
        """The share of findings that are right."""
        return self.right / (self.right + len(self.false))

    @property
    def recall(self) -> float:
        """The share of what was to be found that was."""
        return self.right / (self.right + len(self.missed))


def expected() -> dict[str, list[Expected]]:
    """What is to be found in each file, by its name."""
    table = {}
    for line in (FOLDER / "expected.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, *entries = _ENTRY.split(line.strip())
            table[name] = [Expected(*entry.split(" ", maxsplit=1)) for entry in entries]
    return table


def scored() -> Scored:
    """Run lint over the corpus and compare."""
    right, false, missed = 0, [], []
    table = expected()
    for name, wanted in table.items():
        path = CORPUS / f"{name}.py"
        lines = path.read_text(encoding="utf-8").splitlines()
        left = list(wanted)
        for finding in lint(path).counted:
            met = next((each for each in left if each.is_met_by(finding, lines)), None)
            if met is None:
                false.append(f"{name}:{finding.line} {finding.rule} {finding.seen}")
            else:
                left.remove(met)
                right += 1
        missed += [f"{name} {each.rule} {each.text}" for each in left]
    return Scored(len(table), right, tuple(false), tuple(missed))
