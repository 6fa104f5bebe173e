"""Changes of the number of partitions of state, with Spark only for keys whose hash is not supported."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.changes.engine import ChangePlan, StateAtRest, StateReport, carry_out, state_at_rest
from holdfast.changes.layouts import Repartition, StatesMoved, by_files, by_spark, moved
from holdfast.changes.rewriting import StateShape
from holdfast.changes.working_copy import SharedWork, WorkingCopy, on_executors
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import StateContent
from holdfast.config.checks import whole
from holdfast.errors import Unsupported
from holdfast.formats.text import PARTITIONS
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.ownership.checkpoint_guard import CheckpointGuard, held_between_drivers
from holdfast.ownership.usage import CheckpointUsage
from holdfast.savepoints.access import ChangeSource, move_of, source_guard, source_of, source_usage
from holdfast.savepoints.address import Address
from holdfast.savepoints.planning import changing
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.view import workplace
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

_LOG: Final = logging.getLogger("holdfast.savepoints")


def _short(provider: str) -> str:
    return provider.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class RescalePlan(ChangePlan, JsonShape):
    """The plan of a rescale.

    Attributes:
        before: The number of partitions of each operator, except operators whose whole state is in one task.
        after: The layout of the state, with the new number of partitions.
        size_bytes: The size of the state in bytes.
        starts_spark: Whether Spark moves the keys, because the partition of some cannot be computed
            otherwise.
        usage: The evidence of queries that may be using the checkpoint, if collected; a person must confirm
            that none is.

    Example:
        plan: hf.savepoints.RescalePlan = hf.savepoints.plan_rescale("checkpoints/visits", partitions=4)
        assert (plan.before, plan.partitions, plan.starts_spark) == ((2,), 4, False)
    """

    before: tuple[int, ...] = field(metadata=json_as("partitions_before"))
    after: StateShape = field(metadata=NOT_IN_JSON)
    size_bytes: int
    starts_spark: bool
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def partitions(self) -> int:
        """The requested number of partitions."""
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
        """Return whether the state already has the requested number of partitions."""
        return all(number == self.partitions for number in self.before)

    @property
    @in_json
    def operation(self) -> RestoreKind:
        """The operation: `rescale`."""
        return RestoreKind.RESCALE


@dataclass(frozen=True, slots=True)
class RescaleReport(StateReport, JsonShape):
    """A checkpoint with a different number of partitions and the newest batch of its source.

    Example:
        report: hf.savepoints.RescaleReport
        report = hf.savepoints.rescale("savepoints@daily", "checkpoints/visits-4", partitions=4)
        assert (report.batch_id, report.rows) == (11, 10)
    """

    plan: RescalePlan = field(metadata=json_spread())

    @property
    def states(self) -> tuple[StateContent, ...]:
        """The content of each state, equal before and after."""
        return self.after


def planned_rescale(source: ChangeSource, target: Storage, partitions: int) -> RescalePlan:
    """Plan a rescale; changes nothing and reads no rows.

    Args:
        source: A checkpoint, or a savepoint.
        target: The checkpoint to create.
        partitions: The new number of partitions.

    Raises:
        NotFound: The checkpoint or savepoint does not exist.
        Conflict: The target exists, or a batch of the checkpoint is uncommitted.
        Invalid: The query has no state.
        Unsupported: The state store, or the hash of the keys, is not supported.
    """
    state = state_at_rest(source, target, RestoreKind.RESCALE)
    state.refuse_uncertain()
    return RescalePlan(
        *state.common(target),
        before=state.partitions,
        after=replace(state.shape, partitions=partitions),
        size_bytes=state.found.size_bytes,
        starts_spark=_starts_spark(state, partitions),
    )


def _starts_spark(state: StateAtRest, partitions: int) -> bool:
    """Return whether Spark must move the state, which it can do only for RocksDB."""
    unplaced = state.unplaced(partitions)
    if unplaced is None:
        return False
    if not state.shape.rocksdb or not all(operator.noted for operator in state.found.operators):
        raise unplaced
    for operator in state.found.operators:
        if operator.gathered:
            raise Unsupported(
                "Spark's repartitioning would lose the state of an operator without keys",
                code="HF-E7029",
                where=state.source.uri,
                found=f"operator {operator.named.label} next to operators with keys",
                hint="keep the number of partitions, or move the aggregate without keys into a separate "
                "query",
            )
    return True


@dataclass(frozen=True, slots=True)
class MovePartitions:
    """The step that moves state to a different number of partitions.

    Attributes:
        plan: The plan of the rescale.
        repartition: The function that repartitions with Spark; called only if `plan.starts_spark` is set.
    """

    plan: RescalePlan
    repartition: Repartition
    name: str = "partitions"

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> StatesMoved:
        """See `Step`; the rows of each state are counted and hashed before and after."""
        backend = None
        if self.plan.starts_spark:
            if tell is not None:
                tell(0, 0, "moving keys with Spark")
            backend = by_spark(self.plan.after, self.repartition)
        elif not self.plan.same:
            backend = by_files(self.plan.after, folder / "stores", tell)
        return moved(work, self.plan, backend, tell)


def apply_rescale(
    source: ChangeSource,
    target: Storage,
    plan: RescalePlan,
    folder: Path,
    repartition: Repartition,
    *,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
    shared: SharedWork | None = None,
) -> RescaleReport:
    """Create the planned checkpoint.

    Cost: reads all state three times and writes it once.

    Raises:
        As for `carry_out`.
    """
    _LOG.debug("rescaling %s to %d partitions", plan.source, plan.partitions)
    step = MovePartitions(plan, repartition)
    purpose = changing("nothing was rescaled", "rescale")
    [states] = carry_out(
        source,
        target,
        plan,
        [step],
        RestoreKind.RESCALE,
        purpose,
        folder,
        guard=guard,
        tell=tell,
        shared=shared,
    )
    _LOG.info("rescaled %s to %d partitions: %s", plan.source, plan.partitions, target.uri)
    return RescaleReport(plan, plan.batch_id, states.before, states.after)


def rescale(
    source: Address,
    checkpoint: Address | None = None,
    *,
    partitions: int,
    master: str | None = None,
    stopped: bool = False,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> RescaleReport:
    """Create a checkpoint with the same state in a different number of partitions.

    The rows of every state are counted and hashed before and after; if they differ, nothing is created. The
    source stays unchanged. The query continues after the same batch, so the batch ids in its sink have no
    gap. Do not run a query on the old checkpoint afterwards.

    Cost: reads all state three times and writes it once, at about 100,000 rows per second on one core,
    without Spark. Spark is used only for keys in RocksDB whose partition cannot be computed otherwise (rows
    in Avro encoding; intervals and maps as keys), in the running session or a new one.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: The new checkpoint, a directory that does not exist; by default next to the old
            checkpoint, with the suffix `-pN`.
        partitions: The new number of partitions.
        master: The master of a Spark cluster whose executors read, hash and write the state, for state that
            one machine cannot move in time; the active session is used if there is one. The executors must
            reach the storage of the new checkpoint. The result is the same. By default no Spark is used,
            except for keys that only Spark can move.
        stopped: True to confirm that no query uses the checkpoint. The confirmation is required for a
            checkpoint, not for a savepoint. The checkpoint is also watched for several seconds to two
            minutes.
        home: The state home, which may have an integrity record of the checkpoint; by default that of the
            settings.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        NotFound: The checkpoint or savepoint does not exist.
        Conflict: The target exists, a batch of the checkpoint is uncommitted, a query uses the checkpoint, or
            the confirmation is missing.
        Corrupt: The source is damaged.
        Invalid: The query has no state, or an argument is not valid.
        Unsupported: The state cannot be moved.
        Unavailable: A storage does not answer, an executor does not see it, or the Spark job failed.

    Example:
        rescaled = hf.savepoints.rescale(
            "checkpoints/visits", "checkpoints/visits-4", partitions=4, stopped=True
        )
        assert rescaled.plan.before == (2,) and rescaled.rows == 10
        assert hf.checkpoints.read("checkpoints/visits-4").operators[0].partitions == 4
    """
    given, target, plan = _rescale(source, checkpoint, partitions, home)
    with source_guard(given, "rescale", stopped=stopped, tell=tell) as guard:
        return _rescaled(given, target, plan, guard, master, tell, spread=master)


def rescale_between_drivers(
    checkpoint: Address,
    target: Address,
    *,
    partitions: int,
    master: str | None,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> RescaleReport:
    """Rescale as `rescale` does, without confirmation, for the supervisor of a job without a driver.

    Raises:
        As for `rescale`.
    """
    given, into = source_of(checkpoint, home), open_storage(os.fspath(target))
    plan = planned_rescale(given, into, partitions)
    with held_between_drivers(given.storage, "rescale") as guard:
        return _rescaled(given, into, plan, guard, master, tell)


def _rescaled(
    given: ChangeSource,
    target: Storage,
    plan: RescalePlan,
    guard: CheckpointGuard | None,
    master: str | None,
    tell: ProgressCallback | None,
    *,
    spread: str | None = None,
) -> RescaleReport:
    """Create the planned checkpoint; `spread` is the master of the executors that move the state."""
    from holdfast.engine.spark_state import repartitioning

    spread = None if plan.starts_spark else spread
    with (
        workplace(target, "rescale") as work,
        on_executors(target, work, "rescale", spread) as shared,
    ):
        return apply_rescale(
            given, target, plan, work, repartitioning(master), tell=tell, guard=guard, shared=shared
        )


def plan_rescale(source: Address, checkpoint: Address | None = None, *, partitions: int) -> RescalePlan:
    """Plan a rescale. Changes nothing, and starts no Spark.

    The arguments are those of `rescale`.

    Raises:
        As for `rescale`.

    Example:
        plan = hf.savepoints.plan_rescale("checkpoints/visits", partitions=4)
        assert (plan.before, plan.partitions) == ((2,), 4)
        assert plan.checkpoint.endswith("checkpoints/visits-p4")
    """
    given, _, plan = _rescale(source, checkpoint, partitions)
    return replace(plan, usage=source_usage(given))


def _rescale(
    source: Address, checkpoint: Address | None, partitions: int, home: Address | None = None
) -> tuple[ChangeSource, Storage, RescalePlan]:
    whole(partitions, "partitions", least=1, most=PARTITIONS)
    given, target = move_of(source, checkpoint, f"p{partitions}", home)
    return given, target, planned_rescale(given, target, partitions)
