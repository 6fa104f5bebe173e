"""Bring state into another number of partitions: on a copy, with a proof, into a new checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.guard.checkpoint_guard import CheckpointGuard
from holdfast.checkpoints.guard.usage import CheckpointUsage
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.values import Checkpoint
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.errors import Conflict, Internal, Invalid, Unsupported
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.providers import PROVIDERS, provider_class
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as, json_spread
from holdfast.layout import OperatorMetadataFile
from holdfast.savepoints.catalog.leases import Clock
from holdfast.savepoints.copying import ProgressCallback
from holdfast.savepoints.restoring import Operation, free
from holdfast.savepoints.rewrite.rewriting import StateShape, rewrite
from holdfast.savepoints.rewrite.working_copy import Source, WorkingCopy
from holdfast.savepoints.taking.taking import Chance
from holdfast.storage.port import Storage

# Called with a checkpoint on a local disk that nobody else uses, the partitions, and its state format.
Repartition = Callable[[Path, int, int], None]

_LOG: Final = logging.getLogger("holdfast.savepoints")

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"


def _short(provider: str) -> str:
    return provider.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class RescalePlan(JsonShape):
    """What a rescale would do.

    Attributes:
        source: The checkpoint or savepoint.
        original: The checkpoint; of a savepoint, the one that it was taken of.
        checkpoint: The checkpoint that is to be made.
        batch_id: The batch whose state it is.
        query_id: The query, which stays the same.
        before: How many partitions each operator has, but for those that one task has all of.
        partitions: How many they are to have.
        provider: The class of the state store.
        state_format: The state-checkpoint format.
        size_bytes: The bytes of the state.
        usage: Who may be using the checkpoint, where that was asked; a person has to say that nobody does.
    """

    source: str
    original: str = field(metadata=NOT_IN_JSON)
    checkpoint: str
    batch_id: int = field(metadata=json_as("from_batch"))
    query_id: str
    before: tuple[int, ...] = field(metadata=json_as("partitions_before"))
    partitions: int
    provider: str = field(metadata=json_as(convert=_short))
    state_format: int
    size_bytes: int = field(metadata=json_as(formerly="bytes"))
    usage: CheckpointUsage | None = None

    @property
    def same(self) -> bool:
        """Whether nothing has to be moved."""
        return all(each == self.partitions for each in self.before)

    @property
    @in_json
    def starts_spark(self) -> bool:
        """Whether Spark does it: its own repartitioning knows RocksDB only."""
        return not self.same and self.provider == ROCKSDB_PROVIDER

    @property
    @in_json
    def operation(self) -> Operation:
        """`rescale`."""
        return Operation.RESCALE


@dataclass(frozen=True, slots=True)
class Rescaled(JsonShape):
    """A checkpoint in other partitions.

    Attributes:
        plan: What was done.
        batch_id: The newest batch in it; the one that moved the state, and read nothing.
        states: What each state holds, before as after.
    """

    plan: RescalePlan = field(metadata=json_spread())
    batch_id: int = field(metadata=json_as(formerly="batch"))
    states: tuple[StateContent, ...]

    @property
    def checkpoint(self) -> str:
        """The checkpoint's address."""
        return self.plan.checkpoint

    @property
    @in_json
    def rows(self) -> int:
        """The rows of all states."""
        return sum(state.rows for state in self.states)


def plan_rescale(source: Source, target: Storage, partitions: int) -> RescalePlan:
    """Look at what is to be rescaled, and where to; changes nothing and reads no state.

    Args:
        source: A checkpoint, or a savepoint.
        target: The checkpoint that is to be made.
        partitions: How many partitions the state is to have.

    Raises:
        NotFound: There is no such checkpoint or savepoint.
        Conflict: Something is at the target, or a batch is under way in the checkpoint.
        Invalid: The query has no state.
        Unsupported: Its state store is not one that is known here.
    """
    view, original = source.view()
    free(target, source.uri, Operation.RESCALE)
    found, batch_id = at_rest(source, view)
    provider = provider_of(found, source.uri)
    refuse_uncertain(found, source.uri)
    gathered = [operator for operator in found.operators if operator.gathered]
    if gathered and len(gathered) < len(found.operators) and provider == ROCKSDB_PROVIDER:
        raise Unsupported(
            "Spark's repartitioning would lose the state of an operator that goes by no key",
            where=source.uri,
            found=f"operator {gathered[0].operator_id}, {gathered[0].name}, beside others",
            hint="keep the number of partitions, or let the aggregate without keys be a query of its own",
        )
    return RescalePlan(
        source=source.uri,
        original=original,
        checkpoint=target.uri,
        batch_id=batch_id,
        query_id=found.query_id,
        before=tuple(operator.partitions for operator in found.operators if not operator.gathered),
        partitions=partitions,
        provider=provider,
        state_format=max(operator.format_version for operator in found.operators),
        size_bytes=found.size_bytes,
    )


