"""`hf.lint`: what in the code of a query, or in its checkpoint, will hurt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.advice.catalogue.rules import BAD_SUPPRESSION, RULES
from holdfast.advice.configuration import LintConfiguration, configuration_beside
from holdfast.advice.findings import Evidence, Finding, LintReport, in_order
from holdfast.config.locations import SCHEME, local_path
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.advice.source.hits import Hit

_SUFFIX: Final = ".py"


def lint(target: str | os.PathLike[str]) -> LintReport:
    """Say what in the code of a query, or in its checkpoint, will hurt.

    Of a file of code the text is read: nothing of it is imported or run, and no Spark is started. Of a
    checkpoint its logs and the names and sizes of its files are read, while the query runs or not; nothing
    of the state is. A rule reports only what it has evidence for, so what is not reported is not therefore
    right.

    `[tool.holdfast.lint]` in the nearest pyproject.toml, beside the file or above it (of a checkpoint: of the
    working directory), turns rules off or changes how bad they are.

    Args:
        target: A file of Python, or the address of a checkpoint.

    Raises:
        Invalid: The file is not Python in UTF-8, or the configuration is wrong.
        NotFound: There is no such file or checkpoint.
        Corrupt: A file of the checkpoint is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.
    """
    text = os.fspath(target)
    path = None if SCHEME.match(text) and not text.startswith("file:") else local_path(text) or Path(text)
    if path is not None and (path.suffix == _SUFFIX or _is_there_as_file(path)):
        return _lint_source(path, text)
    return _lint_checkpoint(text)


def _is_there_as_file(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # no file has such a name
        return False


def _lint_source(path: Path, place: str) -> LintReport:
    from holdfast.advice.source.evaluation import evaluate
    from holdfast.advice.source.source_lint import hits_in, parsed, read_source

    if path.suffix == _SUFFIX and path.is_dir():
        return _lint_checkpoint(place)
    if not _is_there_as_file(path):
        raise NotFound("there is no such file", where=place, hint="name a file of Python, or a checkpoint")
    if path.suffix != _SUFFIX or not path.is_file():
        raise Invalid(
            "this is neither code nor a checkpoint",
            where=place,
            expected="FILE.py, or the directory of a checkpoint",
            hint="name the file that has the query, or the directory with `offsets` and `commits`",
        )
    text = read_source(path)
    followed = evaluate(parsed(text, place))
    configuration = configuration_beside(path.resolve().parent)
    findings = _source_findings(hits_in(followed), text, place, configuration)
    return replace(_report(place, findings, configuration), complete=followed.complete)


def _source_findings(
    hits: Iterator[Hit], text: str, place: str, configuration: LintConfiguration
) -> Iterator[Finding]:
    from holdfast.advice.source.suppressions import suppressions

    reasons: dict[tuple[int, str], str] = {}
    for comment in suppressions(text):
        wrong = comment.wrong(RULES)
        if wrong is None:
            reasons.update({(comment.line, rule): comment.reason for rule in comment.rules})
        else:
            yield _finding(
                BAD_SUPPRESSION.id,
                Evidence.SOURCE,
                place,
                wrong,
                configuration,
                (comment.line, comment.column),
            )
    for hit in hits:
        at = hit.line, hit.column
        reason = reasons.get((hit.line, hit.rule))
        yield _finding(hit.rule, Evidence.SOURCE, place, hit.seen, configuration, at, reason)


def _lint_checkpoint(address: str) -> LintReport:
    from holdfast.advice.facts.checkpoint_checks import checkpoint_findings
    from holdfast.advice.facts.checkpoint_facts import read_facts
    from holdfast.external.view import open_checkpoint

    facts = read_facts(open_checkpoint(address))
    configuration = configuration_beside(Path.cwd())
    place = facts.checkpoint.uri
    findings = (
        _finding(rule, Evidence.FACTS, place, seen, configuration)
        for rule, seen in checkpoint_findings(facts)
    )
    return _report(place, findings, configuration)


def _report(place: str, findings: Iterator[Finding], configuration: LintConfiguration) -> LintReport:
    kept = (finding for finding in findings if finding.rule not in configuration.disabled)
    return LintReport(place, in_order(kept), tuple(sorted(configuration.disabled)))


def _finding(
    rule_id: str,
    evidence: Evidence,
    place: str,
    seen: str,
    configuration: LintConfiguration,
    at: tuple[int, int] | None = None,
    suppressed: str | None = None,
) -> Finding:
    rule = RULES[rule_id]
    line, column = (None, None) if at is None else at
    return Finding(
        rule.id,
        rule.name,
        configuration.severity(rule_id),
        evidence,
        place,
        line,
        column,
        seen,
        rule.instead,
        suppressed,
    )
