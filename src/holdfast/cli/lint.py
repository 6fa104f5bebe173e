"""`holdfast lint`: find problems in the code, the plan or the checkpoint of a query."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import holdfast as hf
from holdfast.cli import options, output
from holdfast.cli.arguments import is_address, job_details
from holdfast.cli.flows import each_flow
from holdfast.cli.help_text import examples
from holdfast.config.checks import place_word
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.advice.findings import Finding, LintReport
    from holdfast.checkpoints import Flow

_FORMATS: Final = ("text", "sarif")


def _without_sarif(given: dict[str, Any], flow: Flow) -> None:
    if given["format_"] == "sarif":
        raise Invalid(
            "a SARIF document describes one checkpoint, and the storage of a pipeline has several",
            code="HF-E2560",
            where=flow.storage,
            expected="the checkpoint of one flow with --format sarif",
            hint=f"run `holdfast lint {place_word(flow.checkpoint)} --format sarif`",
        )


@examples("visits.py", "checkpoints/visits")
@each_flow("target", _without_sarif)
def lint(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py|CHECKPOINT|JOB",
            help="The code of a query (read, not run), a checkpoint, the storage of a pipeline, or a job with"
            " its batches.",
        ),
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.py]...", help="More files of code, for one report of all."),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Also build the plan of the job in FILE.py[:JOB], without starting it."),
    ] = False,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark master for --plan. [local[2]]")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="text|sarif", help="The output format.")
    ] = "text",
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Find problems in the code of a query, in its plan, or in its checkpoint.

    Each finding has the id of its rule, the location, the evidence, and the fix; the reference has the
    reasons. The comment `# holdfast: ignore[HF102] REASON` on the line of a finding suppresses it;
    [tool.holdfast.lint] in pyproject.toml turns rules off or changes their severity.

    With --plan the job file is imported and its function is called on this machine, so that Spark builds the
    plan; no query is started, and a plain script is never run. For a job's name its checkpoints are read,
    and the batches recorded in the state home. Several arguments are files of code.

    Exit code 0: no errors; 1: errors. Warnings and notes do not change it.
    """
    if format_ not in _FORMATS or (json and format_ != "text"):
        raise Invalid(
            "invalid output format",
            code="HF-E2130",
            where=f"--format {format_}",
            expected="text or sarif",
            hint="write --format text or --format sarif; for JSON, write --json",
        )
    pairs, settings = options.pairs("--set", set_), options.pairs("--conf", conf)
    if more:
        report = _read_all([target, *more], plan=plan)
    elif plan:
        report = _planned(target, pairs, settings, master, home)
    else:
        report = _read(target, home)
    if format_ == "sarif":
        from holdfast.advice.reports import sarif

        output.emit_json(sarif(report))
    else:
        output.show(report, json, _show)
    if report.errors:
        raise typer.Exit(1)


def _planned(
    target: str, pairs: Mapping[str, str], conf: Mapping[str, str], master: str | None, home: str | None
) -> LintReport:
    from holdfast.cli.standard_streams import without_sparks_words
    from holdfast.jobs.loader import require_job_file

    require_job_file(target)
    place = options.settings(home).ensure_home().resolve()
    with without_sparks_words():
        return hf.lint(target, plan=True, overrides=pairs, conf=conf, master=master, home=place)


def _read(target: str, home: str | None) -> LintReport:
    if _is_code(target) or is_address(target):
        from holdfast.advice.lint_api import lint_path

        return lint_path(target)
    from holdfast.jobs.trials.linting import lint_job

    return lint_job(job_details(target, home))


def _read_all(targets: Sequence[str], *, plan: bool) -> LintReport:
    """Return one report of several files of code.

    Raises:
        Invalid: One of them is not a file of code, or a plan was requested.
    """
    from holdfast.advice.lint_api import lint_files

    if plan:
        raise Invalid(
            "--plan builds the plan of one job",
            code="HF-E2565",
            where=" ".join(targets),
            expected="one FILE.py[:JOB]",
            hint=f"run `holdfast lint {place_word(targets[0])} --plan`",
        )
    for target in targets:
        if not _is_code(target):
            raise Invalid(
                "several arguments of lint must be files of code",
                code="HF-E2566",
                where=target,
                expected="FILE.py",
                hint=f"run `holdfast lint {place_word(target)}` on its own",
            )
    return lint_files(targets)


def _is_code(target: str) -> bool:
    """Return whether a target is code: a file, or a name that ends with .py."""
    if target.endswith(".py"):
        return True
    try:
        return Path(target).exists() and not Path(target).is_dir()
    except (OSError, ValueError):  # no file has such a name
        return False


def _show(report: LintReport) -> None:
    for finding in report.counted:
        evidence = " and ".join(each.value for each in finding.evidence)
        what = f"{finding.rule} {finding.severity.value} ({evidence})"
        output.prose(f"{_place(finding)}: {what}: {finding.seen}")
        if finding.in_plan is not None:
            output.prose(f"in the plan: {finding.in_plan}", "  ")
        output.prose(f"instead: {finding.instead}", "  ")
    if not report.complete:
        output.prose("the file is too large for a complete analysis; it may have more problems")
    if report.counted:
        output.line()
    output.line(f"{report.place}: {_counts(report)}")


def _place(finding: Finding) -> str:
    return finding.place if finding.line is None else f"{finding.place}:{finding.line}"


def _counts(report: LintReport) -> str:
    from holdfast.quantities import counted

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
    return ", ".join(counts) if counts else "no findings"
