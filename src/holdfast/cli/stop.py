"""`holdfast stop`, `cancel` and `restart`: end a job, or let a new driver continue it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import JobName, warn_of_label
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_proof import INTERRUPTED, digest_taken, digests_later
from holdfast.cli.standard_streams import confirm
from holdfast.errors import HoldfastError
from holdfast.quantities import rounded_duration

if TYPE_CHECKING:
    from holdfast.jobs import JobStatus, QuerySavepoint, RestartReport, Stopped, StopPlan


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets; a second signal raises KeyboardInterrupt."""
    stopped = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="The time to wait for the job to end.")
]


_OPTION: Final = "--savepoint"
# A value that no shell can pass.
_NO_DIRECTORY: Final = "\0"


class OptionalDirectory(TyperCommand):
    """A command whose --savepoint may have no directory, which Typer does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the value that stands for a missing directory."""
        for place, word in enumerate(args):
            if word == _OPTION and (place + 1 == len(args) or args[place + 1].startswith("-")):
                args = [*args[:place], f"{_OPTION}={_NO_DIRECTORY}", *args[place + 1 :]]
        return super().parse_args(ctx, args)


@examples("visits", "visits --savepoint savepoints --label 'before the upgrade'")
def stop(
    job: JobName,
    savepoint: Annotated[
        str | None,
        typer.Option(
            _OPTION,
            metavar="[DIR]",
            help="Take a savepoint of the last batch into this directory. [that of the job's last savepoint,"
            " else CHECKPOINT.savepoints]",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="A name for the savepoint.")
    ] = None,
    digest: Annotated[
        bool,
        typer.Option(
            "--digest/--no-digest",
            help="Count and hash the savepoint's rows, or leave that pending.",
        ),
    ] = True,
    drop_expired: options.DropExpired = False,
    timeout: Timeout = 300.0,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Stop a job after the current batch; the next run continues where it stopped.

    With --savepoint, a savepoint of each query is taken once the job has ended, and the addresses are
    printed. Then the rows are counted and hashed; Ctrl-C leaves that pending for `holdfast savepoint digest`.
    """
    where: str | bool = False if savepoint is None else True if savepoint == _NO_DIRECTORY else savepoint
    if dry_run:
        plan = hf.jobs.plan_stop(job, savepoint=where, label=label, drop_expired=drop_expired, home=home)
        output.show_plan(plan, json, _show_plan)
        next_step.say_for_real(json)
        return
    taken: list[QuerySavepoint] = []
    try:
        with progress("savepoint", "files") as tell:
            stopped = hf.jobs.stop(
                job,
                savepoint=where,
                label=label,
                digest=False,
                drop_expired=drop_expired,
                timeout=int(timeout * 1000),
                home=home,
                tell=tell,
                on_savepoint=taken.append,
            )
    except HoldfastError:
        for made in taken:
            output.whole(made.taken.uri)
        raise
    if not json:
        output.line(f"{stopped.status.job.name}: {stopped.status.job.state.value}")
        for made in taken:
            output.whole(made.taken.uri)
        warn_of_label(label, *(made.taken.uri for made in taken))
    stopped, waited = _digest(stopped) if digest else (stopped, True)
    if json:
        output.emit_json({"dry_run": False, **stopped.as_dict()})
    if not waited:
        raise typer.Exit(INTERRUPTED)
    next_step.say_looked_up(json, lambda: _after_stop(stopped, home))


def _show_plan(plan: StopPlan) -> None:
    job = plan.status.job
    output.line(f"{job.name}: {job.state.value}, would stop after the current batch")
    for query, checkpoint in plan.checkpoints.items():
        output.line(f"would take a savepoint of query {query}, {checkpoint}, into {plan.catalog}")


def _after_stop(stopped: Stopped, home: str | None) -> tuple[str, ...]:
    """Return the arguments that start the job again, from its checkpoint or from the savepoints."""
    job = stopped.status.job
    if job.kind.is_recorded:
        return ("checkpoint", "show", next_step.typed(job.checkpoint))
    if not stopped.savepoints:
        return next_step.run_words(job.target, home)
    uris = {made.query: next_step.typed(made.taken.uri) for made in stopped.savepoints}
    named = uris.values() if len(uris) == 1 else (f"{query}={uri}" for query, uri in uris.items())
    start = [*next_step.given_words("-s", list(named))]
    place = next_step.restored_beside(job.checkpoint)
    return next_step.run_words(job.target, home, *start, "--set", f"checkpoint.storage={place}")


def _digest(stopped: Stopped) -> tuple[Stopped, bool]:
    """Record the digests of the savepoints, using all CPU cores because no query is running.

    Returns:
        The savepoints with their digests, and False if Ctrl-C left some pending.
    """
    made = list(stopped.savepoints)
    try:
        for place, each in enumerate(made):
            if each.pending:
                made[place] = replace(each, content=digest_taken(each.taken.uri, gentle=False))
    except KeyboardInterrupt:
        for each in made:
            if each.pending:
                output.insist(digests_later(each.taken.uri))
        return replace(stopped, savepoints=tuple(made)), False
    return replace(stopped, savepoints=tuple(made)), True


@examples("visits --dry-run", "visits")
def restart(
    job: JobName,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="The time to wait for the new driver.")
    ] = 360.0,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Restart a running job with the job file as it is now, with a pause of about a second.

    A second driver starts and warms up while the first one continues. Then the first one stops after its
    batch, and the second one continues. If the second one cannot start, the first one is not stopped.
    """
    if dry_run:
        plan = hf.jobs.plan_restart(job, home=home)
        output.show_plan(plan, json, _show_restart)
        next_step.say_for_real(json)
        return
    report = hf.jobs.restart(job, timeout=int(timeout * 1000), home=home)
    output.show_plan(report, json, _show_restarted, dry_run=False)


def _show_restart(found: JobStatus) -> None:
    output.line(f"{found.job.name}: would start a driver with {found.job.target}, then stop the running one")


def _show_restarted(found: RestartReport) -> None:
    name, state = found.status.job.name, found.status.job.state.value
    output.line(f"{name}: {state}, paused for {rounded_duration(found.took_ms)}")


@examples("visits --dry-run", "visits")
def cancel(
    job: JobName,
    timeout: Timeout = 60.0,
    yes: options.Yes = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """End a job's driver at once. The checkpoint is kept unless the job sets `on_cancel="delete"`."""
    plan = hf.jobs.plan_cancel(job, home=home)
    name, deletes = plan.status.job.name, plan.deletes_checkpoint
    fate = f"{'delete' if deletes else 'keep'} its checkpoint {plan.status.job.checkpoint}"
    if dry_run:
        output.show_plan(
            plan,
            json,
            lambda found: output.line(
                f"{name}: {found.status.job.state.value}, would be ended at once; would {fate}"
            ),
        )
        next_step.say_for_real(json)
        return
    if deletes and not yes:
        confirm(f"Cancel {name} and {fate}?")
    made = hf.jobs.cancel(name, timeout=int(timeout * 1000), home=home)
    output.show_plan(
        made, json, lambda found: output.line(f"{name}: {found.status.job.state.value}"), dry_run=False
    )
    if not deletes:
        next_step.say_looked_up(json, lambda: next_step.run_words(made.status.job.target, home))
