"""What verbs say of a checkpoint that they would make, or have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.progress import progress
from holdfast.config.units import counted

if TYPE_CHECKING:
    from holdfast.checkpoints.guard.usage import CheckpointUsage
    from holdfast.savepoints.restoring import Operation, Restored, RestorePlan
    from holdfast.savepoints.rewrite.state_move import Moved


def plan_of_savepoint(
    savepoint: str,
    checkpoint: str,
    operation: Operation,
    database: str | None = None,
    table: str | None = None,
) -> RestorePlan:
    """What a restore or a fork would do; the savepoint is proved."""
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.restoring import plan_restore
    from holdfast.savepoints.sink_table import open_table
    from holdfast.storage import open_storage

    catalog, savepoint_id = opened(savepoint)
    with progress("verify", "files") as tell:
        target = open_storage(checkpoint)
        into = None if table is None else open_table(table, target)
        return plan_restore(
            catalog, savepoint_id, target, operation, database=database, table=into, tell=tell
        )


def show_plan(plan: RestorePlan) -> None:
    """Print what a restore or a fork would do."""
    output.line(
        f"the savepoint is whole: would make {plan.checkpoint} at batch {plan.manifest.batch_id},"
        f" {counted(len(plan.manifest.files), 'file')}, {plan.manifest.size_bytes:,} bytes"
    )
    if plan.database is not None:
        output.line(f"its state would be written to {plan.database}, into stores of its own")
    if plan.table is not None:
        output.line(f"the log of the new table {plan.table} would be prepared")


def show_restored(made: Restored) -> None:
    """Print what a restore or a fork has made."""
    output.whole(made.checkpoint)
    output.say(
        f"query {made.query_id} goes on with batch {made.batch_id + 1};"
        f" {made.linked_bytes:,} of {made.plan.manifest.size_bytes:,} bytes are links into the catalog"
    )
    if made.plan.database is not None:
        output.say(f"its state is in {made.plan.database}, in stores of its own")
    if made.plan.table is not None:
        output.say(f"the log of {made.plan.table} is prepared: let the query write its files there")
    if made.plan.state_format is not None and made.plan.has_formats:
        say_format(made.plan.state_format, ", as it had")


def show_moved(made: Moved, change: str) -> None:
    """Print what a rescale or a migration has made.

    Args:
        made: The checkpoint.
        change: What is other than before.
    """
    output.whole(made.checkpoint)
    output.say(f"{change}: {counted(made.rows, 'row')}, proved to be the same")
    output.say(
        f"query {made.plan.query_id} goes on with batch {made.batch_id + 1}; its old checkpoint is as it was"
    )


def say_format(state_format: int, remark: str) -> None:
    """Say what a checkpoint does not note, and the query has to be started with."""
    output.say(f"start it with spark.sql.streaming.stateStore.checkpointFormatVersion={state_format}{remark}")


def show_usage(usage: CheckpointUsage | None, emit: Callable[[str], None]) -> None:
    """Print who may be using a checkpoint, before a person says that nobody does."""
    if usage is None:
        return
    emit(f"nobody may use {usage.uri} meanwhile, which --stopped says; what is known:")
    for line in usage.lines():
        emit(f"  {line}")
