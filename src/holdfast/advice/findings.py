"""Lint findings and rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from holdfast.json_shapes import JsonShape, in_json


class Severity(str, Enum):
    """The severity of a finding: an error loses data or fails, a warning is costly, a note is a hint."""

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
    """A lint rule.

    Attributes:
        id: The stable ID.
        name: The short name.
        severity: The default severity.
        evidence: The kinds of evidence that are checked.
        looks_for: The problem that the rule detects.
        why: The consequence of the problem.
        instead: What to write instead.
        bad: Code that violates the rule; for a rule on facts alone, the setting that leads to the finding.
        good: The same code without the violation.
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
    """A violation of a lint rule.

    Attributes:
        rule: The ID of the rule.
        name: The name of the rule.
        severity: `error`, `warning` or `note`.
        evidence: The kinds of evidence: `source` is the code, `plan` the plan that Spark builds from it,
            `facts` are the files of a checkpoint and the recorded batches of its job.
        place: The source file, the checkpoint, or the query of a job.
        line: The line in the source file; None for a checkpoint.
        column: The column in that line, from 1; None for a checkpoint.
        seen: The observation, from the first kind of evidence.
        instead: What to write or do instead.
        suppressed: The reason given by a suppressing comment on the line; None if the finding counts.
        in_plan: The observation in the plan, if the source shows the violation too.

    Example:
        from pathlib import Path

        Path("visits.py").write_text('first = session.readStream.json("in").dropDuplicates(["customer"])')
        finding: hf.Finding = hf.lint("visits.py").counted[0]
        assert (finding.rule, finding.line) == ("HF103", 1)
        print(finding.seen, finding.instead)
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
    """The lint findings of one file, checkpoint or job, or of several files.

    Attributes:
        place: The source file, the checkpoint, or the job; the number of files if there are several.
        findings: The findings in the order of files and lines, including suppressed ones.
        disabled: Rules that the configuration turns off, of several files in at least one of them.
        complete: Whether all code was analyzed; a very large file is analyzed only in part.
        evidence: The kinds of evidence that were checked.

    Example:
        report: hf.LintReport = hf.lint("checkpoints/visits")
        assert (report.errors, report.warnings) == (0, 0)
    """

    place: str
    findings: tuple[Finding, ...]
    disabled: tuple[str, ...] = ()
    complete: bool = True
    evidence: tuple[FindingEvidence, ...] = ()

    @property
    @in_json
    def errors(self) -> int:
        """Return the number of errors."""
        return self._count(Severity.ERROR)

    @property
    @in_json
    def warnings(self) -> int:
        """Return the number of warnings."""
        return self._count(Severity.WARNING)

    @property
    @in_json
    def notes(self) -> int:
        """Return the number of notes."""
        return self._count(Severity.NOTE)

    @property
    def counted(self) -> tuple[Finding, ...]:
        """Return the findings that no comment suppresses."""
        return tuple(finding for finding in self.findings if finding.suppressed is None)

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.counted)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by line, column and rule, and drop duplicates."""
    kept = {(each.line or 0, each.column or 0, each.rule, each.place, each.seen): each for each in findings}
    return tuple(kept[key] for key in sorted(kept))
