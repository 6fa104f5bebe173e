"""The engine of every change: copy the source, change the copy, prove each step, publish the result.

A change never writes to its source. `state_at_rest` reads the source, each step plans its work from it, and
`carry_out` applies the steps to a working copy. A step raises if its proof fails, and nothing is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

from holdfast import layout
from holdfast.changes.rewriting import StateShape
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import Checkpoint, ProgressCallback, StatefulOperator, read
from holdfast.checkpoints.state.contents import StateContent
from holdfast.checkpoints.state.key_partition import KeyPartitions
from holdfast.checkpoints.state.states import operator_states
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.errors import Conflict, Internal, Invalid, Unsupported
from holdfast.formats.providers import known_provider
from holdfast.json_shapes import NOT_IN_JSON, in_json, json_as, json_spread
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.quantities import counted
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.planning import Purpose
from holdfast.savepoints.restoring import RestoreKind, free
from holdfast.storage.port import Storage, full

ReportT_co = TypeVar("ReportT_co", covariant=True)

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The common part of every plan.

    Attributes:
        source: The checkpoint or savepoint.
        original: The checkpoint; for a savepoint, the one that it was taken of.
        checkpoint: The checkpoint to create.
        batch_id: The batch whose state is used.
        query_id: The query, which stays the same.
    """

    source: str
    original: str = field(metadata=NOT_IN_JSON)
    checkpoint: str
    batch_id: int = field(metadata=json_as("from_batch"))
    query_id: str


