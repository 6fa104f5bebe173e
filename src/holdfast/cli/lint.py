"""`holdfast lint`: what in the code of a query, or in its checkpoint, will hurt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli import options, output
from holdfast.cli.arguments import checkpoint_of
from holdfast.cli.examples import examples
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.advice.findings import Finding, LintReport

_FORMATS: Final = ("text", "sarif")


@examples("visits.py", "checkpoints/visits")
def lint(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py|CHECKPOINT|JOB",
            help="The code of a query, which is read and not run; or its checkpoint, or a job's.",
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", metavar="text|sarif", help="How findings are printed.")
    ] = "text",
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Say what in the code of a query, or in its checkpoint, will hurt.

    Each finding has the id of its rule, what was seen, and what to write instead; the reference has the
    reasons. A rule reports only what it has evidence for. On the line of a finding `# holdfast:
    ignore[HF102] REASON` suppresses it; [tool.holdfast.lint] in pyproject.toml turns rules off or changes
    how bad they are.

    Exit 0 if there is no error, 1 if there is one; warnings and notes change nothing.
    """
    from holdfast.advice.lint_api import lint as linted

    if format_ not in _FORMATS or (json and format_ != "text"):
        raise Invalid(
            "this is not a format",
            where=f"--format {format_}",
            expected="--json, or --format text or sarif",
            hint="give one of them",
        )
    report = linted(target if _is_code(target) else checkpoint_of(target, home))
    if format_ == "sarif":
        from holdfast.advice.sarif import sarif

        output.emit_json(sarif(report))
    else:
        output.show(report, json, _show)
    if report.errors:
        raise typer.Exit(1)


def _is_code(target: str) -> bool:
    """Whether a target is a file, or is called like one: no job and no checkpoint is."""
    if target.endswith(".py"):
        return True
    try:
        return Path(target).exists() and not Path(target).is_dir()
    except (OSError, ValueError):  # no file has such a name
        return False


def _show(report: LintReport) -> None:
    for finding in report.counted:
        output.prose(f"{_place(finding)}: {finding.rule} {finding.severity.value}: {finding.seen}")
        output.prose(f"instead: {finding.instead}", "  ")
    if not report.complete:
        output.prose("the file is too large to be followed to its end: more may be wrong")
    if report.counted:
        output.line()
    output.line(f"{report.place}: {_counts(report)}")


def _place(finding: Finding) -> str:
    return finding.place if finding.line is None else f"{finding.place}:{finding.line}"


def _counts(report: LintReport) -> str:
    from holdfast.config.units import counted

    counts = [
        counted(number, noun)
        for number, noun in (
            (report.errors, "error"),
            (report.warnings, "warning"),
            (report.notes, "note"),
            (len(report.findings) - len(report.counted), "suppressed finding"),
        )
        if number
    ]
    return ", ".join(counts) if counts else "nothing found"
