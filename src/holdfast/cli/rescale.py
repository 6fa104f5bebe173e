"""`holdfast rescale`: the same state in another number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import AtRest
from holdfast.cli.examples import examples
from holdfast.cli.new_checkpoint import show_moved, show_usage
from holdfast.cli.progress import progress
from holdfast.cli.sparks_words import without_sparks_words

if TYPE_CHECKING:
    from holdfast.savepoints.rewrite.rescaling import RescalePlan


@examples(
    "savepoints/20260305T080000 --partitions 8",
    "checkpoints/visits --partitions 8 --to wider --stopped",
)
def rescale(
    source: AtRest,
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
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs, should it be needed.")
    ] = None,
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
        planned = savepoints.plan_rescale(source, to, partitions=partitions)
        output.show_plan(planned, json, _show_plan)
        next_step.say_for_real(json, ready=stopped or planned.usage is None)
        return
    with without_sparks_words() as words, progress("rescale", "files", words) as tell:
        made = savepoints.rescale(
            source, to, partitions=partitions, master=master, stopped=stopped, tell=tell
        )
    output.show(made, json, lambda rescaled: show_moved(rescaled, _change(rescaled.plan)))
    next_step.say_start(json, made.checkpoint, made.plan.original)


def _show_plan(plan: RescalePlan) -> None:
    by = "Spark does it" if plan.starts_spark else "no Spark is needed"
    output.line(
        f"would make {plan.checkpoint} of batch {plan.batch_id}:"
        f" {_change(plan)}, {plan.size_bytes:,} bytes; {by}"
    )
    show_usage(plan.usage, output.line)


def _change(plan: RescalePlan) -> str:
    if not plan.before:
        return "one task has all of the state, whatever the number"
    if plan.same:
        return f"{plan.partitions} partitions, as before"
    return f"{', '.join(map(str, sorted(set(plan.before))))} to {plan.partitions} partitions"
