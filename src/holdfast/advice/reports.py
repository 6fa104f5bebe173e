"""Lint reports: findings filtered by a project's configuration, as JSON and SARIF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote

from holdfast._version import __version__
from holdfast.advice.checkpoint_checks import sink_hits
from holdfast.advice.findings import Finding, FindingEvidence, LintReport, Rule, Severity, in_order
from holdfast.advice.rules import BAD_SUPPRESSION, RULES
from holdfast.advice.source.calls import Evaluated
from holdfast.advice.source.evaluation import evaluate
from holdfast.advice.source.source_lint import hits_in, parsed, read_source, suppressions
from holdfast.advice.source.values import CodeLocation
from holdfast.config.settings import read_toml
from holdfast.errors import Invalid

FILE_NAME: Final = "pyproject.toml"
TABLE: Final = "tool.holdfast.lint"
_SHAPE: Final = 'disable = ["HF302"] and severity = { HF204 = "error" }'


@dataclass(frozen=True, slots=True)
class LintConfiguration:
    """The lint configuration of a project.

    Attributes:
        disabled: Rules that are turned off.
        severities: Severities that differ from the defaults.
    """

    disabled: frozenset[str] = frozenset()
    severities: Mapping[str, Severity] = field(default_factory=dict)

    def severity(self, rule: str) -> Severity:
        """Return the severity of a rule in this project."""
        return self.severities.get(rule, RULES[rule].severity)


def configuration_beside(folder: Path) -> LintConfiguration:
    """Return the configuration of a directory, from the nearest pyproject.toml in it or its parents.

    Raises:
        Invalid: The file cannot be read, or has an unknown or invalid entry.
    """
    for place in (folder, *folder.parents):
        file = place / FILE_NAME
        if file.is_file():
            return _read(file)
    return LintConfiguration()


def _read(file: Path) -> LintConfiguration:
    try:
        content = read_toml(file)
    except OSError as error:
        raise Invalid(
            "cannot read the lint configuration",
            code="HF-E2010",
            where=str(file),
            found=error.strerror,
            hint="give the current user read permission on the file",
        ) from error
    except ValueError as error:
        raise Invalid(
            "the lint configuration is not valid TOML",
            code="HF-E2011",
            where=str(file),
            found=str(error),
            hint="fix the TOML syntax at the position shown",
        ) from error
    table: Any = content
    for name in TABLE.split("."):
        table = table.get(name, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        raise _wrong(file, f"[{TABLE}]", repr(table), "a table")
    unknown = sorted(table.keys() - {"disable", "severity"})
    if unknown:
        raise _wrong(file, f"[{TABLE}]", f"`{unknown[0]}`", "`disable` and `severity`")
    disabled, severities = table.get("disable", []), table.get("severity", {})
    if not isinstance(disabled, list) or not isinstance(severities, dict):
        raise _wrong(file, f"[{TABLE}]", repr(table), _SHAPE)
    for rule in (*disabled, *severities):
        if rule not in RULES:
            raise _wrong(file, f"[{TABLE}]", f"`{rule}`", f"rule IDs, {min(RULES)} to {max(RULES)}")
    words = [each.value for each in Severity]
    for rule, severity in severities.items():
        if severity not in words:
            raise _wrong(file, f"[{TABLE}] severity.{rule}", repr(severity), ", ".join(words))
    return LintConfiguration(
        frozenset(disabled), {rule: Severity(severity) for rule, severity in severities.items()}
    )


def _wrong(file: Path, what: str, found: str, expected: str) -> Invalid:
    return Invalid(
        "invalid lint configuration",
        code="HF-E2012",
        where=f"{file}: {what}",
        found=found,
        expected=expected,
        hint=f"write settings such as {_SHAPE}",
    )


def finding(
    rule_id: str,
    evidence: tuple[FindingEvidence, ...],
    place: str,
    seen: str,
    configuration: LintConfiguration,
    at: tuple[int, int] | None = None,
    suppressed: str | None = None,
) -> Finding:
    """Return a finding of a rule, with the project's severity."""
    rule = RULES[rule_id]
    line, column = (None, None) if at is None else at
    severity = configuration.severity(rule_id)
    return Finding(
        rule.id, rule.name, severity, evidence, place, line, column, seen, rule.instead, suppressed
    )


