"""Creation of a checkpoint with state for new code: the plan, the conversion and its verification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.changes.column_changes import ColumnChange, OperatorConversion, refuse_merge, row_change
from holdfast.changes.converting import SharedConversion, StateConverter, Written, convert_part, merge_parts
from holdfast.changes.engine import ChangePlan, carry_out
from holdfast.changes.join_columns import JOIN_FORMAT, JoinConversion, join_change
from holdfast.changes.layouts import contents_of
from holdfast.changes.operator_matching import Matched, Wishes, described, match_operators
from holdfast.changes.rewriting import OperatorRewrite, StateShape, write_all
from holdfast.changes.state_columns import OperatorColumns, columns_of
from holdfast.changes.working_copy import MaintenanceCommit, SharedWork, WorkingCopy, begin
from holdfast.checkpoints.checkpoint import ProgressCallback, Tree
from holdfast.checkpoints.naming import plan_note
from holdfast.checkpoints.state.contents import ContentSum, StateContent
from holdfast.checkpoints.state.states import OperatorShape, operator_states
from holdfast.clock import now_ms
from holdfast.errors import Internal, Unsupported
from holdfast.formats.logs.batch_logs import CommitLog, parse_commit
from holdfast.formats.logs.notes import PLAN_NOTE, PlanNote, QueryPlan
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.operators import KEYED_VARIABLES, STREAM_JOIN, operator_names
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as, json_spread
from holdfast.layout import Log, LogFile, OperatorMetadataFile, OwnFile, SchemaFile
from holdfast.model import PlanChange
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.ownership.usage import CheckpointUsage
from holdfast.quantities import counted
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.planning import changing
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.spread import SharedCheckpoint, Tasks
from holdfast.savepoints.verdicts import fits, text_of
from holdfast.storage.port import Storage
from holdfast.storage.remote import hadoop_address


@dataclass(frozen=True, slots=True)
class OperatorChange(JsonShape):
    """The change of an operator's state.

    Attributes:
        change: `kept`, `changed`, `inserted` or `removed`.
        before: The operator in the state; None for an inserted one.
        after: The operator in the new code; None for a removed one.
        columns: The change of each column, if the rows change.
    """

    change: str
    before: str | None
    after: str | None
    columns: tuple[ColumnChange, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """The conversion of one operator.

    Attributes:
        matched: The operator in the state and in the new code.
        rows: The conversion of the rows; None if there are no rows, or if they are moved unchanged.
    """

    matched: Matched
    rows: OperatorConversion | JoinConversion | None = None

    @property
    def moved(self) -> bool:
        """Return whether the rows of the operator stay unchanged."""
        both = self.matched.old is not None and self.matched.new is not None
        return both and (self.rows is None or self.rows.rows_stay)

    def describe(self) -> OperatorChange:
        """Return a description of the operator's change."""
        old, new = self.matched.old, self.matched.new
        before = None if old is None else described(old)
        after = None if new is None else described(new)
        if old is None or new is None:
            return OperatorChange("inserted" if old is None else "removed", before, after)
        columns = () if self.rows is None else self.rows.columns()
        if all(column.before == column.after for column in columns):
            columns = ()
        moves = isinstance(self.rows, JoinConversion) and not self.rows.same_stores
        return OperatorChange("changed" if columns or moves else "kept", before, after, columns)


@dataclass(frozen=True, slots=True)
class EvolutionPlan(ChangePlan, JsonShape):
    """The plan of a conversion of state for new code.

    Attributes:
        target: The new code.
        operators: The change of each operator's state.
        changes: The other differences of the new code that change the meaning of the state.
        merge: Whether rows that get the same key are merged.
        steps: The conversion of each operator.
        state_format: The state-checkpoint format.
        join_format: The new format of the state of joins; null if it stays.
        usage: The evidence of queries that may be using the checkpoint, if collected; a person must confirm
            that none is.

    Example:
        from pyspark.sql import functions as F

        amount = F.col("amount").cast("long")
        customers = events.groupBy("customer")
        spending = customers.agg(F.count("*"), F.sum(amount), F.max("amount").alias("largest"))
        plan = hf.plan_evolve("savepoints@daily", to=spending.writeStream.outputMode("update"))
        assert [operator.change for operator in plan.operators] == ["changed"]
        assert plan.checkpoint.endswith("checkpoints/visits-evolved")
    """

    target: str
    operators: tuple[OperatorChange, ...]
    changes: tuple[PlanChange, ...]
    merge: bool
    steps: tuple[OperatorStep, ...] = field(metadata=NOT_IN_JSON)
    state_format: int = 1
    join_format: str | None = None
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def operation(self) -> RestoreKind:
        """The operation: `evolve`."""
        return RestoreKind.EVOLVE


