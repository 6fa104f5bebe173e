"""Reports of a linter, made of what its checks have seen and what a project has decided."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.advice.catalogue.rules import BAD_SUPPRESSION, RULES
from holdfast.advice.configuration import LintConfiguration, configuration_beside
from holdfast.advice.facts.sink_batches import sink_hits
from holdfast.advice.findings import Evidence, Finding, LintReport, in_order
from holdfast.advice.source.evaluated import Evaluated
from holdfast.advice.source.evaluation import evaluate
from holdfast.advice.source.hits import Hit
from holdfast.advice.source.source_lint import hits_in, parsed, read_source
from holdfast.advice.source.suppressions import suppressions


def finding(
    rule_id: str,
    evidence: tuple[Evidence, ...],
    place: str,
    seen: str,
    configuration: LintConfiguration,
    at: tuple[int, int] | None = None,
    suppressed: str | None = None,
) -> Finding:
    """A finding of a rule, as bad as the project says."""
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
    evidence: tuple[Evidence, ...],
    *,
    complete: bool = True,
) -> LintReport:
    """A report without the rules that the project has turned off."""
    kept = (each for each in findings if each.rule not in configuration.disabled)
    return LintReport(place, in_order(kept), tuple(sorted(configuration.disabled)), complete, evidence)


class SourceFile:
    """A file of code, read and followed.

    Args:
        path: The file.
        place: What a person calls it.

    Raises:
        Invalid: It is not Python in UTF-8, or the configuration beside it is wrong.
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
                self._bad_comments.append(self.finding(BAD_SUPPRESSION.id, (Evidence.SOURCE,), wrong, at))

    def findings(self) -> list[Finding]:
        """What the source shows, and the directories that it names."""
        seen = [self._hit(hit, (Evidence.SOURCE,)) for hit in hits_in(self.followed)]
        seen += [self._hit(hit, (Evidence.FACTS,)) for hit in sink_hits(self.followed.writers)]
        return [*self._bad_comments, *seen]

    def _hit(self, hit: Hit, evidence: tuple[Evidence, ...]) -> Finding:
        return self.finding(hit.rule, evidence, hit.seen, (hit.line, hit.column))

    def finding(self, rule: str, evidence: tuple[Evidence, ...], seen: str, at: tuple[int, int]) -> Finding:
        """A finding in this file; a comment on its line may suppress it."""
        reason = self._reasons.get((at[0], rule))
        return finding(rule, evidence, self.place, seen, self.configuration, at, reason)

    def report(self, findings: Iterable[Finding], evidence: tuple[Evidence, ...]) -> LintReport:
        """A report of this file."""
        complete = self.followed.complete
        return report(self.place, findings, self.configuration, evidence, complete=complete)
