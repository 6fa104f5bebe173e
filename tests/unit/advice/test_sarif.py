"""SARIF as its readers take it.

The schema here is a part of SARIF 2.1.0, written down by hand: what is required, and the types and choices of
all that is put out. Whatever is not in it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from lint_corpus import CORPUS

from golden import golden_on_disk
from holdfast.advice.lint_api import lint_path as lint
from holdfast.advice.reports import sarif
from holdfast.advice.rules import RULES


def closed(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": required | (optional or {}),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
MESSAGE = closed({"text": TEXT})
LEVEL = {"enum": ["none", "note", "warning", "error"]}
NUMBER = {"type": "integer", "minimum": 1}
RULE = closed(
    {"id": TEXT},
    {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9]+$"},
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": closed({}, {"level": LEVEL}),
        "properties": closed({}, {"tags": {"type": "array", "items": TEXT, "uniqueItems": True}}),
    },
)
PLACE = closed(
    {"artifactLocation": closed({"uri": {"type": "string", "format": "uri-reference"}})},
    {"region": closed({"startLine": NUMBER}, {"startColumn": NUMBER})},
)
RESULT = closed(
    {"message": MESSAGE},
    {
        "ruleId": TEXT,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "locations": {"type": "array", "items": closed({}, {"physicalLocation": PLACE})},
        "suppressions": {
            "type": "array",
            "items": closed({"kind": {"enum": ["inSource", "external"]}}, {"justification": TEXT}),
        },
        "properties": {"type": "object"},
    },
)
DRIVER = closed(
    {"name": TEXT},
    {
        "version": TEXT,
        "semanticVersion": TEXT,
        "rules": {"type": "array", "items": RULE, "uniqueItems": True},
    },
)
RUN = closed(
    {"tool": closed({"driver": DRIVER})},
    {
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": RESULT},
    },
)
SCHEMA = closed(
    {"version": {"const": "2.1.0"}, "runs": {"type": "array", "items": RUN}}, {"$schema": {"type": "string"}}
)


@pytest.mark.parametrize("name", ["visits_bad", "visits_good", "comments_good", "keyed_bad"])
def test_a_report_of_code_is_sarif(name: str) -> None:
    report = lint(CORPUS / f"{name}.py")
    document = sarif(report)
    jsonschema_rs.validate(SCHEMA, document)
    results = document["runs"][0]["results"]
    assert len(results) == len(report.findings)
    ids = [rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"]]
    assert ids == list(RULES)
    for result, finding in zip(results, report.findings, strict=True):
        assert ids[result["ruleIndex"]] == result["ruleId"] == finding.rule
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == (CORPUS / f"{name}.py").as_uri()
        assert place["region"]["startLine"] == finding.line


def test_a_relative_path_stays_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my jobs").mkdir()
    Path("my jobs/a.py").write_text('spark.readStream.table("t").dropDuplicates(["id"])')
    document = sarif(lint("my jobs/a.py"))
    jsonschema_rs.validate(SCHEMA, document)
    place = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20jobs/a.py"


def test_a_suppressed_finding_has_its_reason() -> None:
    (result,) = sarif(lint(CORPUS / "comments_good.py"))["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "inSource", "justification": "200 countries"}]


def test_a_report_of_a_checkpoint_is_sarif(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "ck")
    document = sarif(lint(place))
    jsonschema_rs.validate(SCHEMA, document)
    result = document["runs"][0]["results"][0]
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": place.as_uri()}}}]
    assert result["properties"] == {"evidence": ["facts"]}


def test_the_schema_refuses_what_is_wrong() -> None:
    document = sarif(lint(CORPUS / "visits_bad.py"))
    document["runs"][0]["results"][0]["level"] = "fatal"
    assert not jsonschema_rs.is_valid(SCHEMA, document)
