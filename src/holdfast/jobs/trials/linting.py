"""`hf.lint`: problems in the code of a query, its plan, or its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.advice.lint_api import lint_checkpoint, lint_path
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.advice.findings import LintReport
    from holdfast.jobs.registry.client import JobDetails


def lint(
    target: str | os.PathLike[str],
    *,
    plan: bool = False,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
) -> LintReport:
    """Find problems in the code of a query, its plan, or its checkpoint.

    A code file is read as text; it is not imported or run, and Spark is not started. With `plan` the file's
    job is built as well: its function is called, so that Spark makes a plan, but no query is started. For a
    checkpoint, the logs and the names and sizes of the files are read, whether the query runs or not; state
    is not read. A rule reports only what it has evidence for, so the absence of findings is no proof.

    `[tool.holdfast.lint]` in the nearest pyproject.toml, next to the file or above it (for a checkpoint: the
    working directory), disables rules or changes their severity.

    Args:
        target: A Python file, or the address of a checkpoint; with `plan` FILE.py or FILE.py:JOB, with a job
            of `@hf.job`.
        plan: True to check Spark's plan of the job too, which needs a session and some seconds.
        overrides: Settings and parameters of the job, as in `holdfast run --set`.
        conf: Spark settings of the session.
        master: The Spark master; by default local, whatever the job says.
        home: The state home.
        spark: The session to use; by default one is started and stopped.

    Raises:
        Invalid: The file is not Python in UTF-8, the configuration is invalid, or no plan can be made: the
            file has no job, cannot be imported, or starts its query itself.
        NotFound: The file, job or checkpoint does not exist.
        Corrupt: A file of the checkpoint is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        from pathlib import Path

        code = 'first_orders = session.readStream.json("arrivals").dropDuplicates(["customer"])'
        Path("visits.py").write_text(code)
        report = hf.lint("visits.py")
        assert [finding.name for finding in report.findings] == ["dedupe-without-watermark"]
        assert not hf.lint("checkpoints/visits").findings
    """
    if plan:
        return _with_plan(os.fspath(target), overrides or {}, conf or {}, master, home, spark)
    given = [name for name, value in (("overrides", overrides), ("conf", conf), ("spark", spark)) if value]
    if given:
        raise Invalid(
            "settings can be given only with plan=True",
            code="HF-E2241",
            found=", ".join(given),
            expected="plan=True or no settings",
            hint="give plan=True, or omit the settings to lint the text of a file, or a checkpoint",
        )
    return lint_path(target)


def lint_job(details: JobDetails) -> LintReport:
    """Find problems in the checkpoints of a job and in its recorded batches.

    Raises:
        NotFound: The job has no checkpoint yet.
        Corrupt: A file of a checkpoint is damaged.
        Unavailable: The storage does not answer.
    """
    from holdfast.advice.findings import LintReport, in_order

    job = details.status.job
    places = {query.name: query.checkpoint for query in details.queries} or {job.name: job.checkpoint}
    reports = [lint_checkpoint(place, details.measured_of(query)) for query, place in places.items()]
    findings = in_order(finding for each in reports for finding in each.findings)
    first = reports[0]
    return LintReport(job.name, findings, first.disabled, evidence=first.evidence)


def _with_plan(
    target: str,
    overrides: Mapping[str, str],
    conf: Mapping[str, str],
    master: str | None,
    home: str | os.PathLike[str] | None,
    spark: SparkSession | None,
) -> LintReport:
    from holdfast.advice.sizes import cores_of
    from holdfast.config.installed_spark import given_settings
    from holdfast.config.spark_defaults import SHORT_LIVED
    from holdfast.jobs.loader import require_job_file, split_target
    from holdfast.jobs.processes.planned_lint import job_source, planned_report
    from holdfast.jobs.processes.user_query import job_in, session_for, sinks_of_job

    require_job_file(target)
    source = job_source(split_target(target)[0])  # before anything of it is run
    job = job_in(target, overrides)
    theirs = given_settings(os.environ)
    quick = {key: value for key, value in SHORT_LIVED.items() if key not in theirs}
    given = {**job.spark_conf(), **conf}
    cores = cores_of(master or job.master, given.get)
    place = None if home is None else Path(home)
    with session_for(job, {**quick, **given}, master, place, spark, "lint") as session:
        return planned_report(job, source, sinks_of_job(job, session), cores)
