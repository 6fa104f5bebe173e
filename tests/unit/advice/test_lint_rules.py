"""Each rule is found in its bad example and not in its good one, and the corpus is found as written down."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from lint_corpus import CORPUS, expected, scored

from holdfast.advice.findings import FindingEvidence, Rule, Severity
from holdfast.advice.lint_api import lint_path as lint
from holdfast.advice.rules import BAD_SUPPRESSION, GROUPS, PRELUDE, RULES
from holdfast.advice.source.source_lint import source_hits

ROOT = Path(__file__).resolve().parents[3]
# One looks at the installed pyspark: see `test_spark_defects`.
OF_SOURCE = [
    rule
    for rule in RULES.values()
    if FindingEvidence.SOURCE in rule.evidence and rule is not BAD_SUPPRESSION and rule.id != "HF315"
]
# A query within a query is not followed.
MISSED = ("sql_inner_bad HF102 group by customer",)


def found_in(code: str) -> set[str]:
    return {hit.rule for hit in source_hits(ast.parse(f"{PRELUDE}\n{code}"))}


@pytest.mark.parametrize("rule", OF_SOURCE, ids=lambda rule: rule.id)
def test_a_rule_is_found_in_its_bad_example_alone(rule: Rule) -> None:
    assert rule.id in found_in(rule.bad)
    assert rule.id not in found_in(rule.good)


@pytest.mark.parametrize("rule", OF_SOURCE, ids=lambda rule: rule.id)
def test_a_good_example_has_no_error(rule: Rule) -> None:
    assert [name for name in found_in(rule.good) if RULES[name].severity is Severity.ERROR] == []


def test_the_catalogue_is_in_order() -> None:
    assert list(RULES) == sorted(RULES)
    assert {rule.id[2] for rule in RULES.values()} == set(GROUPS)
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    for rule in RULES.values():
        assert rule.looks_for.endswith(".")
        assert rule.why.endswith(".")
        assert not rule.instead.endswith(".")  # it stands behind a colon


@pytest.mark.slow
def test_the_corpus_is_found_as_people_wrote_it_down() -> None:
    result = scored()
    assert result.files >= 60
    assert result.false == ()
    assert result.missed == MISSED
    assert result.precision == 1
    assert result.recall > 0.95


def test_the_table_names_every_file_of_the_corpus() -> None:
    assert set(expected()) == {path.stem for path in CORPUS.glob("*.py")}
    names = set(expected())
    assert names == {f"{name.rpartition('_')[0]}_{half}" for name in names for half in ("bad", "good")}
    assert sum(name.startswith("thread_") for name in names) >= 20
    named = {entry.rule for entries in expected().values() for entry in entries}
    assert named == {BAD_SUPPRESSION.id, *(rule.id for rule in OF_SOURCE)}


@pytest.mark.parametrize("folder", ["src/holdfast/demo", "docs", "tests/unit/advice/corpus"])
@pytest.mark.slow
def test_good_code_has_no_error(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if not path.stem.endswith("_bad")]
    assert files
    for path in files:
        assert [finding for finding in lint(path).counted if finding.severity is Severity.ERROR] == [], path
