"""`holdfast restore`: a new checkpoint from which the query goes on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.progress import progress
from holdfast.cli.savepoint import DropExpired, Savepoint

if TYPE_CHECKING:
    from holdfast.savepoints.restoring import Operation, Restored, RestorePlan

Target = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A new directory, as path or URI.")]


def restore(
    savepoint: Savepoint,
    checkpoint: Target,
    claim: Annotated[bool, typer.Option("--claim", help="Delete the savepoint afterwards.")] = False,
    drop_expired: DropExpired = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint from a savepoint; the same query resumes from it, exactly once."""
    from holdfast import savepoints
    from holdfast.savepoints.restoring import Operation

    if dry_run:
        show_plan(planned(savepoint, checkpoint, Operation.RESTORE), json)
        return
    with progress("restore", "files") as tell:
        made = savepoints.restore(savepoint, checkpoint, claim=claim, drop_expired=drop_expired, tell=tell)
    show_made(made, json)


def planned(savepoint: str, checkpoint: str, operation: Operation) -> RestorePlan:
    """What a restore or a fork would do; the savepoint is proved."""
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.restoring import plan_restore
    from holdfast.storage import open_storage

    catalog, savepoint_id = opened(savepoint)
    with progress("verify", "files") as tell:
        return plan_restore(
            catalog, savepoint_id, open_storage(checkpoint), operation, chance=os.urandom, tell=tell
        )


def show_plan(plan: RestorePlan, json: bool) -> None:
    """Print what would be done."""
    if json:
        output.emit_json({"dry_run": True, **plan.as_dict()})
        return
    output.line(
        f"the savepoint is whole: would make {plan.checkpoint} at batch {plan.manifest.batch_id},"
        f" {len(plan.manifest.files):,} files, {plan.manifest.size_bytes:,} bytes"
    )


def show_made(made: Restored, json: bool) -> None:
    """Print what was done."""
    if json:
        output.emit_json(made.as_dict())
        return
    output.line(made.checkpoint)
    output.say(
        f"query {made.query_id} goes on with batch {made.batch_id + 1};"
        f" {made.linked_bytes:,} of {made.plan.manifest.size_bytes:,} bytes are links into the catalog"
    )
    if made.plan.state_format is not None:
        output.say(
            "start it with spark.sql.streaming.stateStore.checkpointFormatVersion"
            f"={made.plan.state_format}, as it had"
        )
