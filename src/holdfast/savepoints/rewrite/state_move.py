"""Move state into other partitions or into another shape, on a copy, with a proof.

A rescale and a migration are such moves. What they have in common is here: how they look at the state before,
which of it goes where, and the steps of the move. The files are written here, without Spark; Spark's own
repartitioning does what is not known here, in the same steps and under the same proof.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import Checkpoint, ProgressCallback, StatefulOperator, read
from holdfast.checkpoints.guard.checkpoint_guard import CheckpointGuard
from holdfast.checkpoints.guard.usage import CheckpointUsage
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.state.key_partition import KeyPartitions
from holdfast.checkpoints.state.states import operator_states
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.config.units import counted
from holdfast.errors import Conflict, Internal, Invalid, Unsupported
from holdfast.formats.providers import known_provider
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.savepoints.planning import changing
from holdfast.savepoints.restoring import RestoreKind, free
from holdfast.savepoints.rewrite.rewriting import StateShape, note_partitions, rewrite
from holdfast.savepoints.rewrite.working_copy import ChangeSource, WorkingCopy
from holdfast.storage.port import Storage, full

# Called with a checkpoint on a local disk that nobody else uses, the partitions, and its state format.
Repartition = Callable[[Path, int, int], None]
# Brings the state of a copy into another shape, in a maintenance batch.
Backend = Callable[[WorkingCopy], object]

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The plan of a move of state.

    Attributes:
        source: The checkpoint or savepoint.
        original: The checkpoint; of a savepoint, the one that it was taken of.
        checkpoint: The checkpoint that is to be made.
        batch_id: The batch whose state it is.
        query_id: The query, which stays the same.
    """

    source: str
    original: str = field(metadata=NOT_IN_JSON)
    checkpoint: str
    batch_id: int = field(metadata=json_as("from_batch"))
    query_id: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A checkpoint whose state was moved.

    Attributes:
        plan: What was done.
        batch_id: The newest batch in it: that of the source.
        before: What each state held.
        after: What each state holds: the same.
    """

    plan: MovePlan = field(metadata=json_spread())
    batch_id: int = field(metadata=json_as(formerly="batch"))
    before: tuple[StateContent, ...] = field(metadata=NOT_IN_JSON)
    after: tuple[StateContent, ...] = field(metadata=json_as("states"))

    @property
    def checkpoint(self) -> str:
        """The checkpoint's address."""
        return self.plan.checkpoint

    @property
    @in_json
    def rows(self) -> int:
        """The rows of all states."""
        return sum(state.rows for state in self.after)


@dataclass(frozen=True, slots=True)
class StateAtRest:
    """A checkpoint or savepoint whose state is to be moved.

    Attributes:
        source: It, as a person has named it.
        view: It as a checkpoint.
        original: The address of the checkpoint; of a savepoint, of the one that it was taken of.
        found: What is in it.
        batch_id: Its batch.
        shape: How it keeps its state.
        partitions: How many partitions each operator has, but for those that one task has all of.
    """

    source: ChangeSource
    view: Storage
    original: str
    found: Checkpoint
    batch_id: int
    shape: StateShape
    partitions: tuple[int, ...]

    def common(self, target: Storage) -> tuple[str, str, str, int, str]:
        """The fields of every plan."""
        return self.source.uri, self.original, target.uri, self.batch_id, self.found.query_id

    def refuse_uncertain(self) -> None:
        """Refuse other partitions where Spark does not say that the hash of a key decides its own.

        Raises:
            Unsupported: It does not.
        """
        if self.found.confs.get(_STRICT, "true") != "true":
            raise Unsupported(
                "which partition a key belongs to is not certain in this checkpoint",
                where=self.source.uri,
                found=f"{_STRICT}={self.found.confs[_STRICT]}",
                expected="true, as every Spark since 3.3 fixes it",
                hint="keep the number of partitions that it has",
            )

    def moving(self, partitions: int) -> list[StatefulOperator]:
        """The operators whose keys go to other partitions."""
        return [
            operator
            for operator in self.found.operators
            if not operator.gathered and operator.partitions != partitions
        ]

    def unplaced(self, partitions: int) -> Unsupported | None:
        """Return why the partitions of keys cannot be computed here; None if they can.

        Cost: the schemas of the states are read.
        """
        states = {operator.operator_id: operator for operator in operator_states(self.view, self.batch_id)}
        for operator in self.moving(partitions):
            where = full(self.source.uri, f"{layout.STATE}/{operator.operator_id}")
            if states[operator.operator_id].values.avro:
                return Unsupported(
                    "where keys that are encoded as Avro go is not known here",
                    where=where,
                    found=f"operator {operator.named.label}",
                    hint="keep the number of partitions, or let Spark move them with `holdfast rescale`",
                )
            for state in states[operator.operator_id].known():
                if state.schema is None:  # without rows it needs none; with some, whoever reads them says so
                    continue
                try:
                    KeyPartitions(operator, state, where)
                except Unsupported as error:
                    return error
        return None


