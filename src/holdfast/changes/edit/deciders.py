"""The selection of the rows of an edit and of their new values, by SQL or by a function.

The SQL dialect is DuckDB's. An expression is evaluated over one row: it may not use other tables, subqueries
or windows, and cannot access the disk or the network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.keys import readable
from holdfast.at_rest.sql import lock_down, nodes
from holdfast.changes.edit.editable_state import (
    KEY,
    PLACE,
    Column,
    EditableState,
    NamedColumns,
    RowsView,
    StoredRows,
    Values,
    arrow_type,
    type_words,
)
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.sql_names import sql_identifier

if TYPE_CHECKING:
    import pyarrow as pa


ROW: Final = "__row"
_TABLE: Final = "__rows"
_REFUSED: Final = {"SUBQUERY": "a subquery", "WINDOW": "a window function", "PARAMETER": "a parameter"}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and the expression of its new value."""

    column: str
    expression: str


def parse_assignment(text: str) -> Assignment:
    """Parse `column = expression`.

    Raises:
        Invalid: The text has no equals sign, or a side of it is empty.
    """
    column, equals, expression = text.partition("=")
    column = column.strip().strip('"')
    if not equals or not column or not expression.strip():
        raise Invalid(
            "not a valid assignment",
            code="HF-E2051",
            found=text,
            expected="column = expression",
            hint="write the assignment as --set 'visits = visits + 1'",
        )
    return Assignment(column, expression.strip())


