"""Edits and erasures of keyed state, by users' keys, in the blobs of key groups.

An operator is one table, with one row per key and one column for each key column and each state. Timers, and
states that an edit does not name, stay unchanged; deleting a key deletes all its state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.keyed_operators import BROADCAST, LIST, MAP, KeptState
from holdfast.at_rest.keyed_reader import KeyedStateReader
from holdfast.at_rest.model import NamedState, StateForm
from holdfast.at_rest.state_reader import key_in
from holdfast.changes.edit.deciders import Selection, checked
from holdfast.changes.edit.editable_state import KEY, VALUE, Column, NamedColumns
from holdfast.changes.edit.request import Edit
from holdfast.changes.edit.row_changes import EditTally
from holdfast.changes.keyed.group_changes import changed
from holdfast.changes.keyed.store_rows import KeyChange, group_rows
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.keyed import KeyRow
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Unsupported
from holdfast.layout import StoreId
from holdfast.savepoints.store_edits import RowChange

if TYPE_CHECKING:
    import pyarrow as pa


_CHUNK: Final = 4096


@dataclass(frozen=True)
class OperatorTable(NamedColumns):
    """A keyed operator as one table.

    Attributes:
        label: The name of the operator.
        columns: The key columns, and one column for each state.
        state: The reader of the operator's state.
        only: The single state of the table; None for all states.
    """

    label: str
    columns: tuple[Column, ...]
    state: KeyedStateReader
    only: str | None = None

    def key(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key of a row, by column."""
        return {column.path[0]: row[column.name] for column in self.key_columns()}


def keyed_table(state: KeyedStateReader, named: NamedState) -> OperatorTable:
    """Return the table of a keyed operator, or of one of its states."""
    only = None if named.form is StateForm.KEYED else named.name
    keys = [Column(key.name, KEY, (key.name,), key.type) for key in state.operator.keys]
    taken = {key.name for key in keys}
    values = [
        Column(f"value_{kept.name}" if kept.name in taken else kept.name, VALUE, (kept.name,), _type(kept))
        for kept in state.operator.states
        if kept.kind != BROADCAST and only in (None, kept.name)
    ]
    return OperatorTable(named.full_name, (*keys, *values), state, only)


@dataclass(frozen=True, slots=True)
class KeyedEdit:
    """An edit of a keyed operator.

    Attributes:
        files: The reader of the operator's files.
        table: The operator, or one of its states, as a table.
        named: The names of the operator.
        edit: The edit.
        tally: The numbers of rows, which the edit updates.
        tell: The progress callback, called with the work done, the total, and the current step.
    """

    files: OperatorStates
    table: OperatorTable
    named: NamedState
    edit: Edit
    tally: EditTally
    tell: ProgressCallback | None

    def changes(self) -> dict[StoreId, tuple[RowChange, ...]]:
        """Return the row changes, by store.

        Raises:
            Invalid: The edit does not match the state, or inserts an existing key.
            Unsupported: Keyed state does not support the edit.
        """
        if self.edit.change is not None:
            raise Unsupported(
                "a function on a whole table cannot change keyed state",
                code="HF-E7015",
                where=self.table.label,
                hint="set or delete rows by a condition, or insert rows",
            )
        wanted = list(self._inserts() if self.edit.insert else self._picked())
        return group_rows(self.files, changed(self.table.state, wanted))

    def _picked(self) -> Iterator[KeyChange]:
        key = None if self.edit.key is None else key_in(self.named, [self.edit.key])
        selection = Selection(self.table, self.edit.where, self.edit.set, key)
        for rows in self._chunks():
            for place, new in selection.run(rows):
                before = rows[place]
                if self.edit.delete:
                    self.tally.note(before, None)
                    yield self._gone(before)
                    continue
                values = dict(zip((column.name for column in selection.columns), new, strict=True))
                after = {**before, **values}
                if after != before:
                    self.tally.note(before, after)
                    states = {column.path[0]: values[column.name] for column in selection.columns}
                    yield KeyChange(self.table.key(before), states)

    def _inserts(self) -> Iterator[KeyChange]:
        deque(self._chunks(), maxlen=0)  # to count them
        for given in self.edit.insert:
            row: dict[str, Any] = {column.name: None for column in self.table.columns}
            for name, value in given.items():
                row[self.table.column(name).name] = value
            checked(self.table, row)
            key = self.table.key(row)
            there = self.table.state.get(key)
            if there is not None and (self.table.only is None or self.table.only in there.values):
                raise self.table.existing_key_error(row)
            self.tally.note(None, row)
            named = [
                column
                for column in self.table.columns
                if column.side == VALUE and row[column.name] is not None
            ]
            yield KeyChange(key, {column.path[0]: row[column.name] for column in named})

    def _chunks(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of the table in chunks, and add them to the tally."""
        rows = (
            self._show_row(row)
            for row in self.table.state.rows()
            if self.table.only is None or self.table.only in row.values
        )
        while chunk := list(islice(rows, _CHUNK)):
            self.tally.rows += len(chunk)
            if self.tell is not None:
                self.tell(self.tally.rows, 0, "looking for rows")
            yield chunk

    def _show_row(self, row: KeyRow) -> dict[str, Any]:
        keys = dict(zip((key.name for key in self.table.state.operator.keys), row.key, strict=True))
        return {
            column.name: keys[column.path[0]]
            if column.side == KEY
            else self._cell(column, row.values.get(column.path[0]))
            for column in self.table.columns
        }

    def _cell(self, column: Column, value: Any) -> Any:
        """Convert a value for Arrow, in which a map is a list of pairs."""
        kind = self.table.state.operator.state(column.path[0]).kind
        return list(value.items()) if kind == MAP and isinstance(value, Mapping) else value

    def _gone(self, row: Mapping[str, Any]) -> KeyChange:
        key, only = self.table.key(row), self.table.only
        return KeyChange(key, remove=True) if only is None else KeyChange(key, {only: None})


def _type(state: KeptState) -> pa.DataType:
    import pyarrow as pa

    if state.kind == LIST:
        return pa.list_(state.type)
    return pa.map_(state.key_type, state.type) if state.kind == MAP else state.type
