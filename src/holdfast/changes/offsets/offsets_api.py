"""The public calls about source offsets: `hf.offsets`, `hf.plan_offsets`, `hf.move_offsets`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.changes.offsets.moving import OffsetPlan, OffsetRequest, OffsetsMoved
from holdfast.changes.offsets.moving import move_offsets as moved
from holdfast.changes.offsets.moving import plan_offsets as planned
from holdfast.changes.offsets.positions import SourcePositions, read_positions
from holdfast.savepoints.access import Address, move_of, source_guard, source_of, source_usage
from holdfast.savepoints.view import workplace

if TYPE_CHECKING:
    from holdfast.changes.offsets.position_changes import OffsetChange
    from holdfast.checkpoints.checkpoint import ProgressCallback


_ENDING = "moved"


def offsets(address: Address) -> SourcePositions:
    """Return the position from which each source of a query continues after its newest committed batch.

    Args:
        address: A checkpoint, also of a running query, or a savepoint.

    Raises:
        NotFound: The checkpoint or savepoint does not exist, or no batch is committed.
        Corrupt: A log is damaged.

    Example:
        positions = hf.offsets("checkpoints/orders").sources
        assert (positions[0].topic, positions[0].partition, positions[0].next) == ("orders", 0, 40)
    """
    source = source_of(address)
    return read_positions(source.view()[0], source.uri)


def plan_offsets(
    source: Address,
    checkpoint: Address | None = None,
    *,
    changes: Sequence[OffsetChange] = (),
    skip_files: Sequence[str] = (),
    files_of: str | None = None,
) -> OffsetPlan:
    """Return what `move_offsets` would do, without changing anything.

    The arguments are those of `move_offsets`.

    Raises:
        As `move_offsets`.

    Example:
        plan = hf.plan_offsets("checkpoints/orders", changes=[hf.ToRecord("orders", 0, at=12)])
        assert (plan.repeated, plan.skipped) == (28, 0)
    """
    given, target = move_of(source, checkpoint, _ENDING)
    plan = planned(given, target, OffsetRequest(changes, skip_files, files_of))
    return replace(plan, usage=source_usage(given))


def move_offsets(
    source: Address,
    checkpoint: Address | None = None,
    *,
    changes: Sequence[OffsetChange] = (),
    skip_files: Sequence[str] = (),
    files_of: str | None = None,
    stopped: bool = False,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> OffsetsMoved:
    """Create a checkpoint with the same state and the source offsets you give.

    The old checkpoint or savepoint stays unchanged. Do not run a query on the old checkpoint afterwards. Rows
    that are read again count twice in the state, and those older than the watermark are dropped as late;
    skipped rows never reach the state.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: A directory that does not exist; by default next to the checkpoint, with the suffix
            `-moved`.
        changes: The changes, in their order: `hf.ToRecord`, `hf.SkipRecords`, `hf.ToVersion`, `hf.ToOffset`,
            `hf.RenameTopic`, `hf.Translate`.
        skip_files: Files that a file source is to skip.
        files_of: The source of these files; None for the only one.
        stopped: Your confirmation that no query uses the checkpoint, which is required; a savepoint needs
            none. The checkpoint is watched nevertheless, for some seconds to two minutes.
        home: The state home, which may have an integrity record of the checkpoint; by default the one in
            effect here.
        tell: Called with the number of finished steps, the number of all steps, and the current step.

    Raises:
        NotFound: The checkpoint, savepoint, source, topic or partition does not exist.
        Conflict: The target exists, a query uses the checkpoint, or it is not confirmed that none does.
        Corrupt: The source is damaged.
        Invalid: The change does not fit the sources, or changes nothing.

    Example:
        moved = hf.move_offsets(
            "checkpoints/orders",
            "checkpoints/orders-rewound",
            changes=[hf.ToRecord("orders", 0, at=12), hf.SkipRecords("refunds", 0, 1)],
            stopped=True,
        )
        assert (moved.plan.repeated, moved.plan.skipped) == (28, 1)
        assert hf.offsets(moved.checkpoint).sources[0].next == 12
    """
    given, target = move_of(source, checkpoint, _ENDING, home)
    plan = planned(given, target, OffsetRequest(changes, skip_files, files_of))
    with (
        source_guard(given, "offsets", stopped=stopped, tell=tell) as guard,
        workplace(target, "offsets") as work,
    ):
        return moved(given, target, plan, work, tell=tell, guard=guard)