def report(
    place: str,
    findings: Iterable[Finding],
    configuration: LintConfiguration,
    evidence: tuple[FindingEvidence, ...],
    *,
    complete: bool = True,
) -> LintReport:
    """Return a report without the rules that the project turns off."""
    kept = (each for each in findings if each.rule not in configuration.disabled)
    return LintReport(place, in_order(kept), tuple(sorted(configuration.disabled)), complete, evidence)


class SourceFile:
    """An analyzed source file.

    Args:
        path: The file.
        place: The name of the file in findings.

    Raises:
        Invalid: The file is not Python in UTF-8, or the lint configuration is invalid.
    """

    def __init__(self, path: Path, place: str) -> None:
        text = read_source(path)
        self.place = place
        self.followed: Evaluated = evaluate(parsed(text, place))
        self.configuration = configuration_beside(path.resolve().parent)
        self._reasons: dict[tuple[int, str], str] = {}
        self._bad_comments: list[Finding] = []
        for comment in suppressions(text):
            wrong = comment.wrong(RULES)
            if wrong is None:
                self._reasons.update({(comment.line, rule): comment.reason for rule in comment.rules})
            else:
                at = comment.line, comment.column
                self._bad_comments.append(
                    self.finding(BAD_SUPPRESSION.id, (FindingEvidence.SOURCE,), wrong, at)
                )

    def findings(self) -> list[Finding]:
        """Return the findings of the source, and of the directories that it names."""
        seen = [self._hit(hit, (FindingEvidence.SOURCE,)) for hit in hits_in(self.followed)]
        seen += [self._hit(hit, (FindingEvidence.FACTS,)) for hit in sink_hits(self.followed.writers)]
        return [*self._bad_comments, *seen]

    def _hit(self, hit: CodeLocation, evidence: tuple[FindingEvidence, ...]) -> Finding:
        return self.finding(hit.rule, evidence, hit.seen, (hit.line, hit.column))

    def finding(
        self, rule: str, evidence: tuple[FindingEvidence, ...], seen: str, at: tuple[int, int]
    ) -> Finding:
        """Return a finding in this file; a comment on its line may suppress it."""
        reason = self._reasons.get((at[0], rule))
        return finding(rule, evidence, self.place, seen, self.configuration, at, reason)

    def report(self, findings: Iterable[Finding], evidence: tuple[FindingEvidence, ...]) -> LintReport:
        """Return the report of this file."""
        complete = self.followed.complete
        return report(self.place, findings, self.configuration, evidence, complete=complete)


_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_VERSION: Final = "2.1.0"


def sarif(report: LintReport) -> dict[str, Any]:
    """Return a report as one SARIF run, with all rules and the location of each finding."""
    rules = list(RULES)
    return {
        "$schema": _SCHEMA,
        "version": _VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "holdfast lint",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": [_rule(rule) for rule in RULES.values()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, rules.index(finding.rule)) for finding in report.findings],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.looks_for},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.instead}\n\nInstead of:\n\n{rule.bad}\n\nwrite:\n\n{rule.good}"},
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": [evidence.value for evidence in rule.evidence]},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.place)}}
    if finding.line is not None:
        place["region"] = {"startLine": finding.line, "startColumn": finding.column}
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity.value,
        "message": {"text": f"{finding.seen}. Fix: {finding.instead}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"evidence": [evidence.value for evidence in finding.evidence]},
    }
    if finding.in_plan is not None:
        result["properties"]["inPlan"] = finding.in_plan
    if finding.suppressed is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    return result


def _uri(place: str) -> str:
    """Return a location as a URI reference; a relative path stays relative for code hosts."""
    if "://" in place or place.startswith("file:"):
        return place
    path = PurePath(place)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
