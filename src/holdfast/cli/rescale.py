"""`holdfast rescale`: the same state in another number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import AtRest, checkpoint_of
from holdfast.cli.examples import examples
from holdfast.cli.new_checkpoint import show_moved, show_usage
from holdfast.cli.progress import progress
from holdfast.cli.sparks_words import without_sparks_words

if TYPE_CHECKING:
    from holdfast.savepoints.rewrite.rescaling import RescalePlan


@examples(
    "savepoints/20260305T080000 --partitions 8",
    "checkpoints/visits wider --partitions 8 --stopped",
)
def rescale(
    source: AtRest,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="A new directory, as path or URI. [the checkpoint's name with -pN]",
        ),
    ] = None,
    *,
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, metavar="N", help="How many partitions the state gets."),
    ],
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs, should it be needed.")
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state in N partitions, and prove that it is the same.

    The query goes on from it after the batch that it ends with. What is rescaled stays as it is. A checkpoint
    needs --stopped, a savepoint does not.
    """
    from holdfast import savepoints

    address = checkpoint_of(source, home)
    if dry_run:
        plan = savepoints.plan_rescale(address, checkpoint, partitions=partitions)
        output.show_plan(plan, json, _show_plan)
        next_step.say_for_real(json, ready=stopped or plan.usage is None)
        return
    with without_sparks_words() as words, progress("rescale", "files", words) as tell:
        made = savepoints.rescale(
            address,
            checkpoint,
            partitions=partitions,
            master=master,
            stopped=stopped,
            home=home,
            tell=tell,
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