def operator_columns(
    shapes: Sequence[OperatorShape],
    plan: QueryPlan | None,
    confs: Mapping[str, str],
    where: str,
    stored: Mapping[int, str | None] | None = None,
) -> tuple[OperatorColumns, ...]:
    """Return the operators of a query with the columns of their states.

    Args:
        shapes: Spark's metadata of each operator.
        plan: The plan of the query; None if unknown.
        confs: The settings that are pinned in the checkpoint.
        where: The checkpoint, for messages.
        stored: The names of keyed operators as stored in the state, used if the plan is unknown.
    """
    stateful = [] if plan is None else [step.text for step in plan.steps if step.stateful]
    texts: list[str | None] = list(stateful) if len(stateful) == len(shapes) else [None] * len(shapes)
    keyed = [shape.operator_id for shape in shapes if set(shape.variables) == KEYED_VARIABLES]
    given = () if plan is None else plan.operators
    names: dict[int, str | None] = (
        dict(zip(keyed, given, strict=True)) if len(given) == len(keyed) else dict.fromkeys(keyed)
    )
    if plan is None and stored is not None:
        names = {number: stored.get(number) for number in keyed}
    called = operator_names({shape.operator_id: shape.kind for shape in shapes}, names)
    return tuple(
        columns_of(shape, called[shape.operator_id], text, confs, where)
        for shape, text in zip(sorted(shapes, key=lambda shape: shape.operator_id), texts, strict=True)
    )


def steps_for(
    old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], wishes: Wishes, where: str
) -> tuple[OperatorStep, ...]:
    """Return the conversion of each operator.

    Args:
        old: The operators of the saved state.
        new: The operators of the new code.
        wishes: The options of the user.
        where: The saved state, for messages.

    Raises:
        Invalid: The matching of operators or columns is ambiguous, or a new column has no initial value.
        Unsupported: The state of an operator cannot be converted.
    """
    steps = []
    for matched in match_operators(old, new, wishes, where):
        before, after = matched.old, matched.new
        if before is None or after is None:
            steps.append(OperatorStep(matched))
        elif before.evolves and after.evolves:
            steps.append(OperatorStep(matched, row_change(before, after, wishes, where)))
        elif before.kind == after.kind == STREAM_JOIN and before.shape.stores and after.shape.stores:
            steps.append(OperatorStep(matched, join_change(before, after, wishes, where)))
        else:
            _refuse_other_rows(before, after, where)
            steps.append(OperatorStep(matched))
    labels = [label for operator in (*old, *new) for label in operator.labels]
    wishes.refuse_unused([*labels, *(operator.named.display_name for operator in (*old, *new))])
    return tuple(steps)


def _refuse_other_rows(old: OperatorColumns, new: OperatorColumns, where: str) -> None:
    """Check that the schema is equal for rows that can only be moved unchanged.

    transformWithState is exempt, because Spark, and Holdfast for keyed operators, read such state with a new
    schema.
    """
    if old.shape.variables or new.shape.variables:
        return
    import json

    stores = {store.name: store for store in new.shape.stores}
    for store in old.shape.stores:
        there = stores.get(store.name)
        families = {family.name: family for family in (there.families if there is not None else ())}
        for family in store.families:
            now = families.get(family.name)
            pairs = (
                []
                if now is None
                else [(family.key_schema, now.key_schema), (family.value_schema, now.value_schema)]
            )
            for before, after in pairs or [("{}", "{}")]:
                one, other = json.loads(before), json.loads(after)
                if now is None or not fits(other, one):
                    raise Unsupported(
                        f"the state of {old.named.operator_kind} cannot be converted to a different schema",
                        code="HF-E7021",
                        where=f"{where}, operator {old.named.label}",
                        found=f"({text_of(one)}), and ({text_of(other)}) in the new code"
                        if now is not None
                        else f"{store.name}, which the new code does not have",
                        expected="the same schema; only aggregations, session windows, deduplication and "
                        "joins can change",
                        hint=f"leave this operator unchanged, or drop its state with --drop {old.number}",
                    )


# A function that checks the checkpoint before its publication; it raises an error if the new code cannot
# continue.
Accepts = Callable[[Storage], None]

_IDS: Final = "stateUniqueIds"