class Selection:
    """The condition and the assignments of an edit, compiled for one state.

    Args:
        state: The state.
        where: The condition; None for every row.
        assignments: The assignments, as users write them.
        key: The values of key columns of the rows to select; None for any.

    Raises:
        Invalid: A column does not exist or may not be set, or an expression cannot be parsed or has a
            different type than its column.
        Unsupported: A column has a type that cannot be read, and the rows are not deleted by their key.
    """

    def __init__(
        self,
        state: NamedColumns,
        where: str | None,
        assignments: Sequence[str],
        key: Mapping[str, Any] | None,
    ) -> None:
        import duckdb

        parsed = [parse_assignment(text) for text in assignments]
        self._state = state
        self._key = dict(key or {})
        self._connection = duckdb.connect(config={"threads": 2})
        lock_down(self._connection)
        # A deletion by key reads only key columns, so that other columns may have any type and value.
        read = state.columns if where or parsed else [state.column(name) for name in self._key]
        self._types = {column.name: arrow_type(column.type, state.label) for column in read}
        self.columns = [self._settable(assignment.column) for assignment in parsed]
        for text in (*(assignment.expression for assignment in parsed), *((where,) if where else ())):
            self._check(text)
        wanted = ", ".join([f'"{ROW}"', *(f"(\n{assignment.expression}\n)" for assignment in parsed)])
        condition = f"(\n{where}\n)" if where else "true"
        keys = "".join(f" and {sql_identifier(name)} is not distinct from ?" for name in self._key)
        self._query = f"select {wanted} from {_TABLE} where {condition}{keys}"  # noqa: S608 - intended
        self._assignments = parsed
        self._check_types(self.run_table([]), where)

    def run(self, rows: RowsView) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the index and the new values of each selected row."""
        table = self.run_table(rows)
        places = table.column(0).to_pylist()
        new = [
            cast_column(self._state, column, table.column(index + 1), self._types[column.name]).to_pylist()
            for index, column in enumerate(self.columns)
        ]
        return [(place, tuple(values[at] for values in new)) for at, place in enumerate(places)]

    def run_table(self, rows: RowsView) -> pa.Table:
        """Return the selected rows as a table, before any cast."""
        import duckdb

        table = rows_table(self._state, rows, self._types)
        self._connection.register(_TABLE, table)
        try:
            selected = self._connection.sql(self._query, params=list(self._key.values())).to_arrow_table()
        except duckdb.Error as error:
            raise self._refused(str(error)) from error
        finally:
            self._connection.unregister(_TABLE)
        return selected

    def _settable(self, name: str) -> Column:
        column = self._state.column(name)
        if column.side in (KEY, PLACE):
            raise Invalid(
                "a key column cannot be set",
                code="HF-E2052",
                where=self._state.label,
                found=column.name,
                expected=", ".join(
                    other.name for other in self._state.columns if other.side not in (KEY, PLACE)
                )
                or "a state with value columns",
                hint="delete the row, and insert one with the new key",
            )
        if column.name in self._state.repeated():
            raise Invalid(
                "a column that repeats a key column cannot be set",
                code="HF-E2053",
                where=self._state.label,
                found=column.name,
                hint="delete the row, and insert one with the new key",
            )
        return column

    def _check(self, text: str) -> None:
        """Check that an expression uses only its own row, because the state is processed in parts."""
        statement = f"select (\n{text}\n)"
        answer = self._connection.execute("select json_serialize_sql(?)", [statement]).fetchall()
        parsed: dict[str, Any] = json.loads(answer[0][0]) if answer else {"error": True}
        if parsed.get("error"):
            raise self._refused(str(parsed.get("error_message", "no expression")), text)
        statements = parsed["statements"]
        if len(statements) != 1 or len(statements[0]["node"].get("select_list", ())) != 1:
            raise self._refused("more than one expression", text)
        classes = (str(node.get("class")) for node in nodes(statements[0]["node"]))
        refused = next((_REFUSED[name] for name in classes if name in _REFUSED), None)
        if refused is not None:
            raise Invalid(
                "an expression cannot contain a subquery, a window function or a parameter",
                code="HF-E2054",
                where=self._state.label,
                found=f"{refused} in {text}",
                hint="rewrite the expression, or change the whole table with hf.edit(…, change=FUNCTION)",
            )

    def _check_types(self, found: pa.Table, where: str | None) -> None:
        pairs = zip(self.columns, self._assignments, strict=True)
        for index, (column, assignment) in enumerate(pairs):
            given = found.schema.field(index + 1).type
            if assignment.expression.lower() == "null":
                if not column.nullable:
                    raise self._state.unfit(column.name, "null", "never null")
            elif not fits(given, self._types[column.name]):
                raise self._state.unfit(
                    column.name, f"{assignment.expression} of type {given}", type_words(column.type)
                )
        if where is not None:
            described = f"describe select (\n{where}\n) from (select {self._typed_nulls()})"  # noqa: S608 - as above
            kind = self._connection.execute(described).fetchall()
            if kind[0][1] not in ("BOOLEAN", '"NULL"'):
                raise self._refused(f"a condition of type {kind[0][1]}", where)

    def _typed_nulls(self) -> str:
        """Return a row of nulls with the columns' types, as a DuckDB select list."""
        empty = rows_table(self._state, [], self._types)
        self._connection.register(_TABLE, empty)
        try:
            described = self._connection.execute(f"describe select * from {_TABLE}").fetchall()  # noqa: S608 - as above
        finally:
            self._connection.unregister(_TABLE)
        return ", ".join(f"null::{kind} as {sql_identifier(name)}" for name, kind, *_ in described)

    def _refused(self, message: str, text: str | None = None) -> Invalid:
        return Invalid(
            "the expression cannot be evaluated",
            code="HF-E2055",
            where=self._state.label,
            found=" ".join(message.split())[:300] + (f", in {text}" if text else ""),
            expected="an SQL expression over the columns "
            + ", ".join(f"{c.name} {type_words(c.type)}" for c in self._state.columns),
            hint="use DuckDB's dialect, with text in single quotes",
        )


