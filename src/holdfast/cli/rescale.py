"""`holdfast rescale`: the same state in another number of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.progress import progress

if TYPE_CHECKING:
    from holdfast.checkpoints.guard.usage import CheckpointUsage
    from holdfast.savepoints.rewrite.rescaling import Rescaled, RescalePlan


def rescale(
    source: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|SP", help="A checkpoint that no query uses, or a savepoint.")
    ],
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, metavar="N", help="How many partitions the state gets."),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="A new directory. [the checkpoint's name with -pN]",
        ),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Where Spark runs, should it be needed.")] = None,
    stopped: options.Stopped = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state in N partitions, and prove that it is the same.

    The query goes on from it after the batch that it ends with. What is rescaled stays as it is. A checkpoint
    needs --stopped, a savepoint does not.
    """
    from holdfast import savepoints

    if dry_run:
        _show_plan(savepoints.plan_rescale(source, to, partitions=partitions), json)
        return
    with progress("rescale", "files") as tell:
        made = savepoints.rescale(
            source, to, partitions=partitions, master=master, stopped=stopped, tell=tell
        )
    _show_made(made, json)


def _show_plan(plan: RescalePlan, json: bool) -> None:
    if json:
        output.emit_json({"dry_run": True, **plan.as_dict()})
        return
    by = "Spark does it" if plan.starts_spark else "no Spark is needed"
    output.line(
        f"would make {plan.checkpoint} of batch {plan.batch_id}:"
        f" {_change(plan)}, {plan.size_bytes:,} bytes; {by}"
    )
    show_usage(plan.usage, output.line)


def show_usage(usage: CheckpointUsage | None, emit: Callable[[str], None]) -> None:
    """Print who may be using a checkpoint, before a person says that nobody does."""
    if usage is None:
        return
    emit(f"nobody may use {usage.uri} meanwhile, which --stopped says; what is known:")
    for line in usage.lines():
        emit(f"  {line}")


def _show_made(made: Rescaled, json: bool) -> None:
    if json:
        output.emit_json(made.as_dict())
        return
    plan = made.plan
    output.line(made.checkpoint)
    output.say(f"{_change(plan)}: {made.rows:,} rows are proved to be the same")
    output.say(
        f"query {plan.query_id} goes on with batch {made.batch_id + 1}; its old checkpoint is as it was"
    )


def _change(plan: RescalePlan) -> str:
    if not plan.before:
        return "one task has all of the state, whatever the number"
    if plan.same:
        return f"{plan.partitions} partitions, as before"
    return f"{', '.join(str(each) for each in sorted(set(plan.before)))} to {plan.partitions} partitions"
