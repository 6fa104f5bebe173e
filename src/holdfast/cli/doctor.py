"""`holdfast doctor`: could a job run here, and with which settings?"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import options, output
from holdfast.cli.sparks_words import without_sparks_words

if TYPE_CHECKING:
    from holdfast.engine.session.doctor import Check, Examination
    from holdfast.jobs.settings_report import JobExplained


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Start Spark and run a small stateful query.")] = False,
    job: Annotated[
        str | None, typer.Option("--job", metavar="FILE.py[:JOB]", help="Also explain this job's settings.")
    ] = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show Python, Java, Spark, jars and every default with its reason; exit 0 only if a job could run."""
    from holdfast.engine.session.doctor import examine

    settings = options.settings(home)
    found = examine(settings, os.environ)
    explained = _explain(job)
    tried = _try(settings) if deep and found.ok else None
    ok = found.ok and (tried is None or tried.ok)
    if json:
        output.emit_json(_document(found, tried, explained, ok))
    else:
        _render(found, tried, explained)
    if not ok:
        raise typer.Exit(1)


def _explain(job: str | None) -> JobExplained | None:
    if job is None:
        return None
    from holdfast.jobs.settings_report import explain_job

    return explain_job(job)


def _try(settings: Any) -> Check:
    from holdfast.engine.session.doctor import deep_check

    output.say("starting Spark for a small stateful query …")
    with without_sparks_words(), tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        return deep_check(settings, Path(folder))


def _document(
    found: Examination, tried: Check | None, explained: JobExplained | None, ok: bool
) -> dict[str, Any]:
    document = {**found.as_dict(), "ok": ok}
    if tried is not None:
        document["deep"] = asdict(tried)
    if explained is not None:
        document["job"] = explained.as_dict()
    return document


def _render(found: Examination, tried: Check | None, explained: JobExplained | None) -> None:
    for check in (*found.checks, *([tried] if tried else [])):
        mark = "ok     " if check.ok else ("MISSING" if check.needed else "–      ")
        output.line(f"{mark}  {check.name}: {check.found}")
        if check.hint:
            output.line(f"         {check.hint}")
    output.line()
    output.line("defaults that differ from Spark's:")
    for default in found.defaults:
        origin = f"yours, from {default.given_by}" if default.given_by else f"Spark: {default.spark_default}"
        output.line(f"  {default.key} = {default.value}  ({origin})")
        output.line(f"      {default.reason}")
    if explained is not None:
        output.line()
        output.line(f"job {explained.name}:")
        for knob in explained.knobs:
            output.line(f"  {knob.name} = {knob.value}  ->  {knob.becomes or knob.outcome.value}")
            output.line(f"      {knob.why}")
    output.line()
    ready = found.ok and (tried is None or tried.ok)
    output.line("a job could run here" if ready else "a job could not run here; see MISSING above")
