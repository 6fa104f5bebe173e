"""`holdfast fork`: the same state for another query."""

from __future__ import annotations

from holdfast.cli import options
from holdfast.cli.progress import progress
from holdfast.cli.restore import Target, planned, show_made, show_plan
from holdfast.cli.savepoint import Savepoint


def fork(
    savepoint: Savepoint, checkpoint: Target, dry_run: options.DryRun = False, json: options.Json = False
) -> None:
    """Make a new checkpoint of a savepoint for another query: the same state, a new query id."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help
    from holdfast.savepoints.restoring import Operation  # noqa: PLC0415 - as above

    if dry_run:
        show_plan(planned(savepoint, checkpoint, Operation.FORK), json)
        return
    with progress("fork", "files") as tell:
        made = savepoints.fork(savepoint, checkpoint, tell=tell)
    show_made(made, json)
