"""`holdfast restore`: a new checkpoint from which the query goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import NewCheckpoint, Savepoint
from holdfast.cli.examples import examples
from holdfast.cli.new_checkpoint import plan_of_savepoint, show_plan, show_restored
from holdfast.cli.progress import progress


@examples(
    "savepoints/20260305T080000 checkpoints/again --dry-run",
    "savepoints/20260305T080000 checkpoints/again",
)
def restore(
    savepoint: Savepoint,
    checkpoint: NewCheckpoint,
    claim: Annotated[bool, typer.Option("--claim", help="Delete the savepoint afterwards.")] = False,
    drop_expired: options.DropExpired = False,
    database: options.Database = None,
    table: options.Table = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint from a savepoint; the same query resumes from it, exactly once.

    A query that writes files (Parquet, JSON, CSV, …) and gets a new directory for them needs --table: Spark's
    file sink fails for good up to ten batches later if its log lacks the batches before.
    """
    from holdfast import savepoints
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.catalog.leases import require_no_turn
    from holdfast.savepoints.restoring import Operation

    if dry_run:
        plan = plan_of_savepoint(savepoint, checkpoint, Operation.RESTORE, database, table)
        if claim:
            require_no_turn(opened(savepoint)[0])
        output.show_plan(plan, json, show_plan)
        if claim:
            output.say(f"the savepoint would be deleted afterwards: {plan.savepoint}")
        next_step.say_for_real(json)
        return
    with progress("restore", "files") as tell:
        made = savepoints.restore(
            savepoint,
            checkpoint,
            claim=claim,
            drop_expired=drop_expired,
            database=database,
            table=table,
            tell=tell,
        )
    output.show(made, json, show_restored)
    next_step.say_start(json, made.checkpoint, made.plan.original)
