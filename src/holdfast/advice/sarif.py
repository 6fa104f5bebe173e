"""A report as SARIF 2.1.0, which code hosts and editors show beside the code."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from holdfast._version import __version__
from holdfast.advice.catalogue.rules import RULES
from holdfast.advice.findings import Finding, LintReport, Rule

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_VERSION: Final = "2.1.0"


def sarif(report: LintReport) -> dict[str, Any]:
    """A report as one run of SARIF: all rules, and each finding with its place."""
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
        "help": {"text": f"{rule.instead}\n\nNot like this:\n\n{rule.bad}\n\nBut:\n\n{rule.good}"},
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
        "message": {"text": f"{finding.seen}. Instead: {finding.instead}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"evidence": [evidence.value for evidence in finding.evidence]},
    }
    if finding.in_plan is not None:
        result["properties"]["inPlan"] = finding.in_plan
    if finding.suppressed is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    return result


def _uri(place: str) -> str:
    """A place as the reference of a URI: a relative path stays relative, so that hosts find the file."""
    if "://" in place or place.startswith("file:"):
        return place
    path = PurePath(place)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