def state_at_rest(
    source: ChangeSource, target: Storage, operation: RestoreKind, *, needs_state: bool = True
) -> StateAtRest:
    """Look at state that is to be moved, and where to; changes nothing and reads no rows.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint that is to be made.
        operation: What makes it.
        needs_state: Whether a query without state is refused.

    Raises:
        NotFound: There is no such checkpoint or savepoint.
        Conflict: Something is at the target, or a batch is under way in the checkpoint.
        Invalid: The query has no state.
        Unsupported: Its state store is not one that is known here.
    """
    view, original = source.view()
    free(target, source.uri, operation)
    found = read(view)
    if found.batch_id is None or (needs_state and not found.operators):
        raise Invalid(
            "there is no state to be moved",
            where=source.uri,
            found="no committed batch" if found.batch_id is None else "a query without stateful operators",
            hint="restore it as it is; a query without state takes the number of the session that starts it",
        )
    if source.savepoint_id is None and found.uncommitted is not None:
        raise Conflict(
            "a batch is planned and not committed: it runs now, or will run again",
            where=source.uri,
            found=f"batch {found.uncommitted}",
            expected=f"none after batch {found.batch_id}",
            hint="take a savepoint and use that, which needs nothing; or stop the query between two batches,"
            " as `holdfast stop` does, or start it once more, with `availableNow` as its trigger, and let"
            " it finish; a sink that has rows of that batch already would get them twice",
        )
    partitions = tuple(operator.partitions for operator in found.operators if not operator.gathered)
    noted = found.confs.get("spark.sql.shuffle.partitions", "")
    shape = StateShape(
        rocksdb=known_provider(found.confs, source.uri) == ROCKSDB_PROVIDER,
        partitions=partitions[0] if partitions else int(noted) if noted.isdecimal() else 1,
        state_format=max((operator.format_version for operator in found.operators), default=1),
        external=found.external,
    )
    return StateAtRest(source, view, original, found, found.batch_id, shape, partitions)


def move(
    work: WorkingCopy,
    plan: MovePlan,
    backend: Backend | None,
    target: Storage,
    operation: RestoreKind,
    guard: CheckpointGuard | None,
    tell: ProgressCallback | None,
) -> Moved:
    """Move the state of a copy, prove that it is the same, and make a checkpoint of it.

    The rows of each state are counted and hashed before and after, without regard to partition and order.
    Only then the target is written, its `metadata` last.

    Args:
        work: The copy.
        plan: What is to be done.
        backend: What moves the state; None where it stays where it is.
        target: The checkpoint that is to be made.
        operation: What makes it.
        guard: The guard of the checkpoint that was copied; None where it was a savepoint.
        tell: Called with stores read, stores in all, and what is being done.

    Raises:
        Conflict: The checkpoint that was copied is used after all, or somebody has begun to write to the
            target.
        Corrupt: The state is damaged.
        Internal: The rows are not what they were; nothing was written.
    """
    before = contents(work.checkpoint, tell=tell)
    if backend is not None:
        backend(work)
    work.end_at(plan.batch_id)
    after = contents(work.checkpoint, tell=tell)
    _prove_same(before, after, plan.source)
    made = work.published(target, operation, (plan.source, plan.original), guard)
    return Moved(plan, made.batch_id, before, after)


def by_files(shape: StateShape, folder: Path, tell: ProgressCallback | None) -> Backend:
    """Write the files of the state anew, without Spark, in a directory that is not there yet."""
    return lambda work: rewrite(work.checkpoint, shape, folder, tell)


def by_spark(shape: StateShape, repartition: Repartition) -> Backend:
    """Have Spark bring the state of RocksDB into other partitions."""

    def run(work: WorkingCopy) -> None:
        repartition(work.place, shape.partitions, shape.state_format)
        batch_id = read(work.checkpoint).batch_id
        if batch_id is not None:
            note_partitions(work.checkpoint, batch_id, shape.partitions)

    return run


def _prove_same(before: Sequence[StateContent], after: Sequence[StateContent], where: str) -> None:
    """See that every state has the rows that it had.

    Raises:
        Internal: One has not.
    """
    lost = [one for one in before if one not in after] or [one for one in after if one not in before]
    if not lost:
        return
    raise Internal(
        "the rows of a state are not what they were, and nothing was written",
        where=where,
        found=f"{lost[0].state.shown}: {counted(lost[0].rows, 'row')}",
        expected="the same rows before and after",
        hint="the source is as it was; please report this with the query's operators and Spark's version",
    )


_LOG: Final = logging.getLogger("holdfast.savepoints")


def _short(provider: str) -> str:
    return provider.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class RescalePlan(MovePlan, JsonShape):
    """The plan of a rescale.

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
        """Return whether nothing has to be moved."""
        return all(number == self.partitions for number in self.before)

    @property
    @in_json
    def operation(self) -> RestoreKind:
        """`rescale`."""
        return RestoreKind.RESCALE


@dataclass(frozen=True, slots=True)
class Rescaled(Moved, JsonShape):
    """A checkpoint in other partitions; where nothing had to move, its newest batch is the source's."""

    plan: RescalePlan = field(metadata=json_spread())

    @property
    def states(self) -> tuple[StateContent, ...]:
        """The content of each state, equal before and after."""
        return self.after


def plan_rescale(source: ChangeSource, target: Storage, partitions: int) -> RescalePlan:
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
    """Return whether Spark has to move the state; its own repartitioning knows RocksDB only."""
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
    source: ChangeSource,
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
    made = move(work, plan, backend, target, RestoreKind.RESCALE, guard, tell)
    _LOG.info("rescaled %s to %d partitions: %s", plan.source, plan.partitions, target.uri)
    return Rescaled(plan, made.batch_id, made.before, made.after)
