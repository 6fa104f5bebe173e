"""The engine of all changes: it copies the source, changes the copy, verifies each step, and publishes.

A change never writes to its source. `state_at_rest` reads the source, each step plans its work from it, and
`carry_out` applies the steps to a working copy. A step whose verification fails raises an error, and nothing
is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

from holdfast import layout
from holdfast.changes.rewriting import StateShape
from holdfast.changes.working_copy import SharedWork, WorkingCopy
from holdfast.checkpoints.checkpoint import CheckpointReport, ProgressCallback, StatefulOperator, read
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
from holdfast.savepoints.restoring import RestoreKind, free, require_newest_of_flow
from holdfast.storage.port import Storage, full

ReportT_co = TypeVar("ReportT_co", covariant=True)

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The base class of all plans.

    Attributes:
        source: The checkpoint or savepoint.
        original: The checkpoint; for a savepoint, the checkpoint of which it was taken.
        checkpoint: The checkpoint to create.
        batch_id: The batch whose state is used.
        query_id: The id of the query, which stays the same.
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
        plan: The executed plan.
        batch_id: The newest batch of the new checkpoint, which is that of the source.
        before: The content of each state before the change.
        after: The content of each state after the change, which is the same.
    """

    plan: ChangePlan = field(metadata=json_spread())
    batch_id: int
    before: tuple[StateContent, ...] = field(metadata=NOT_IN_JSON)
    after: tuple[StateContent, ...] = field(metadata=json_as("states"))

    @property
    def checkpoint(self) -> str:
        """The address of the new checkpoint."""
        return self.plan.checkpoint

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows of all states."""
        return sum(state.rows for state in self.after)


@dataclass(frozen=True, slots=True)
class StateAtRest:
    """A checkpoint or savepoint that is the source of a change.

    Attributes:
        source: The address that the user gave.
        view: A view of the source as a checkpoint.
        original: The address of the checkpoint; for a savepoint, that of the checkpoint of which it was
            taken.
        found: The content of the checkpoint.
        batch_id: The batch of the state.
        shape: The layout of the state.
        partitions: The number of partitions of each operator, except operators whose whole state is in one
            task.
    """

    source: ChangeSource
    view: Storage
    original: str
    found: CheckpointReport
    batch_id: int
    shape: StateShape
    partitions: tuple[int, ...]

    def common(self, target: Storage) -> tuple[str, str, str, int, str]:
        """Return the fields that all plans have."""
        return self.source.uri, self.original, target.uri, self.batch_id, self.found.query_id

    def refuse_uncertain(self) -> None:
        """Check that all keys are partitioned by their own hash, so that partitions can change.

        Raises:
            Unsupported: Some keys are not partitioned by their own hash.
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
        """Return the error if the partitions of keys cannot be computed without Spark; otherwise None.

        Cost: reads the schemas of the states.
        """
        states = {operator.operator_id: operator for operator in operator_states(self.view, self.batch_id)}
        for operator in self.moving(partitions):
            where = full(self.source.uri, f"{layout.STATE}/{operator.operator_id}")
            if states[operator.operator_id].values.avro:
                return Unsupported(
                    "the partitions of keys cannot be computed for state in Avro encoding",
                    code="HF-E7017",
                    where=f"{where}, operator {operator.named.label}",
                    hint="keep the number of partitions, or let Spark move the keys with"
                    " `holdfast rescale CHECKPOINT --partitions N`",
                )
            for state in states[operator.operator_id].declared_codecs():
                if state.schema is None:  # no rows, or the reader of the rows reports the error
                    continue
                try:
                    KeyPartitions(operator, state, where)
                except Unsupported as error:
                    return error
        return None


def state_at_rest(
    source: ChangeSource, target: Storage, operation: RestoreKind, *, needs_state: bool = True
) -> StateAtRest:
    """Read the source of a change, and check the target; changes nothing and reads no rows.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint to create.
        operation: The operation that creates it.
        needs_state: Whether a query without state is an error.

    Raises:
        NotFound: The checkpoint or savepoint does not exist.
        Conflict: The target exists, a batch of the checkpoint is uncommitted, or the target is the version
            of a pipeline's flow whose table may have later batches.
        Invalid: The query has no state.
        Unsupported: The state store is not supported.
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
            "the checkpoint has an uncommitted batch, which is running or will run at the next start",
            code="HF-E4003",
            where=source.uri,
            found=f"batch {found.uncommitted}",
            expected=f"no uncommitted batch after batch {found.batch_id}",
            hint="stop the query between two batches with `holdfast stop JOB`, or run it once with the"
            " trigger `availableNow`; or take a savepoint and change the savepoint, but then a sink may get"
            " the rows of this batch twice",
        )
    require_newest_of_flow(target, original, found.batch_id, found.query_id)
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
    """A step of a change."""

    @property
    def name(self) -> str:
        """The name of the step in plans and reports."""

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> ReportT_co:
        """Change the working copy and verify the result.

        Args:
            work: The working copy. Its newest committed batch is the batch of the change, before and after
                this step.
            folder: An empty directory for this step only.
            tell: The progress callback, called with the work done, the total, and the current step.

        Raises:
            Internal: The verification failed.
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
    table: Storage | None = None,
    shared: SharedWork | None = None,
) -> list[ReportT_co]:
    """Apply steps to a copy of the source, and publish the copy as a new checkpoint.

    The source is copied by hard links if possible. The target is written after all verifications, with its
    `metadata` last.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint to create.
        plan: The plan of the change.
        steps: The steps, in order.
        operation: The operation that creates the checkpoint.
        purpose: The purpose of the copy, for messages.
        folder: A local working directory, which the caller deletes.
        guard: The guard of the source; None for a savepoint.
        tell: The progress callback, called with the work done, the total, and the current step.
        table: The directory of a new table, whose log is prepared for the query.
        shared: The executors that move state, and the working directory that they reach.

    Returns:
        The report of each step.

    Raises:
        Conflict: The source has advanced since the plan or is in use, or the target is no longer empty.
        Corrupt: The source is damaged.
        Internal: A verification failed; nothing was written.
    """
    work = WorkingCopy(folder, purpose, tell, shared)
    work.copied_at(source, plan.batch_id)
    reports = []
    for number, step in enumerate(steps):
        with work.standing_for(plan.source):
            own = folder / f"step-{number}"
            own.mkdir()
            reports.append(step.apply(work, own, tell))
    work.published(target, operation, (plan.source, plan.original), guard, table=table)
    return reports
