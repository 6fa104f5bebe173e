"""Bring state into another number of partitions: on a copy, with a proof, into a new checkpoint."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.checkpoints.guard.checkpoint_guard import CheckpointGuard
from holdfast.checkpoints.guard.usage import CheckpointUsage
from holdfast.checkpoints.state.contents import StateContent
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Unsupported
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.savepoints.restoring import Operation
from holdfast.savepoints.rewrite.rewriting import StateShape
from holdfast.savepoints.rewrite.state_move import (
    Moved,
    MovePlan,
    Repartition,
    StateAtRest,
    by_files,
    by_spark,
    move,
    state_at_rest,
)
from holdfast.savepoints.rewrite.working_copy import Source, WorkingCopy
from holdfast.savepoints.taking.planning import changing
from holdfast.storage.port import Storage

_LOG: Final = logging.getLogger("holdfast.savepoints")


def _short(provider: str) -> str:
    return provider.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class RescalePlan(MovePlan, JsonShape):
    """What a rescale would do.

    Attributes:
        before: How many partitions each operator has, but for those that one task has all of.
        after: How the state is to be kept: as it is, in another number of partitions.
        size_bytes: The bytes of the state.
        starts_spark: Whether Spark does it: where some keys go is not known here.
        usage: Who may be using the checkpoint, where that was asked; a person has to say that nobody does.
    """

    before: tuple[int, ...] = field(metadata=json_as("partitions_before"))
    after: StateShape = field(metadata=NOT_IN_JSON)
    size_bytes: int = field(metadata=json_as(formerly="bytes"))
    starts_spark: bool
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def partitions(self) -> int:
        """How many partitions the operators are to have."""
        return self.after.partitions

    @property
    @in_json_as(convert=_short)
    def provider(self) -> str:
        """The class of the state store."""
        return self.after.provider

    @property
    @in_json
    def state_format(self) -> int:
        """The state-checkpoint format."""
        return self.after.state_format

    @property
    def same(self) -> bool:
        """Whether nothing has to be moved."""
        return all(number == self.partitions for number in self.before)

    @property
    @in_json
    def operation(self) -> Operation:
        """`rescale`."""
        return Operation.RESCALE


@dataclass(frozen=True, slots=True)
class Rescaled(Moved, JsonShape):
    """A checkpoint in other partitions; where nothing had to move, its newest batch is the source's."""

    plan: RescalePlan = field(metadata=json_spread())

    @property
    def states(self) -> tuple[StateContent, ...]:
        """What each state holds, before as after."""
        return self.after


def plan_rescale(source: Source, target: Storage, partitions: int) -> RescalePlan:
    """Look at what is to be rescaled, and where to; changes nothing and reads no rows.

    Args:
        source: A checkpoint, or a savepoint.
        target: The checkpoint that is to be made.
        partitions: How many partitions the state is to have.

    Raises:
        NotFound: There is no such checkpoint or savepoint.
        Conflict: Something is at the target, or a batch is under way in the checkpoint.
        Invalid: The query has no state.
        Unsupported: Its state store is not one that is known here, or nobody knows where its keys go.
    """
    state = state_at_rest(source, target, Operation.RESCALE)
    state.refuse_uncertain()
    return RescalePlan(
        *state.common(target),
        before=state.partitions,
        after=replace(state.shape, partitions=partitions),
        size_bytes=state.found.size_bytes,
        starts_spark=_starts_spark(state, partitions),
    )


def _starts_spark(state: StateAtRest, partitions: int) -> bool:
    """Whether Spark has to move the state; its own repartitioning knows RocksDB only."""
    unplaced = state.unplaced(partitions)
    if unplaced is None:
        return False
    if not state.shape.rocksdb or not all(operator.noted for operator in state.found.operators):
        raise unplaced
    for operator in state.found.operators:
        if operator.gathered:
            raise Unsupported(
                "Spark's repartitioning would lose the state of an operator that goes by no key",
                where=state.source.uri,
                found=f"operator {operator.named.label}, beside others",
                hint="keep the number of partitions, or let the aggregate without keys be a query of its own",
            )
    return True


def rescale(
    source: Source,
    target: Storage,
    plan: RescalePlan,
    folder: Path,
    repartition: Repartition,
    *,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
) -> Rescaled:
    """Make the checkpoint that was planned.

    The source is copied into a directory of its own, by hard links where that is possible, and changed there;
    the target is written after the proof, its `metadata` last.

    Cost: all state is read three times and written once.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint.
        plan: What `plan_rescale` gave for these.
        folder: A local directory to work in, which is the caller's to remove.
        repartition: Spark's repartitioning; called only if `plan.starts_spark`.
        tell: Called with what is done, what there is in all, and what is being done.
        guard: The guard of the source, where that is a checkpoint.

    Raises:
        Conflict: The source has moved on since the plan, or somebody has begun to write to the target.
        Corrupt: The source is damaged.
        Internal: The rows are not what they were; nothing was written.
    """
    _LOG.debug("rescaling %s to %d partitions", plan.source, plan.partitions)
    work = WorkingCopy(folder, changing("nothing was rescaled", "rescale"), tell)
    work.copied_at(source, plan.batch_id)
    backend = None
    if plan.starts_spark:
        if tell is not None:
            tell(0, 0, "moving keys with Spark")
        backend = by_spark(plan.after, repartition)
    elif not plan.same:
        backend = by_files(plan.after, folder / "stores", tell)
    made = move(work, plan, backend, target, Operation.RESCALE, guard, tell)
    _LOG.info("rescaled %s to %d partitions: %s", plan.source, plan.partitions, target.uri)
    return Rescaled(plan, made.batch_id, made.before, made.after)