@dataclass(frozen=True, slots=True)
class NewCode:
    """The operators of the new code.

    Attributes:
        state: A checkpoint with Spark's metadata and schemas of the operators.
        plan: The plan of the new code; None if unknown.
    """

    state: Storage
    plan: QueryPlan | None


@dataclass(frozen=True, slots=True)
class Evolved(JsonShape):
    """A checkpoint from which new code can continue.

    Attributes:
        plan: The executed plan.
        batch_id: The newest batch of the new checkpoint, which is that of the source.
        before: The content of each state before the conversion.
        states: The content of each state after the conversion.
        merged: The number of rows that were merged into a different row with the same key.

    Example:
        from pyspark.sql import functions as F

        amount = F.col("amount").cast("long")
        customers = events.groupBy("customer")
        spending = customers.agg(F.count("*"), F.sum(amount), F.max("amount").alias("largest"))
        evolved = hf.evolve(
            "savepoints@daily", "checkpoints/spending", to=spending.writeStream.outputMode("update")
        )
        assert (evolved.batch_id, evolved.rows, evolved.merged) == (11, 10, 0)
    """

    plan: EvolutionPlan = field(metadata=json_spread())
    batch_id: int
    before: tuple[StateContent, ...] = field(metadata=json_as("states_before"))
    states: tuple[StateContent, ...]
    merged: int = 0

    @property
    def checkpoint(self) -> str:
        """The address of the checkpoint."""
        return self.plan.checkpoint

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows of all states."""
        return sum(state.rows for state in self.states)


def apply_evolution(
    source: ChangeSource,
    target: Storage,
    plan: EvolutionPlan,
    code: NewCode,
    folder: Path,
    *,
    shape: StateShape,
    accepts: Accepts = lambda _: None,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
    shared: SharedWork | None = None,
) -> Evolved:
    """Create the planned checkpoint.

    The source is copied into a working directory, by hard links if possible; the converted state is written
    next to the copy, read back, and checked with the new code. Only then is the target written, with its
    `metadata` last.

    Cost: reads all state three times and writes it once. If grouping columns are dropped, the rows of 32
    partitions at a time are held in memory to find equal keys.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint to create.
        plan: The plan to execute.
        code: The state of the new code's operators.
        folder: A local working directory, which the caller deletes.
        shape: The layout of the state, which does not change.
        accepts: A final check of the checkpoint.
        tell: The progress callback, called with the work done, the total, and the current step.
        guard: The guard of the source, if that is a checkpoint.
        shared: The executors that convert the state, and the working directory that they reach.

    Raises:
        Invalid: Several rows get the same key, and merging was not requested.
        Unsupported: Rows cannot be merged exactly, or a row cannot be converted.
        Conflict: The source has advanced since the plan, or the target is no longer free.
        Corrupt: The source is damaged.
        Internal: The written state differs from the expected one; nothing was created.
    """
    step = ConvertState(plan, code, shape, accepts)
    purpose = changing("nothing was migrated", "state migrate")
    [evolved] = carry_out(
        source,
        target,
        plan,
        [step],
        RestoreKind.EVOLVE,
        purpose,
        folder,
        guard=guard,
        tell=tell,
        shared=shared,
    )
    return evolved


@dataclass(frozen=True, slots=True)
class ConvertState:
    """The step that converts the state of operators for new code.

    Attributes:
        plan: The plan of the conversion.
        code: The state of the new code's operators.
        shape: The layout of the state, which does not change.
        accepts: A final check of the copy.
    """

    plan: EvolutionPlan
    code: NewCode
    shape: StateShape
    accepts: Accepts = lambda _: None
    name: str = "code"

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> Evolved:
        """See `Step`; unchanged rows are compared with the old ones, converted rows with the written ones."""
        plan = self.plan
        before = contents_of(work, plan.batch_id, tell)
        made = work.beside(f"{folder.name}-evolved")
        evolution = _Evolution(
            work.checkpoint, made, plan, self.code, folder / "stores", self.shape, work.tasks
        )
        written = evolution.written(tell)
        work.checkpoint = made
        work.end_at(plan.batch_id)
        after = contents_of(work, plan.batch_id, tell)
        _prove(plan, before, after, written)
        self.accepts(work.checkpoint)
        merged = sum(operator.merged for operator in written.values())
        return Evolved(plan, plan.batch_id, before, after, merged)


def _prove(
    plan: EvolutionPlan,
    before: tuple[StateContent, ...],
    after: tuple[StateContent, ...],
    written: Mapping[int, Written],
) -> None:
    """Check that the copy has the expected content: moved rows unchanged, converted rows as written.

    Raises:
        Internal: A state has unexpected content.
    """
    for step in plan.steps:
        new, old = step.matched.new, step.matched.old
        if new is None:
            continue
        found = [state for state in after if state.state.operator_id == new.number]
        rows = sum(state.rows for state in found)
        if step.moved and old is not None:
            kept = [state for state in before if state.state.operator_id == old.number]
            wanted = {(state.state.label, state.rows, state.digest) for state in kept if state.rows}
            right = wanted == {(state.state.label, state.rows, state.digest) for state in found if state.rows}
        elif old is None:
            right = rows == 0
        elif isinstance(step.rows, JoinConversion):
            saved = [state for state in before if state.state.operator_id == old.number]
            right = _is_converted_join(step.rows, saved, found, written[new.number].states)
        else:
            sums, merged = written[new.number].sums, written[new.number].merged
            had = sum(state.rows for state in before if state.state.operator_id == old.number)
            digests = {(state.rows, state.digest) for state in found if state.rows}
            right = had == rows + merged and digests == ({(sums.rows, sums.digest())} if sums.rows else set())
        if not right:
            raise Internal(
                "verification failed, so nothing was written: the rows of a state are wrong after the "
                "conversion",
                code="HF-E9009",
                where=plan.source,
                found=f"operator {new.named.label}: {counted(rows, 'row')}",
                hint="please report this with the query's operators; the source is unchanged",
            )


def _is_converted_join(
    change: JoinConversion,
    before: Sequence[StateContent],
    after: Sequence[StateContent],
    written: Mapping[str, ContentSum],
) -> bool:
    """Return whether every state of a join has the written rows, as many as before, and the same counts."""
    old = {state.state.label: state for state in before if state.rows}
    new = {state.state.label: state for state in after if state.rows}
    return old.keys() == new.keys() and all(
        state.rows == old[label].rows
        and label in written
        and (state.rows, state.digest) == (written[label].rows, written[label].digest())
        and (not change.keeps(label) or state.digest == old[label].digest)
        for label, state in new.items()
    )


class _Evolution:
    """A writer of a checkpoint with the converted state, next to a copy of the old one."""

    def __init__(
        self,
        old: Storage,
        made: Storage,
        plan: EvolutionPlan,
        code: NewCode,
        folder: Path,
        shape: StateShape,
        tasks: Tasks | None,
    ) -> None:
        self._old = old
        self._made = made
        self._plan = plan
        self._code = code
        self._folder = folder
        self._shape = shape
        self._tasks = tasks
        self._now_ms = now_ms()

    def written(self, tell: ProgressCallback | None) -> dict[int, Written]:
        """Write all files, and return the written rows of each operator."""
        self._folder.mkdir(parents=True)
        self._copy_logs()
        for step in self._plan.steps:
            if step.moved:
                self._copy_state(step)
        join_format = self._plan.join_format
        batch = begin(self._made, None if join_format is None else {JOIN_FORMAT: join_format})
        steps = {step.matched.new.number: step for step in self._plan.steps if step.matched.new is not None}
        written = self._moved(batch, [number for number, step in steps.items() if step.moved], tell)
        for number, step in steps.items():
            if not step.moved or step.rows is not None:
                self._note_operator(number)
        converted = {number: step.rows for number, step in steps.items() if not step.moved}
        written |= self._converted(batch, converted, tell)
        self._note_plan(self._plan.batch_id)
        batch.commit(
            {number: operator.ids for number, operator in sorted(written.items())}
            if self._shape.state_format > 1
            else None
        )
        return written

    def _moved(
        self, batch: MaintenanceCommit, numbers: Sequence[int], tell: ProgressCallback | None
    ) -> dict[int, Written]:
        """Write the state of operators with unchanged rows, as the next version."""
        operators = {operator.operator_id: operator for operator in batch.found.operators}
        states = {operator.operator_id: operator for operator in operator_states(self._made, batch.before)}
        writers = [
            OperatorRewrite(batch, operators[number], states[number], self._shape, self._folder, self._now_ms)
            for number in numbers
        ]
        write_all(writers, batch, self._shape, self._now_ms, self._tasks, tell)
        return {writer.operator.operator_id: Written(writer.ids()) for writer in writers}

    def _converted(
        self,
        batch: MaintenanceCommit,
        conversions: Mapping[int, OperatorConversion | JoinConversion | None],
        tell: ProgressCallback | None,
    ) -> dict[int, Written]:
        """Write the converted state of operators, which may have no rows."""
        before, format_, where = self._plan.batch_id, self._shape.state_format, self._plan.source
        converter = StateConverter(self._old, before, batch, format_, self._now_ms, where)
        slots = 1 if self._tasks is None else self._tasks.slots
        parts = [
            part for number, rows in conversions.items() for part in converter.parts(number, rows, slots)
        ]
        if self._tasks is None:
            found = []
            for done, part in enumerate(parts):
                if tell is not None:
                    tell(done, len(parts), "converting state")
                found.append(converter.write(part, self._folder))
        else:
            shared = SharedConversion(
                SharedCheckpoint.of(self._old, before),
                SharedCheckpoint.of(self._made, batch.before),
                format_,
                self._now_ms,
                where,
            )
            found = self._tasks.run(partial(convert_part, shared), parts, tell, "converting state")
        pairs = list(zip(parts, found, strict=True))
        written = {}
        for number, rows in conversions.items():
            made = merge_parts([pair for pair in pairs if pair[0].operator_id == number])
            if made.merged and isinstance(rows, OperatorConversion) and not rows.merges:
                raise refuse_merge(rows, where, made.merged, made.example)
            written[number] = made
        return written

    def _copy_logs(self) -> None:
        """Copy all files except state; commits name only state files of remaining operators, renumbered."""
        gone = {
            layout.operator_note(step.matched.old.named.user_name)
            for step in self._plan.steps
            if step.matched.new is None
            and step.matched.old is not None
            and step.matched.old.named.user_name is not None
        }
        for path, place in Tree(self._old).places():
            if path.startswith(f"{layout.STATE}/"):
                continue
            of = layout.parse(place.of) if isinstance(place, layout.HadoopChecksumFile) else place
            if isinstance(of, LogFile) and of.log is Log.COMMITS:
                if of is place:
                    self._made.write(path, self._renumbered(self._old.read(path), path))
                continue
            if path.startswith(f"{layout.OWN}/") and path.rpartition("/")[2] in gone:
                continue
            self._made.write(path, self._old.read(path))

    def _renumbered(self, data: bytes, path: str) -> bytes:
        """Return a commit with the state files of moved operators under their numbers in the new code.

        The state of the newest batch may consist of files of earlier batches, so all commits are renumbered.
        """
        commit = parse_commit(data, path)
        known = commit.state_ids
        if known is None:
            return data
        ids = {
            step.matched.new.number: known[step.matched.old.number]
            for step in self._plan.steps
            if step.moved
            and step.matched.new is not None
            and step.matched.old is not None
            and step.matched.old.number in known
        }
        named = {str(number): [list(stores) for stores in parts] for number, parts in ids.items()}
        return CommitLog(commit.version, {**commit.fields, _IDS: named}, ids).render()

    def _copy_state(self, step: OperatorStep) -> None:
        """Copy all files of an operator, under its number in the new code."""
        if step.matched.old is None or step.matched.new is None:
            return
        before, after = (f"{layout.STATE}/{each.number}/" for each in (step.matched.old, step.matched.new))
        for path, place in Tree(self._old).places():
            if not path.startswith(before):
                continue
            there = f"{after}{path.removeprefix(before)}"
            if isinstance(place, OperatorMetadataFile):
                metadata = parse_operator(self._old.read(path), path).renumbered(step.matched.new.number)
                self._made.write(there, metadata.moved_to(hadoop_address(self._made.uri)).render())
            elif not (path.endswith(".crc") and f"/{layout.OPERATOR_METADATA}/" in path):
                self._made.copy(path, there, origin=self._old)

    def _note_operator(self, number: int) -> None:
        """Replace an operator's metadata and schemas with those of the new code."""
        folder = f"{layout.STATE}/{number}/"
        for path, place in list(Tree(self._made).places()):
            if path.startswith(folder) and isinstance(place, (SchemaFile, OperatorMetadataFile)):
                self._made.delete(path)
        for path, place in Tree(self._code.state).places():
            if not path.startswith(folder):
                continue
            data = self._code.state.read(path)
            if isinstance(place, OperatorMetadataFile):
                metadata = parse_operator(data, path)
                self._made.write(path, metadata.moved_to(hadoop_address(self._made.uri)).render())
            elif isinstance(place, SchemaFile):
                self._made.write(path, data)

    def _note_plan(self, batch_id: int) -> None:
        if self._code.plan is None:
            return
        path = OwnFile(PLAN_NOTE).render()
        now = (plan_note(self._made) or PlanNote()).with_plan(self._code.plan, batch_id)
        self._made.delete(layout.HadoopChecksumFile(path).render())
        self._made.write(path, now.render().encode(), replace=True)