def rows_table(state: NamedColumns, rows: RowsView, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as an Arrow table, numbered in its first column.

    Args:
        state: The state.
        rows: The rows.
        types: The Arrow types of the columns to return, by name.

    Raises:
        Unsupported: Arrow cannot represent a value.
    """
    import pyarrow as pa

    names = [ROW, *types]
    arrays = [pa.array(range(len(rows)), pa.int64())]
    packed = rows.arrays(types) if isinstance(rows, StoredRows) else None
    if packed is not None:
        return pa.Table.from_arrays([*arrays, *packed], names=names)
    for column in map(state.column, types):
        values = [row[column.name] for row in rows]
        try:
            arrays.append(pa.array(values, types[column.name]))
        except UnicodeEncodeError:
            arrays.append(pa.array([readable(value) for value in values], types[column.name]))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise Unsupported(
                "a value of the state cannot be used in a condition",
                code="HF-E7010",
                where=f"{state.label}, column {column.name}",
                found=str(error).splitlines()[0],
                expected=type_words(column.type),
                hint="select the rows by --key instead of a condition",
            ) from error
    return pa.Table.from_arrays(arrays, names=names)


def cast_column(
    state: NamedColumns, column: Column, values: pa.ChunkedArray, to: pa.DataType
) -> pa.ChunkedArray:
    """Cast new values of a column to its type.

    Raises:
        Invalid: A value does not match the type, or is null in a column that must not be null.
    """
    import pyarrow as pa

    try:
        made = values.cast(to, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if values.null_count < len(values):
            found = str(error).splitlines()[0]
            raise state.unfit(column.name, found, type_words(column.type)) from error
        made = pa.chunked_array([pa.nulls(len(values), to)])
    if made.null_count and not column.nullable and column.side != PLACE:
        raise state.unfit(column.name, "null", "never null")
    return made


def fits(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether values of a type can be stored as a different one without a change of meaning."""
    import pyarrow.types as t

    if found == expected or t.is_null(found):
        return True
    number = t.is_integer(found) or t.is_decimal(found)
    rules: list[tuple[bool, Callable[[], bool]]] = [
        (t.is_integer(expected), lambda: t.is_integer(found) or (t.is_decimal(found) and found.scale == 0)),
        (t.is_floating(expected), lambda: number or t.is_floating(found)),
        (t.is_decimal(expected), lambda: number),
        (t.is_timestamp(expected), lambda: t.is_timestamp(found)),
        (t.is_string(expected), lambda: t.is_large_string(found) or t.is_string_view(found)),
        (t.is_binary(expected), lambda: t.is_large_binary(found)),
        (t.is_struct(expected), lambda: t.is_struct(found) and _same_fields(found, expected)),
        (t.is_map(expected), lambda: t.is_map(found) and _same_entries(found, expected)),
        (t.is_list(expected), lambda: t.is_list(found) and fits(found.value_type, expected.value_type)),
    ]
    return any(wanted and bool(rule()) for wanted, rule in rules)


def _same_fields(found: pa.DataType, expected: pa.DataType) -> bool:
    if [field.name for field in found] != [field.name for field in expected]:
        return False
    return all(fits(one.type, other.type) for one, other in zip(found, expected, strict=True))


def _same_entries(found: pa.DataType, expected: pa.DataType) -> bool:
    return fits(found.key_type, expected.key_type) and fits(found.item_type, expected.item_type)


# A function from a table of a state's rows to the table of the new rows.
TableChange = Callable[["pa.Table"], "pa.Table"]


class NoChange:
    """A decider that leaves every row unchanged, for edits that only insert rows."""

    columns: Sequence[Column] = ()

    def decide(self, *_: Any) -> Iterable[tuple[int, None]]:
        """See `Decider`."""
        return ()


class BySql:
    """A decider that sets columns of the rows that match a condition, or deletes these rows."""

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
    """A decider that applies the result of a function on the whole table.

    Rows are matched by their key, and by their index if several have one key. A row that is missing from the
    new table is deleted; a row without an index, or with a new key, is inserted.

    Args:
        state: The state.
        rows: All rows of the state, in the order of partitions, each with its partition.
        change: The function from a table to a new table.

    Raises:
        Invalid: The function does not return a table with the columns of the state.
    """

    def __init__(self, state: EditableState, rows: Sequence[tuple[int, Values]], change: TableChange) -> None:
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
                    "the returned table has a duplicate key",
                    code="HF-E2056",
                    where=self._state.label,
                    found=self._identity(row)[:200],
                    expected="each key once",
                    hint="return one row for each key; keep the `index` of list rows",
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
                "the function did not return a table",
                code="HF-E2057",
                found=type(made).__name__,
                expected="pyarrow.Table",
                hint="return the table that was passed in, with different rows or values",
            )
        missing = [name for name in types if name not in made.column_names]
        more = [name for name in made.column_names if name not in types]
        if missing or more:
            names = ", ".join(column.name for column in self._state.columns)
            fact = "no such column in the returned table" if missing else "an unknown column"
            raise self._state.unfit(", ".join(missing or more), fact, names)
        columns = []
        for column in self._state.columns:
            given, to = made.column(column.name), types[column.name]
            if not fits(given.type, to):
                raise self._state.unfit(column.name, str(given.type), type_words(column.type))
            columns.append(cast_column(self._state, column, given, to))
        return pa.table(columns, names=list(types))


def checked(state: NamedColumns, row: Mapping[str, Any]) -> None:
    """Check that a new row has all columns that must not be null.

    Raises:
        Invalid: A required value is missing.
    """
    for column in state.columns:
        if column.side != PLACE and not column.nullable and row.get(column.name) is None:
            raise state.unfit(column.name, "null in a new row", f"{type_words(column.type)}, never null")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
