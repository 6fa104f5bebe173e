"""The move of a working copy's state to a different layout, with the verification of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.changes.engine import ChangePlan, require_same_rows
from holdfast.changes.rewriting import StateShape, note_partitions, rewrite
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.savepoints.spread import SharedCheckpoint, contents_on

# A function that is called with an unused checkpoint on a local disk, the partitions, and the state format.
Repartition = Callable[[Path, int, int], None]
# A function that moves the state of a copy to a different layout, in a maintenance batch.
Backend = Callable[[WorkingCopy], object]


@dataclass(frozen=True, slots=True)
class StatesMoved:
    """The content of each state before and after a step, which is the same.

    Attributes:
        before: The content before the step.
        after: The content after the step.
    """

    before: tuple[StateContent, ...]
    after: tuple[StateContent, ...]


def moved(
    work: WorkingCopy, plan: ChangePlan, backend: Backend | None, tell: ProgressCallback | None
) -> StatesMoved:
    """Move the state of a copy to a different layout, and verify that its rows are unchanged.

    The rows of each state are counted and hashed before and after, independent of partition and order.

    Args:
        work: The working copy.
        plan: The plan of the change.
        backend: The function that moves the state; None if it is not moved.
        tell: The progress callback, called with stores read, total stores, and the current step.

    Raises:
        Corrupt: The state is damaged.
        Internal: The rows differ after the move.
    """
    before = contents_of(work, plan.batch_id, tell)
    if backend is not None:
        backend(work)
    work.end_at(plan.batch_id)
    after = contents_of(work, plan.batch_id, tell)
    require_same_rows(before, after, plan.source)
    return StatesMoved(before, after)


def contents_of(work: WorkingCopy, batch_id: int, tell: ProgressCallback | None) -> tuple[StateContent, ...]:
    """Return the content of each state of a copy, read where the copy's tasks run."""
    if work.tasks is None:
        return contents(work.checkpoint, tell=tell)
    shared = SharedCheckpoint.of(work.checkpoint, batch_id)
    return contents_on(work.tasks, shared, work.checkpoint, batch_id, tell)


def by_files(shape: StateShape, folder: Path, tell: ProgressCallback | None) -> Backend:
    """Return a function that rewrites the state files without Spark's state store, in a new directory."""
    return lambda work: rewrite(work.checkpoint, shape, folder, tell, tasks=work.tasks)


def by_spark(shape: StateShape, repartition: Repartition) -> Backend:
    """Return a function that lets Spark move RocksDB's state to different partitions."""

    def run(work: WorkingCopy) -> None:
        repartition(work.place, shape.partitions, shape.state_format)
        batch_id = read(work.checkpoint).batch_id
        if batch_id is not None:
            note_partitions(work.checkpoint, batch_id, shape.partitions)

    return run
