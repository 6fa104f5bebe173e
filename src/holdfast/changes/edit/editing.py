"""Edits of a savepoint's state: the plan of the change, and the new savepoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.at_rest.state_reader import named_operators, parse_key, pick
from holdfast.changes.edit.changed_savepoint import ChangedSavepoint, derive_changed
from holdfast.changes.edit.deciders import BySql, ByTable, NoChange, Selection, checked
from holdfast.changes.edit.editable_state import (
    PLACE,
    EditableState,
    NamedColumns,
    RowsView,
    Values,
    editable,
)
from holdfast.changes.edit.keyed_edits import KeyedEdit, keyed_table
from holdfast.changes.edit.request import EDIT, Audit, Edit, given_value
from holdfast.changes.edit.row_changes import Decider, EditedRow, EditTally, PartitionEdit, key_row
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.state.key_partition import KeyPartitions
from holdfast.clock import now_ms
from holdfast.errors import Invalid
from holdfast.formats.manifest import Manifest
from holdfast.formats.rows.plain import plain
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as, json_spread
from holdfast.layout import StoreId
from holdfast.quantities import counted
from holdfast.savepoints.catalog import savepoint_uri
from holdfast.savepoints.copying import followed
from holdfast.savepoints.derived import require_unchanged
from holdfast.savepoints.leases import Chance, Clock
from holdfast.savepoints.proof import prove
from holdfast.savepoints.store_edits import RowChange
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage


def _shown_samples(samples: tuple[EditedRow, ...]) -> list[dict[str, Any]]:
    return [{"before": plain(sample.before), "after": plain(sample.after)} for sample in samples]


@dataclass(frozen=True, slots=True)
class EditPlan(JsonShape):
    """The plan of an edit, counted row by row.

    Attributes:
        savepoint: The savepoint to edit.
        catalog: The catalog for the new savepoint.
        batch_id: The batch of the savepoint, which stays the same.
        query_id: The id of the query, which stays the same.
        state: The state to edit.
        statement: The edit as text.
        columns: The columns of the state.
        tally: The numbers of rows, and of changed, deleted and inserted rows.
        changes: The rows to write and delete, by store, including Spark's internal rows.

    Example:
        plan: hf.EditPlan = hf.plan_edit("savepoints@daily", "aggregate", where="sum < 710", delete=True)
        assert (plan.tally.deleted, len(plan.samples)) == (2, 2)
    """

    savepoint: str
    catalog: str
    batch_id: int
    query_id: str
    state: str
    statement: str
    columns: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    tally: EditTally = field(metadata=json_spread())
    manifest: Manifest = field(repr=False, metadata=NOT_IN_JSON)
    changes: Mapping[StoreId, tuple[RowChange, ...]] = field(repr=False, metadata=NOT_IN_JSON)

    @property
    @in_json
    def partitions(self) -> tuple[int, ...]:
        """The affected partitions."""
        return tuple(sorted({store.partition for store in self.changes}))

    @property
    @in_json_as(convert=_shown_samples)
    def samples(self) -> tuple[EditedRow, ...]:
        """Some of the changed rows, before and after."""
        return tuple(self.tally.samples)


class EditReport(ChangedSavepoint[EditPlan]):
    """A savepoint that was created by an edit.

    Example:
        report: hf.EditReport = hf.edit("savepoints@daily", "aggregate", key="c1", set={"count": 0})
        assert report.plan.tally.changed == 1
        assert hf.state(report.uri).get("aggregate", "c1").value["count"] == 0
    """

    verb = "edited"


def plan_edit(
    catalog: Storage,
    savepoint_id: str,
    target: Storage,
    edit: Edit,
    *,
    may_change_nothing: bool = False,
    tell: ProgressCallback | None = None,
) -> EditPlan:
    """Compute the effect of an edit; changes nothing.

    Cost: reads every byte of the savepoint once to verify it, and every row of the state, which takes about
    five microseconds per row. Changes are held in memory.

    Args:
        catalog: The catalog of the savepoint.
        savepoint_id: The id of the savepoint.
        target: The catalog for the new savepoint.
        edit: The edit.
        may_change_nothing: Whether an edit that changes no row is accepted.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        NotFound: The savepoint or state does not exist.
        Corrupt: The savepoint is damaged.
        Invalid: The edit does not match the state, or changes nothing.
        Unsupported: The state cannot be edited.
    """
    manifest = prove(catalog, savepoint_id, tell=tell).require()
    uri = savepoint_uri(catalog, savepoint_id)
    view = SavepointView(catalog, manifest.files, uri)
    operator, named = pick(named_operators(view, manifest.batch_id), edit.state)
    tally = EditTally()
    state: NamedColumns
    if operator.keyed is not None:
        state = table = keyed_table(operator.keyed, named)
        changes = KeyedEdit(operator.files, table, named, edit, tally, tell).changes()
    else:
        state = one = editable(operator, named)
        changes = _Planning(view, one, edit, tally, tell).changes()
    if not tally.touched and not may_change_nothing:
        raise Invalid(
            "the edit changes nothing",
            code="HF-E2061",
            where=f"{uri}, state {state.label}",
            found=f"{counted(tally.rows, 'row')} in the state, 0 rows to change",
            hint="check the condition and the key; list the rows with `holdfast state scan CHECKPOINT STATE`",
        )
    return EditPlan(
        savepoint=uri,
        catalog=target.uri,
        batch_id=manifest.batch_id,
        query_id=manifest.query_id,
        state=state.label,
        statement=edit.statement,
        columns=tuple(column.name for column in state.columns),
        tally=tally,
        manifest=manifest,
        changes=changes,
    )


def edit(
    catalog: Storage,
    target: Storage,
    plan: EditPlan,
    folder: Path,
    *,
    who: str,
    why: str | None = None,
    label: str | None = None,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> EditReport:
    """Create the planned savepoint; the original stays unchanged.

    The rows of the new savepoint are verified before it is published; see `derive_changed`.

    Args:
        catalog: The catalog of the savepoint to edit.
        target: The catalog for the new savepoint.
        plan: The plan from `plan_edit` for these catalogs.
        folder: A local working directory, which the caller deletes.
        who: The author of the change.
        why: The reason for the change.
        label: A label for the new savepoint; none by default, so that the label of the old one stays unique.
        clock: The function that returns epoch milliseconds.
        chance: The function that returns a number of random bytes.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        Conflict: The savepoint has changed since the plan, or savepoints are being deleted.
        NotFound: The savepoint was deleted.
        Internal: The rows are wrong after the edit; no savepoint was created.
    """
    manifest = plan.manifest
    require_unchanged(catalog, manifest)
    audit = Audit(
        kind=EDIT,
        of=plan.savepoint,
        who=who,
        when_ms=clock(),
        why=why,
        state=plan.state,
        statement=plan.statement,
        rows_before=plan.tally.rows,
        rows_after=plan.tally.rows_after,
        changed=plan.tally.changed,
        deleted=plan.tally.deleted,
        inserted=plan.tally.inserted,
    )
    taken = derive_changed(
        catalog,
        target,
        manifest,
        plan.changes,
        folder,
        audit.as_dict(),
        label=label,
        deep=manifest.has_content,
        clock=clock,
        chance=chance,
        tell=tell,
    )
    return EditReport(plan, taken, audit)


@dataclass(frozen=True, slots=True)
class _Planning:
    """The computation of the rows that an edit changes."""

    view: SavepointView
    state: EditableState
    edit: Edit
    tally: EditTally
    tell: ProgressCallback | None

    def changes(self) -> dict[StoreId, tuple[RowChange, ...]]:
        """Return the row changes, by store."""
        decider, inserts = self._decider()
        by_partition = self._placed(inserts)
        found: dict[StoreId, list[RowChange]] = {}
        operator = self.state.operator
        for partition in followed(range(operator.partitions), self.tell, "looking for rows"):
            work = PartitionEdit(self.state, partition, decider, self.tally)
            rows = partial(self.state.rows, self.view, partition)
            for change in work.run(rows, by_partition.get(partition, ())):
                store = StoreId(operator.operator_id, partition, change.codec.name.store)
                found.setdefault(store, []).append(change)
        return {store: tuple(rows) for store, rows in found.items()}

    def _decider(self) -> tuple[Decider, Sequence[Values]]:
        edit, state = self.edit, self.state
        if edit.change is not None:
            made = ByTable(state, list(self._all()), edit.change)
            return made, made.inserts
        if edit.insert:
            return NoChange(), [self._insert(given) for given in edit.insert]
        key = None if edit.key is None else parse_key([edit.key], state.key, state.label, state.first_key)
        selection = Selection(state, edit.where, edit.set, key)
        return BySql(selection, delete=edit.delete), ()

    def _all(self) -> Iterator[tuple[int, Values]]:
        """Yield every row with its partition, without counting it."""
        collected = Collecting()
        for partition in range(self.state.operator.partitions):
            rows = partial(self.state.rows, self.view, partition)
            PartitionEdit(self.state, partition, collected, EditTally()).run(rows)
        return iter(collected.rows)

    def _insert(self, given: Mapping[str, Any]) -> Values:
        state = self.state
        row: dict[str, Any] = {}
        for name, value in given.items():
            column = state.column(name)
            if column.side != PLACE:
                row[column.name] = given_value(state, column, value)
        for column in state.key_columns():
            if column.name not in row:
                raise Invalid(
                    "the row to insert does not have all key columns",
                    code="HF-E2062",
                    where=state.label,
                    found=", ".join(sorted(row)) or "no column",
                    expected=", ".join(needed.name for needed in state.key_columns()),
                    hint="give a value for every key column; list them with `holdfast state list CHECKPOINT`",
                )
        for name, column in state.repeated().items():
            row.setdefault(name, row[column.name])
        checked(state, row)
        return row

    def _placed(self, inserts: Sequence[Values]) -> dict[int, list[Values]]:
        """Return new rows by the partition that Spark's hash determines."""
        if not inserts:
            return {}
        state = self.state
        operator = next(
            candidate
            for candidate in read(self.view).operators
            if candidate.operator_id == state.operator.operator_id
        )
        placement = KeyPartitions(operator, state.main, state.main.where)
        keys = [state.main.stored_key(key_row(state, insert)) for insert in inserts]
        found: dict[int, list[Values]] = {}
        for row, value in zip(inserts, placement.hashes(keys), strict=True):
            found.setdefault(value % state.operator.partitions, []).append(row)
        return found


class Collecting:
    """A decider that collects all rows and changes none."""

    columns = ()

    def __init__(self) -> None:
        self.rows: list[tuple[int, Values]] = []

    def decide(self, partition: int, first: int, rows: RowsView) -> Iterator[tuple[int, None]]:  # noqa: ARG002 - as others
        """See `Decider`."""
        self.rows += [(partition, row) for row in rows]
        return iter(())
