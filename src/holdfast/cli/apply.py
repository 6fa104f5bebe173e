"""`holdfast apply`: bring about what a deployment file says of jobs."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.quantities import counted, rounded_duration

if TYPE_CHECKING:
    from holdfast.jobs import Applied, ApplyPlan, JobApplied, UpgradeStep

_NOT_AS_THE_FILE_SAYS = 1


@examples("deployment.toml --dry-run", "deployment.toml")
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The deployment file, in TOML.")],
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="Jobs of the file. [all]", show_default=False),
    ] = None,
    *,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Start, stop and upgrade jobs until they are as a deployment file says.

    All jobs are planned before the first is changed; if one is refused, none is changed. Jobs that are as the
    file says are left alone, and so are jobs that it does not name.

    After a kill, repeat the command: it continues. Exit code 0: all jobs are as the file says; 1: one is not.
    """
    chosen = jobs or ()
    if dry_run:
        with without_sparks_words() as words, progress("plan", "jobs", words) as tell:
            plan = hf.jobs.plan_apply(file, jobs=chosen, home=home, tell=tell)
        output.show_plan(plan, json, _show_plan)
        if plan.changes:
            next_step.say_for_real(json, ready=plan.ready)
        if not plan.ready:
            raise typer.Exit(_NOT_AS_THE_FILE_SAYS)
        return

    with without_sparks_words() as words, progress("apply", "jobs", words) as tell:

        def on_plan(ready: ApplyPlan) -> None:
            if not json and not output.quiet() and ready.changes:
                with redirect_stdout(words):
                    _show_plan(ready)
                    output.line()

        def on_step(job: str, step: UpgradeStep) -> None:
            if not json:
                output.say(f"{job}: {step.step}: {step.text} ({rounded_duration(step.took_ms)})", words)

        applied = hf.jobs.apply(file, jobs=chosen, home=home, tell=tell, on_plan=on_plan, on_step=on_step)
    output.show_plan(applied, json, _show, dry_run=False)
    if not applied.ok:
        raise typer.Exit(_NOT_AS_THE_FILE_SAYS)


def _show_plan(plan: ApplyPlan) -> None:
    for job in plan.jobs:
        differs = f" (different: {', '.join(job.differs)})" if job.differs else ""
        output.line(f"{job.job}: {job.action.value}{differs}" if not job.refused else f"{job.job}: refused")
        for number, step in enumerate(job.intended, 1):
            output.prose(f"{number}. {step}", "  ")
        if job.refused:
            output.prose(job.refused, "  ")
        if job.refused and job.hint:
            output.prose(f"hint: {job.hint}", "  ")
    if plan.others:
        output.prose(f"not in the file, left alone: {', '.join(plan.others)}")


def _show(applied: Applied) -> None:
    for job in applied.jobs:
        output.line(f"{job.job}: {_done(job)}")
        if job.reason:
            output.prose(job.reason, "  ")
        if job.hint:
            output.prose(f"hint: {job.hint}", "  ")
    failed = sum(not job.ok for job in applied.jobs)
    if failed:
        output.line(f"{counted(failed, 'job')} not as the file says")


def _done(job: JobApplied) -> str:
    state = "" if job.state is None else f", {job.state.value}"
    if not job.ok:
        return f"not as the file says{state}"
    return f"{'unchanged' if job.action.value == 'nothing' else job.action.value}{state}"
