"""Deciders say which rows change and how: by SQL, or by a function on the whole table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.at_rest.edit.editable_state import Columns, EditableState
from holdfast.at_rest.edit.rows_view import RowsView, Values
from holdfast.at_rest.edit.sql_edits import ROW, Selection, cast_column, fits, rows_table
from holdfast.at_rest.edit.state_columns import KEY, PLACE, Column, arrow_type, type_words
from holdfast.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

# From a table of a state's rows to one of what they are to be.
Change = Callable[["pa.Table"], "pa.Table"]


class NoChange:
    """Leaves every row as it is: for edits that only insert."""

    columns: Sequence[Column] = ()

    def decide(self, *_: Any) -> Iterable[tuple[int, None]]:
        """See `Decider`."""
        return ()


class BySql:
    """Sets columns of the rows that a condition picks, or deletes them."""

    def __init__(self, selection: Selection, *, delete: bool) -> None:
        self._selection = selection
        self._delete = delete
        self.columns: Sequence[Column] = selection.columns

    def decide(
        self,
        partition: int,  # noqa: ARG002 - one condition for all
        first: int,  # noqa: ARG002 - likewise
        rows: RowsView,
    ) -> Iterable[tuple[int, tuple[Any, ...] | None]]:
        """See `Decider`."""
        picked = self._selection.run(rows)
        return [(place, None) for place, _ in picked] if self._delete else picked


class ByTable:
    """What a function on the whole table has made of it.

    Rows belong together by their key, and by their place where several have one key. A row that is not in the
    new table is deleted; a row without a place, or with a key that was not there, is new.

    Args:
        state: The state.
        rows: All its rows, in the order of partitions, each with its partition.
        change: The function.

    Raises:
        Invalid: What it returns is no table of the state's columns.
    """

    def __init__(self, state: EditableState, rows: Sequence[tuple[int, Values]], change: Change) -> None:
        self._state = state
        self.columns: Sequence[Column] = [
            column for column in state.columns if column.side not in (KEY, PLACE)
        ]
        types = {column.name: arrow_type(column.type, state.label) for column in state.columns}
        table = rows_table(state, [row for _, row in rows], types).drop_columns([ROW])
        made = self._fitted(change(table), types)
        before = table.to_pylist()
        self.inserts: list[Values] = []
        self._decided: dict[tuple[int, int], tuple[Any, ...] | None] = {}
        after = self._by_identity(made.to_pylist())
        seen: dict[int, int] = {}
        for (partition, row), shown in zip(rows, before, strict=True):
            at = seen.get(partition, 0)
            seen[partition] = at + 1
            new = after.pop(self._identity(shown), None)
            if new is None:
                self._decided[partition, at] = None
            elif any(not _same(new[column.name], shown[column.name]) for column in self.columns):
                self._decided[partition, at] = tuple(
                    row[column.name] if _same(new[column.name], shown[column.name]) else new[column.name]
                    for column in self.columns
                )
        for left in after.values():
            self._insert(left)

    def decide(
        self, partition: int, first: int, rows: RowsView
    ) -> Iterable[tuple[int, tuple[Any, ...] | None]]:
        """See `Decider`."""
        for place in range(len(rows)):
            row_place = (partition, first + place)
            if row_place in self._decided:
                yield place, self._decided[row_place]

    def _by_identity(self, rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        by_identity: dict[str, dict[str, Any]] = {}
        for row in rows:
            if any(row[column.name] is None for column in self._state.columns if column.side == PLACE):
                self._insert(row)
                continue
            if by_identity.setdefault(self._identity(row), row) is not row:
                raise Invalid(
                    "the table has a key twice",
                    where=self._state.label,
                    found=self._identity(row)[:200],
                    expected="each key once",
                    hint="give back one row for each key; rows of a list keep their `index`",
                )
        return by_identity

    def _identity(self, row: Mapping[str, Any]) -> str:
        return repr([row[column.name] for column in self._state.columns if column.side in (KEY, PLACE)])

    def _insert(self, row: Mapping[str, Any]) -> None:
        checked(self._state, row)
        self.inserts.append(row)

    def _fitted(self, made: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
        import pyarrow as pa

        if not isinstance(made, pa.Table):
            raise Invalid(
                "the function has not returned a table",
                found=type(made).__name__,
                expected="pyarrow.Table",
                hint="return the table that it was given, with other rows or values",
            )
        missing = [name for name in types if name not in made.column_names]
        more = [name for name in made.column_names if name not in types]
        if missing or more:
            names = ", ".join(column.name for column in self._state.columns)
            fact = "is missing" if missing else "is not of the state"
            raise self._state.unfit(", ".join(missing or more), fact, names)
        columns = []
        for column in self._state.columns:
            given, to = made.column(column.name), types[column.name]
            if not fits(given.type, to):
                raise self._state.unfit(column.name, str(given.type), type_words(column.type))
            columns.append(cast_column(self._state, column, given, to))
        return pa.table(columns, names=list(types))


def checked(state: Columns, row: Mapping[str, Any]) -> None:
    """Refuse a new row that leaves out what may not be null.

    Raises:
        Invalid: It does.
    """
    for column in state.columns:
        if column.side != PLACE and not column.nullable and row.get(column.name) is None:
            raise state.unfit(column.name, "null in a new row", f"{type_words(column.type)}, never null")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
