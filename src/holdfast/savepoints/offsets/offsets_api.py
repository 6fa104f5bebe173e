"""The public calls about source offsets: `hf.offsets`, `hf.move_offsets`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.savepoints.access import Address, move_of, source_guard, source_of, source_usage
from holdfast.savepoints.offsets.moving import OffsetPlan, OffsetsMoved, Wanted
from holdfast.savepoints.offsets.moving import move_offsets as moved
from holdfast.savepoints.offsets.moving import plan_offsets as planned
from holdfast.savepoints.offsets.positions import Positions, read_positions
from holdfast.savepoints.places import workplace

if TYPE_CHECKING:
    from holdfast.checkpoints.values import ProgressCallback

_ENDING = "moved"


def offsets(place: Address) -> Positions:
    """Where each source of a query goes on after its newest committed batch.

    Args:
        place: A checkpoint, of a running query too, or a savepoint.

    Raises:
        NotFound: There is no such checkpoint or savepoint, or no batch is committed.
        Corrupt: A log is damaged.
    """
    source = source_of(place)
    return read_positions(source.view()[0], source.uri)


def plan_offsets(source: Address, checkpoint: Address | None = None, *, wanted: Wanted) -> OffsetPlan:
    """What `move_offsets` would do; changes nothing.

    Raises:
        As `move_offsets`.
    """
    given, target = move_of(source, checkpoint, _ENDING)
    return replace(planned(given, target, wanted), usage=source_usage(given))


def move_offsets(
    source: Address,
    checkpoint: Address | None = None,
    *,
    wanted: Wanted,
    stopped: bool = False,
    tell: ProgressCallback | None = None,
) -> OffsetsMoved:
    """Make a new checkpoint with the same state, whose sources go on elsewhere.

    What is changed stays as it is. Let no other query run on the old checkpoint afterwards. Rows that are
    read again count twice in the state, and those older than the watermark are dropped as late; rows that are
    left out are in no state.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: A directory that does not exist; by default beside the checkpoint, with `-moved` behind
            its name.
        wanted: What is to become of the sources.
        stopped: Your word that no query uses the checkpoint, without which it is refused; a savepoint needs
            none. The checkpoint is watched all the same, for some seconds to two minutes.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: There is no such checkpoint or savepoint, source, topic or partition.
        Conflict: The target exists, a query uses the checkpoint, or nobody has said that none does.
        Corrupt: The source is damaged.
        Invalid: The change does not fit the sources, or changes nothing.
    """
    given, target = move_of(source, checkpoint, _ENDING)
    plan = planned(given, target, wanted)
    with (
        source_guard(given, "offsets", stopped=stopped, tell=tell) as guard,
        workplace(target, "offsets") as work,
    ):
        return moved(given, target, plan, work, tell=tell, guard=guard)