@dataclass(frozen=True, slots=True)
class StateReport:
    """A checkpoint with the rows of its source, in a different layout.

    Attributes:
        plan: The plan that was carried out.
        batch_id: The newest batch in it: that of the source.
        before: The content of each state before.
        after: The content of each state after: the same.
    """

    plan: ChangePlan = field(metadata=json_spread())
    batch_id: int
    before: tuple[StateContent, ...] = field(metadata=NOT_IN_JSON)
    after: tuple[StateContent, ...] = field(metadata=json_as("states"))

    @property
    def checkpoint(self) -> str:
        """The checkpoint's address."""
        return self.plan.checkpoint

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows of all states."""
        return sum(state.rows for state in self.after)


@dataclass(frozen=True, slots=True)
class StateAtRest:
    """A checkpoint or savepoint whose state is to be moved.

    Attributes:
        source: The address that the user gave.
        view: A view of it as a checkpoint.
        original: The address of the checkpoint; for a savepoint, of the one that it was taken of.
        found: Its content.
        batch_id: Its batch.
        shape: The layout of its state.
        partitions: The number of partitions of each operator, except those that one task has all of.
    """

    source: ChangeSource
    view: Storage
    original: str
    found: Checkpoint
    batch_id: int
    shape: StateShape
    partitions: tuple[int, ...]

    def common(self, target: Storage) -> tuple[str, str, str, int, str]:
        """Return the fields of every plan."""
        return self.source.uri, self.original, target.uri, self.batch_id, self.found.query_id

    def refuse_uncertain(self) -> None:
        """Refuse a change of partitions if keys are not always partitioned by their own hash.

        Raises:
            Unsupported: They are not.
        """
        if self.found.confs.get(_STRICT, "true") != "true":
            raise Unsupported(
                "the partitions of keys cannot be computed with the settings of this checkpoint",
                code="HF-E7016",
                where=self.source.uri,
                found=f"{_STRICT}={self.found.confs[_STRICT]}",
                expected="true, the default since Spark 3.3",
                hint="keep the current number of partitions",
            )

    def moving(self, partitions: int) -> list[StatefulOperator]:
        """Return the operators whose keys move to different partitions."""
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
                    "the partition of keys in Avro encoding cannot be computed",
                    code="HF-E7017",
                    where=where,
                    found=f"operator {operator.named.label}",
                    hint="keep the number of partitions, or let Spark move the keys with `holdfast rescale`",
                )
            for state in states[operator.operator_id].declared_codecs():
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
    """Read the state to be moved, and check the target; changes nothing and reads no rows.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint to create.
        operation: The operation that creates it.
        needs_state: Whether a query without state is refused.

    Raises:
        NotFound: The checkpoint or savepoint does not exist.
        Conflict: The target exists, or a batch is under way in the checkpoint.
        Invalid: The query has no state.
        Unsupported: Its state store is not supported.
    """
    view, original = source.view()
    free(target, source.uri, operation)
    found = read(view)
    if found.batch_id is None or (needs_state and not found.operators):
        raise Invalid(
            "the source has no state to move",
            code="HF-E2070",
            where=source.uri,
            found="no committed batch" if found.batch_id is None else "a query without stateful operators",
            hint="run the query until it commits a batch"
            if found.batch_id is None
            else "set spark.sql.shuffle.partitions in the session: without state no partitions are stored",
        )
    if source.savepoint_id is None and found.uncommitted is not None:
        raise Conflict(
            "a planned batch is not committed: it is running, or will run at the next start",
            code="HF-E4003",
            where=source.uri,
            found=f"batch {found.uncommitted}",
            expected=f"no planned batch after batch {found.batch_id}",
            hint="stop the query between two batches with `holdfast stop`, or run it once with the trigger "
            "`availableNow`; or take a savepoint and change the savepoint, after which a sink may get "
            "rows of this batch twice",
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


def require_same_rows(before: Sequence[StateContent], after: Sequence[StateContent], where: str) -> None:
    """Check that every state has the same rows.

    Raises:
        Internal: A state has different rows.
    """
    lost = [one for one in before if one not in after] or [one for one in after if one not in before]
    if not lost:
        return
    raise Internal(
        "verification failed, so nothing was written: the rows of a state have changed",
        code="HF-E9003",
        where=where,
        found=f"{lost[0].state.shown}: {counted(lost[0].rows, 'row')}",
        expected="the same rows before and after",
        hint="please report this with the query's operators and Spark's version; the source is unchanged",
    )


class Step(Protocol[ReportT_co]):
    """One step of a change."""

    @property
    def name(self) -> str:
        """The name of the step in plans and reports."""

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> ReportT_co:
        """Change the working copy and prove the result.

        Args:
            work: The copy. Its newest committed batch is the batch of the change, before and after.
            folder: An empty directory for the step alone.
            tell: Called with the progress done, the total, and the current step.

        Raises:
            Internal: The proof failed.
        """


def carry_out(
    source: ChangeSource,
    target: Storage,
    plan: ChangePlan,
    steps: Sequence[Step[ReportT_co]],
    operation: RestoreKind,
    purpose: Purpose,
    folder: Path,
    *,
    guard: CheckpointGuard | None,
    tell: ProgressCallback | None,
) -> list[ReportT_co]:
    """Apply steps to a copy of the source, and publish the copy as a new checkpoint.

    The source is copied by hard links if possible. The target is written after all proofs, its `metadata`
    last.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint that is created.
        plan: The plan of the change.
        steps: The steps, in their order.
        operation: The operation that creates the checkpoint.
        purpose: The purpose of the copy, for messages.
        folder: A local working directory; the caller removes it.
        guard: The guard of the source; None for a savepoint.
        tell: Called with the progress done, the total, and the current step.

    Returns:
        The report of each step.

    Raises:
        Conflict: The source has advanced since the plan or is in use, or the target is not empty any more.
        Corrupt: The source is damaged.
        Internal: A proof failed; nothing was written.
    """
    work = WorkingCopy(folder, purpose, tell)
    work.copied_at(source, plan.batch_id)
    reports = []
    for number, step in enumerate(steps):
        with work.standing_for(plan.source):
            own = folder / f"step-{number}"
            own.mkdir()
            reports.append(step.apply(work, own, tell))
    work.published(target, operation, (plan.source, plan.original), guard)
    return reports