def rescale(
    source: Source,
    target: Storage,
    plan: RescalePlan,
    folder: Path,
    repartition: Repartition,
    *,
    clock: Clock,
    chance: Chance,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
) -> Rescaled:
    """Make the checkpoint that was planned.

    The source is copied into a directory of its own, by hard links where that is possible, and changed there.
    Then the rows of each state are counted and hashed, without regard to partition and order: they have to be
    what they were. Only then the target is written, its `metadata` last.

    Cost: all state is read twice and written once by Spark, or here for the memory provider.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint.
        plan: What `plan_rescale` gave for these.
        folder: A local directory to work in, which is the caller's to remove.
        repartition: Spark's repartitioning; called only if `plan.starts_spark`.
        clock: The time in epoch milliseconds.
        chance: So many random bytes.
        tell: Called with what is done, what there is in all, and what is being done.
        guard: The guard of the source, where that is a checkpoint.

    Raises:
        Conflict: The source has moved on since the plan, or somebody has begun to write to the target.
        Corrupt: The source is damaged.
        Internal: The rows are not what they were; nothing was written.
    """
    _LOG.debug("rescaling %s to %d partitions", plan.source, plan.partitions)
    work = WorkingCopy(folder, clock, chance, tell)
    work.copied_at(source, plan.batch_id)
    before = contents(work.checkpoint)
    if plan.starts_spark:
        repartition(work.place, plan.partitions, plan.state_format)
    elif not plan.same:
        shape = StateShape(rocksdb=False, partitions=plan.partitions, state_format=plan.state_format)
        rewrite(work.checkpoint, shape, folder / "stores", clock)
    if not plan.same:
        _note_partitions(work.checkpoint, plan.partitions)
    after = contents(work.checkpoint)
    prove_same(before, after, plan.source)
    made = work.published(target, Operation.RESCALE, (plan.source, plan.original), guard)
    _LOG.info("rescaled %s to %d partitions: %s", plan.source, plan.partitions, target.uri)
    return Rescaled(plan, made.batch_id, after)


def at_rest(source: Source, view: Storage) -> tuple[Checkpoint, int]:
    """What is in a checkpoint whose state is to be moved, and its batch.

    Raises:
        NotFound: There is no such checkpoint or savepoint.
        Conflict: A batch is under way in the checkpoint.
        Invalid: The query has no state.
    """
    found = read(view)
    if found.batch_id is None or not found.operators:
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
    return found, found.batch_id


def provider_of(found: Checkpoint, uri: str) -> str:
    """The class of the state store.

    Raises:
        Unsupported: It is not one that is known here.
    """
    provider = provider_class(found.confs)
    if provider not in PROVIDERS:
        raise Unsupported(
            "state of this store cannot be moved here",
            where=uri,
            found=provider,
            expected="RocksDB, or the memory provider",
        )
    return provider


def refuse_uncertain(found: Checkpoint, uri: str) -> None:
    """Refuse other partitions where Spark does not say that the hash of a key decides its own.

    Raises:
        Unsupported: It does not.
    """
    if found.confs.get(_STRICT, "true") != "true":
        raise Unsupported(
            "which partition a key belongs to is not certain in this checkpoint",
            where=uri,
            found=f"{_STRICT}={found.confs[_STRICT]}",
            expected="true, as every Spark since 3.3 fixes it",
            hint="keep the number of partitions that it has",
        )


def _note_partitions(checkpoint: Storage, partitions: int) -> None:
    """Correct what Spark's repartitioning leaves as it was: an operator's metadata of version 1."""
    for operator in read(checkpoint).operators:
        path = OperatorMetadataFile(operator.operator_id).render()
        if checkpoint.size(path) is None:
            continue
        noted = parse_operator(checkpoint.read(path), path).with_partitions(partitions)
        checkpoint.delete(layout.HadoopChecksum(path).render())
        checkpoint.write(path, noted.render(), replace=True)


def prove_same(before: Sequence[StateContent], after: Sequence[StateContent], where: str) -> None:
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
        found=f"operator {lost[0].state.operator_id}, {lost[0].state.label}: {lost[0].rows:,} rows",
        expected="the same rows before and after",
        hint="the source is as it was; please report this with the query's operators and Spark's version",
    )
