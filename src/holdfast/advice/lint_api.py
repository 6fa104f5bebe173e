"""Lint of a file of code or a checkpoint, without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.config.checks import SCHEME, local_path
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.advice.checkpoint_checks import CheckpointFacts
    from holdfast.advice.findings import LintReport
    from holdfast.model import BatchProgress

_SUFFIX: Final = ".py"


def lint_path(target: str | os.PathLike[str]) -> LintReport:
    """Lint a source file or a checkpoint.

    Raises:
        Invalid: The file is not Python in UTF-8, or the lint configuration is invalid.
        NotFound: The file or checkpoint does not exist.
        Corrupt: A file of the checkpoint is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.
    """
    text = os.fspath(target)
    path = None if SCHEME.match(text) and not text.startswith("file:") else local_path(text) or Path(text)
    if path is not None and (path.suffix == _SUFFIX or _is_there_as_file(path)):
        return _lint_source(path, text)
    return lint_checkpoint(text)


def lint_files(paths: Sequence[str]) -> LintReport:
    """Lint several source files, and return one report with all findings.

    Raises:
        Invalid: A path is not a file of Python in UTF-8, or a lint configuration is invalid.
        NotFound: A file does not exist.
    """
    from holdfast.advice.findings import LintReport
    from holdfast.quantities import counted

    reports = [_lint_source(local_path(path) or Path(path), path) for path in dict.fromkeys(paths)]
    return LintReport(
        counted(len(reports), "file"),
        tuple(finding for report in reports for finding in report.findings),
        tuple(sorted({rule for report in reports for rule in report.disabled})),
        complete=all(report.complete for report in reports),
        evidence=reports[0].evidence,
    )


def lint_checkpoint(address: str, batches: Sequence[BatchProgress] = ()) -> LintReport:
    """Lint a checkpoint and the recorded batches of its job.

    Args:
        address: The checkpoint.
        batches: The newest batches of its query, oldest first.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: A file of the checkpoint is damaged.
        Unavailable: The storage does not answer.
    """
    from holdfast.advice.checkpoint_checks import read_facts
    from holdfast.external.view import open_checkpoint

    return lint_facts(read_facts(open_checkpoint(address)), batches)


def lint_facts(facts: CheckpointFacts, batches: Sequence[BatchProgress]) -> LintReport:
    """Lint a checkpoint from its facts, and the recorded batches of its job."""
    from holdfast.advice.checkpoint_checks import checkpoint_findings, progress_findings
    from holdfast.advice.findings import FindingEvidence
    from holdfast.advice.reports import configuration_beside, finding, report

    configuration = configuration_beside(Path.cwd())
    place, evidence = facts.checkpoint.uri, (FindingEvidence.FACTS,)
    seen = [*checkpoint_findings(facts), *progress_findings(batches)]
    findings = (finding(rule, evidence, place, text, configuration) for rule, text in seen)
    return report(place, findings, configuration, evidence)


def _is_there_as_file(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # no file has such a name
        return False


def _lint_source(path: Path, place: str) -> LintReport:
    from holdfast.advice.findings import FindingEvidence
    from holdfast.advice.reports import SourceFile

    if path.suffix == _SUFFIX and path.is_dir():
        return lint_checkpoint(place)
    if not _is_there_as_file(path):
        raise NotFound(
            "the file to lint does not exist",
            code="HF-E3003",
            where=place,
            hint="give the path of a Python file, or the directory of a checkpoint",
        )
    if path.suffix != _SUFFIX or not path.is_file():
        raise Invalid(
            "the path is neither a Python file nor a checkpoint",
            code="HF-E2005",
            where=place,
            expected="FILE.py, or the directory of a checkpoint",
            hint="give the file with the query, or the directory with `offsets` and `commits`",
        )
    source = SourceFile(path, place)
    return source.report(source.findings(), (FindingEvidence.SOURCE,))
