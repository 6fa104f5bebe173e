"""Lint of a job with Spark's plans of its queries, on request or before a strict job starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from holdfast.advice.findings import Finding, LintReport
    from holdfast.advice.plan_checks import PlanHit
    from holdfast.advice.reports import SourceFile
    from holdfast.jobs.definition import Job
    from holdfast.stream.sinks.query_sink import Sink

_NO_JOB: Final = (
    "lint the file without a plan, or move the query into a function below @hf.job; a plain script is not"
    " run, since it would start its queries on their real sources"
)
_SHOWN: Final = 5


def refuse_errors(job: Job, target: str, sinks: list[Sink], cores: int) -> None:
    """Raise if the source or plan of a strict job has lint errors.

    Args:
        job: The job.
        target: Its file, and the job in it.
        sinks: Its queries, built and not started.
        cores: The number of tasks that run at once.

    Raises:
        Invalid: There are errors; the message lists them.
    """
    from holdfast.advice.findings import Severity
    from holdfast.advice.reports import SourceFile
    from holdfast.jobs.loader import split_target

    path = split_target(target)[0]
    report = planned_report(job, SourceFile(path, str(path)), sinks, cores)
    errors = [finding for finding in report.counted if finding.severity is Severity.ERROR]
    if errors:
        more = "" if len(errors) <= _SHOWN else f"; {len(errors) - _SHOWN} more"
        raise Invalid(
            f"the job is strict, and lint found {len(errors)} error{'s' if len(errors) > 1 else ''}",
            code="HF-E2231",
            where=job.name,
            found="; ".join(_in_words(error) for error in errors[:_SHOWN]) + more,
            expected="no lint errors, because of @hf.job(strict=True)",
            hint=f"see the fixes with `holdfast lint {target} --plan`; a comment with a reason suppresses"
            " a finding",
        )


def _in_words(finding: Finding) -> str:
    return f"line {finding.line}: {finding.rule} {finding.seen}"


def job_source(path: Path) -> SourceFile:
    """Read a job file before it is run.

    Raises:
        Invalid: The file is not Python, or has no job.
    """
    from holdfast.advice.reports import SourceFile

    source = SourceFile(path, str(path))
    if not any(name == "job" for name, _, _ in source.followed.own_calls):
        raise _no_job(str(path))
    return source


def _no_job(where: str) -> Invalid:
    return Invalid(
        "the file has no job, so no plan can be built",
        code="HF-E2232",
        where=where,
        expected="@hf.job(name=…, checkpoint=…) above a function that returns the sink",
        hint=_NO_JOB,
    )


def planned_report(job: Job, source: SourceFile, sinks: list[Sink], cores: int | None) -> LintReport:
    """Report the violations in the source of a job and in the plans of its queries.

    Args:
        job: The job.
        source: Its file.
        sinks: Its queries, built and not started.
        cores: The number of tasks that run at once in production; None if unknown.

    Raises:
        Unsupported: This Spark does not expose its plans.
    """
    from holdfast.advice.findings import FindingEvidence
    from holdfast.advice.plan_checks import with_plan

    hits = dict.fromkeys(hit for sink in sinks for hit in _hits(sink, cores))
    found = with_plan(source, list(hits), job.build.__name__)
    return source.report(found, (FindingEvidence.SOURCE, FindingEvidence.PLAN))


def _hits(sink: Sink, cores: int | None) -> list[PlanHit]:
    """Return the violations in the plan of a query."""
    from holdfast.advice.plan_checks import SETTINGS, plan_hits
    from holdfast.engine.planned_state import planned
    from holdfast.engine.queries.watch import frame_of

    made = sink.plan()
    mode = (made.sink.mode if made is not None and made.sink is not None else sink.mode) or "append"
    frame = sink.frame if sink.frame is not None else frame_of(sink.writer())
    query = None if frame is None else planned(frame, mode, SETTINGS)
    if query is None:
        raise _no_plan(sink)
    return list(plan_hits(query, cores))


def _no_plan(sink: Sink) -> Unsupported:
    return Unsupported(
        "the plan of the query cannot be read from the installed pyspark",
        code="HF-E7083",
        where=sink.name or sink.kind,
        hint="lint the file without its plan, or install a pyspark version that Holdfast supports",
    )
