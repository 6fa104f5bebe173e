"""`holdfast fork`: the same state for another query, and what that one would do differently."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Savepoint
from holdfast.cli.comparing import show_compared
from holdfast.cli.examples import examples
from holdfast.cli.new_checkpoint import plan_of_savepoint, show_plan, show_restored
from holdfast.cli.progress import progress
from holdfast.errors import Invalid


@examples(
    "savepoints/20260305T080000 checkpoints/experiment",
    "savepoints/20260305T080000 --compare new.py --original visits.py",
)
def fork(  # noqa: PLR0917 - each is an option
    savepoint: Savepoint,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="A new directory, as path or URI. Optional with --compare.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="FILE.py[:JOB]",
            help="The new code: it and --original run in a sandbox over the same input.",
        ),
    ] = None,
    original: Annotated[
        str | None,
        typer.Option(
            "--original",
            metavar="FILE.py[:JOB]",
            help="The code that the savepoint belongs to; a savepoint holds no code.",
        ),
    ] = None,
    batches: Annotated[
        int, typer.Option("--batches", min=1, metavar="N", help="With --compare: the most batches to run.")
    ] = 20,
    samples: Annotated[
        int,
        typer.Option("--samples", min=0, metavar="N", help="With --compare: how many rows to show."),
    ] = 5,
    drop_expired: options.DropExpired = False,
    database: options.Database = None,
    table: options.Table = None,
    query: options.Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint from a savepoint for another query: the same state, a new query id.

    With --compare the original code and the new code first run from the savepoint over the same input,
    without their sinks: exit 0 if outputs and final state are equal, 1 if they differ. A CHECKPOINT that is
    named is made either way.
    """
    if compare is None:
        _fork(savepoint, checkpoint, dry_run, json, drop_expired=drop_expired, database=database, table=table)
        return
    if table is not None:
        raise Invalid(
            "--table cannot be combined with --compare",
            where="--compare --table",
            hint="compare first, without CHECKPOINT; then fork with --table",
        )
    if database is not None:
        raise Invalid(
            "a comparison makes its fork where the state was",
            where="--compare --database",
            hint="leave --database out; or compare first, and fork to the other database then",
        )
    if drop_expired:
        raise Invalid(
            "a comparison runs from the savepoint as it is",
            where="--compare --drop-expired",
            hint="leave --compare out; or compare from one of `holdfast savepoint take --drop-expired`"
            " instead",
        )
    if original is None:
        raise Invalid(
            "a savepoint holds no code, so the original code must be named too",
            where="--compare",
            expected="--original FILE.py[:JOB]",
            hint="name the job file that the savepoint's query runs",
        )
    if dry_run:
        raise Invalid(
            "a comparison changes nothing, so there is nothing to leave out",
            where="--compare --dry-run",
            hint="leave out CHECKPOINT, and no fork is made",
        )
    from holdfast.jobs.trials.comparison import compare as run_both

    with progress("compare", "batches") as tell:
        compared = run_both(
            savepoint,
            original=original,
            new=compare,
            checkpoint=checkpoint,
            batches=batches,
            samples=samples,
            query=query,
            overrides=options.pairs("--set", set_),
            conf=options.pairs("--conf", conf),
            home=home,
            tell=tell,
        )
    output.show(compared, json, show_compared)
    if not compared.equal:
        raise typer.Exit(1)
    if compared.fork is not None:
        next_step.say_option(json, compared.fork.checkpoint)


def _fork(
    savepoint: str,
    checkpoint: str | None,
    dry_run: bool,
    json: bool,
    *,
    drop_expired: bool,
    database: str | None,
    table: str | None,
) -> None:
    from holdfast import savepoints
    from holdfast.savepoints.restoring import Operation

    if checkpoint is None:
        raise Invalid(
            "it is not said where the fork is to go",
            expected="holdfast fork SP CHECKPOINT",
            hint="name a directory that does not exist",
        )
    if dry_run:
        plan = plan_of_savepoint(savepoint, checkpoint, Operation.FORK, database, table)
        output.show_plan(plan, json, show_plan)
        next_step.say_for_real(json)
        return
    with progress("fork", "files") as tell:
        made = savepoints.fork(
            savepoint, checkpoint, drop_expired=drop_expired, database=database, table=table, tell=tell
        )
    output.show(made, json, show_restored)
    next_step.say_option(json, made.checkpoint)
