"""The public functions for source offsets: `hf.offsets`, `hf.plan_offsets`, `hf.move_offsets`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.changes.offsets.moving import OffsetPlan, OffsetRequest, OffsetsMoved
from holdfast.changes.offsets.moving import move_offsets as moved
from holdfast.changes.offsets.moving import plan_offsets as planned
from holdfast.changes.offsets.positions import SourcePositions, read_positions
from holdfast.savepoints.access import move_of, source_guard, source_of, source_usage
from holdfast.savepoints.address import Address
from holdfast.savepoints.view import workplace

if TYPE_CHECKING:
    from holdfast.changes.offsets.position_changes import OffsetChange
    from holdfast.checkpoints.checkpoint import ProgressCallback


_ENDING = "moved"


def offsets(address: Address) -> SourcePositions:
    """Return the position from which each source of a query continues after its newest committed batch.

    Args:
        address: A checkpoint, whose query may be running, or a savepoint.

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
    """Plan a move of offsets. Changes nothing.

    The arguments are those of `move_offsets`.

    Raises:
        As for `move_offsets`.

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
    that are read again are counted twice in the state, and rows older than the watermark are dropped as late.
    Skipped rows never reach the state.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: The new checkpoint, a directory that does not exist; by default next to the old
            checkpoint, with the suffix `-moved`.
        changes: The changes, in order: `hf.ToRecord`, `hf.SkipRecords`, `hf.ToVersion`, `hf.ToOffset`,
            `hf.RenameTopic`, `hf.Translate`.
        skip_files: The files that a file source must skip.
        files_of: The source of these files; None for the only file source.
        stopped: True to confirm that no query uses the checkpoint. The confirmation is required for a
            checkpoint, not for a savepoint. The checkpoint is also watched for several seconds to two
            minutes.
        home: The state home, which may have an integrity record of the checkpoint; by default that of the
            settings.
        tell: The progress callback, called with the number of finished steps, the number of all steps, and
            the current step.

    Raises:
        NotFound: The checkpoint, savepoint, source, topic or partition does not exist.
        Conflict: The target exists, a query uses the checkpoint, or the confirmation is missing.
        Corrupt: The source is damaged.
        Invalid: The change does not match the sources, or changes nothing.

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
