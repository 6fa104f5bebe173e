"""Findings of a linter, and its rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from holdfast.json_shapes import JsonShape, in_json


class Severity(str, Enum):
    """The severity of a finding: an error loses or breaks something, a warning costs, a note is a hint."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FindingEvidence(str, Enum):
    """The kind of evidence for a finding."""

    SOURCE = "source"
    PLAN = "plan"
    FACTS = "facts"


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that a linter looks for.

    Attributes:
        id: Its id, for life.
        name: What people call it.
        severity: How bad it is, where no configuration says otherwise.
        evidence: Where it is looked for.
        looks_for: What it finds.
        why: Why that hurts.
        instead: What to write instead.
        bad: Code in which it is found; for a rule of facts alone, the setting that leads there.
        good: The same without it.
    """

    id: str
    name: str
    severity: Severity
    evidence: tuple[FindingEvidence, ...]
    looks_for: str
    why: str
    instead: str
    bad: str
    good: str


@dataclass(frozen=True, slots=True)
class Finding(JsonShape):
    """One thing that was found.

    Attributes:
        rule: The id of the rule.
        name: What people call the rule.
        severity: `error`, `warning` or `note`.
        evidence: Where it was seen: `source` is the code, `plan` the plan that Spark makes of it, `facts` are
            the files of a checkpoint and what its job remembers of its batches.
        place: The file of code, the checkpoint, or the query of a job.
        line: The line of code; None in a checkpoint.
        column: The column in that line, from 1; None in a checkpoint.
        seen: What was seen; with several pieces of evidence in the first of them.
        instead: What to write or do instead.
        suppressed: The reason that a comment on the line gives for keeping it; None where it counts.
        in_plan: What was seen in the plan, where the source shows it too.
    """

    rule: str
    name: str
    severity: Severity
    evidence: tuple[FindingEvidence, ...]
    place: str
    line: int | None
    column: int | None
    seen: str
    instead: str
    suppressed: str | None = None
    in_plan: str | None = None


@dataclass(frozen=True, slots=True)
class LintReport(JsonShape):
    """The findings of a linter in one file, checkpoint or job.

    Attributes:
        place: The file of code, the checkpoint, or the job.
        findings: What was found, in the order of lines; what a comment suppresses is among it.
        disabled: Rules that the configuration has turned off.
        complete: Whether all code was followed; a file that is very large is not followed to its end.
        evidence: What was looked at.
    """

    place: str
    findings: tuple[Finding, ...]
    disabled: tuple[str, ...] = ()
    complete: bool = True
    evidence: tuple[FindingEvidence, ...] = ()

    @property
    @in_json
    def errors(self) -> int:
        """The number of errors."""
        return self._count(Severity.ERROR)

    @property
    @in_json
    def warnings(self) -> int:
        """The number of warnings."""
        return self._count(Severity.WARNING)

    @property
    @in_json
    def notes(self) -> int:
        """The number of notes."""
        return self._count(Severity.NOTE)

    @property
    def counted(self) -> tuple[Finding, ...]:
        """The findings that no comment suppresses."""
        return tuple(finding for finding in self.findings if finding.suppressed is None)

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.counted)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by line, then column, then rule; the same one of a line once."""
    kept = {(each.line or 0, each.column or 0, each.rule, each.place, each.seen): each for each in findings}
    return tuple(kept[key] for key in sorted(kept))
