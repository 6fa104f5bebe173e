"""`holdfast upgrade`: replace the code of a running job, with a way back."""

from __future__ import annotations

from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import JobName
from holdfast.cli.check import show_verdict
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.cli.state_move import Drop, Initial, Map, Merge
from holdfast.errors import Invalid
from holdfast.quantities import rounded_duration

if TYPE_CHECKING:
    from holdfast.jobs import Upgraded, UpgradePlan, UpgradeStep

_OLD_CODE_RUNS = 1


@examples("visits visits_v2.py --dry-run", "visits visits_v2.py")
def upgrade(
    job: JobName,
    new: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.py[:JOB]]", help="The new code. Without it, an unfinished upgrade continues."
        ),
    ] = None,
    *,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="savepoint|last-state|stateless",
            help="Stop after the running batch; or at once, and the new code repeats that batch; or start"
            " without state.",
        ),
    ] = "savepoint",
    batches: Annotated[
        int,
        typer.Option(
            "--batches", min=0, metavar="N", help="The batches that each query of the new code has to commit."
        ),
    ] = 3,
    within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="The time for these batches.")
    ] = "10m",
    savepoint: Annotated[
        str | None,
        typer.Option(
            "--savepoint",
            metavar="DIR",
            help="The directory for the savepoint. [that of the job's last savepoint, else"
            " CHECKPOINT.savepoints]",
        ),
    ] = None,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="STATE",
            help="A state that may be lost or reinterpreted. Repeatable.",
        ),
    ] = None,
    initial: Initial = None,
    map_: Map = None,
    drop: Drop = None,
    merge: Merge = False,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    master: options.Master = None,
    back: Annotated[
        bool, typer.Option("--back", help="Return from an unfinished upgrade to the old code.")
    ] = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Replace the code of a job, and return to the old code and state if the new code is not healthy.

    The new code is checked against the state while the old code runs; an upgrade that would lose state is
    refused. Then the job is stopped, a savepoint is taken, the state is converted if the new code needs that,
    and the new code is started with the settings of the last run. If a driver fails, an alert fires, or the
    batches are not committed in time, the old code continues from the savepoint.

    After a kill, repeat the command: it continues. Exit code 0: the new code runs; 1: the old code runs.
    """
    given: dict[str, Any] = {
        "mode": mode,
        "accept_loss": accept_loss or (),
        "initial": options.pairs("--initial", initial),
        "rename": options.pairs("--map", map_),
        "drop": drop or (),
        "merge": merge,
        "overrides": options.pairs("--set", set_) if set_ else None,
        "conf": options.pairs("--conf", conf) if conf else None,
        "master": master,
        "home": home,
    }
    if dry_run:
        if new is None:
            raise Invalid(
                "--dry-run needs the new code",
                code="HF-E2536",
                hint=f"run `holdfast upgrade {job} NEW.py --dry-run`",
            )
        with without_sparks_words() as words, progress("check", "steps", words) as tell:
            plan = hf.jobs.plan_upgrade(job, new, **given, tell=tell)
        output.show_plan(plan, json, _show_plan)
        next_step.say_for_real(json, ready=plan.ready)
        if not plan.ready:
            raise typer.Exit(_OLD_CODE_RUNS)
        return

    with without_sparks_words() as words, progress("upgrade", "steps", words) as tell:

        def on_plan(ready: UpgradePlan) -> None:
            if not json and not output.quiet():
                with redirect_stdout(words):
                    _show_verdicts(ready)

        def on_step(step: UpgradeStep) -> None:
            if not json:
                output.say(f"{step.step}: {step.text} ({rounded_duration(step.took_ms)})", words)

        try:
            upgraded = hf.jobs.upgrade(
                job,
                new,
                **given,
                batches=batches,
                within=within,
                savepoint=savepoint,
                back=back,
                tell=tell,
                on_plan=on_plan,
                on_step=on_step,
            )
        except KeyboardInterrupt:
            output.insist(f"continue with `holdfast upgrade {job}`, or return with --back", words)
            raise
    output.show_plan(upgraded, json, _show, dry_run=False)
    if not upgraded.ok:
        raise typer.Exit(_OLD_CODE_RUNS)
    next_step.say(json, "status", upgraded.status.job.name, *next_step.home_words(home))


def _show_verdicts(plan: UpgradePlan) -> None:
    for report in plan.verdicts:
        show_verdict(report)
    for query in plan.converts:
        output.line(f"query {query}: the state will be converted for the new code")


def _show_plan(plan: UpgradePlan) -> None:
    _show_verdicts(plan)
    output.line()
    for number, step in enumerate(plan.intended, 1):
        output.prose(f"{number}. {step}", "   ")
    for query, text in plan.returns.items():
        output.prose(f"return of query {query}: {text}", "  ")
    if plan.refused is not None:
        output.line()
        output.prose(f"would be refused: {plan.refused}", "  ")
        output.prose(f"hint: {plan.hint}", "  ")


def _show(upgraded: Upgraded) -> None:
    name = upgraded.status.job.name
    if upgraded.ok:
        output.line(f"{name}: upgraded to {upgraded.new}")
    else:
        output.prose(f"{name}: the old code is back, because {upgraded.reason}")
    for uri in upgraded.savepoints.values():
        output.whole(uri)
