"""The engine of every change: copy the source, change the copy, prove each step, publish the result.

A change never writes to its source. `state_at_rest` reads the source, each step makes its plan of it, and
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
from holdfast.config.units import counted
from holdfast.errors import Conflict, Internal, Invalid, Unsupported
from holdfast.formats.providers import known_provider
from holdfast.json_shapes import NOT_IN_JSON, in_json, json_as, json_spread
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.planning import Purpose
from holdfast.savepoints.restoring import RestoreKind, free
from holdfast.storage.port import Storage, full

ReportT_co = TypeVar("ReportT_co", covariant=True)

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The plan of a change, as every kind of change has it.

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
class StateReport:
    """A checkpoint with the rows of its source, in a different layout.

    Attributes:
        plan: The plan that was carried out.
        batch_id: The newest batch in it: that of the source.
        before: What each state held.
        after: What each state holds: the same.
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
                code="HF-E7016",
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
                    code="HF-E7017",
                    where=where,
                    found=f"operator {operator.named.label}",
                    hint="keep the number of partitions, or let Spark move them with `holdfast rescale`",
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
    """Look at state that is to be moved, and where to; changes nothing and reads no rows.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint that is to be made.
        operation: What makes it.
        needs_state: Whether a query without state is refused.

    Raises:
        NotFound: The checkpoint or savepoint does not exist.
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
            code="HF-E2070",
            where=source.uri,
            found="no committed batch" if found.batch_id is None else "a query without stateful operators",
            hint="restore it as it is; a query without state takes the number of the session that starts it",
        )
    if source.savepoint_id is None and found.uncommitted is not None:
        raise Conflict(
            "a batch is planned and not committed: it runs now, or will run again",
            code="HF-E4003",
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


def require_same_rows(before: Sequence[StateContent], after: Sequence[StateContent], where: str) -> None:
    """Require that every state has the rows that it had.

    Raises:
        Internal: A state has not.
    """
    lost = [one for one in before if one not in after] or [one for one in after if one not in before]
    if not lost:
        return
    raise Internal(
        "the rows of a state have changed, and nothing was written",
        code="HF-E9003",
        where=where,
        found=f"{lost[0].state.shown}: {counted(lost[0].rows, 'row')}",
        expected="the same rows before and after",
        hint="the source is as it was; please report this with the query's operators and Spark's version",
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
            tell: Called with what is done, what there is in all, and what is being done.

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

    The source is copied by hard links where that is possible. The target is written after all proofs, its
    `metadata` last.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint that is created.
        plan: The plan of the change.
        steps: The steps, in their order.
        operation: The operation that creates the checkpoint.
        purpose: What the copy is made for, for messages.
        folder: A local directory to work in; the caller removes it.
        guard: The guard of the source; None for a savepoint.
        tell: Called with what is done, what there is in all, and what is being done.

    Returns:
        The report of each step.

    Raises:
        Conflict: The source has moved on since the plan or is in use, or the target is not empty any more.
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
