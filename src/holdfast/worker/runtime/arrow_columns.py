"""Python values as Arrow columns: whole columns at a time, and nothing bent to fit.

Arrow cuts 1.5 down to a long, reads 5 as a timestamp and drops a struct's misspelt field. Here the kinds
of values that occur in a column are looked at first, and the first value that does not fit is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import of_type, whole
from holdfast.worker.declarations.types import type_text
from holdfast.worker.declarations.value_checks import cells_of, check_value, fits

_NONE: Final = type(None)
_TABLE_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


class Unfit(Exception):
    """A value that does not fit its column.

    Attributes:
        at: Where in the column it is, counted from zero.
        why: What was found and what was expected.
    """

    def __init__(self, at: int, why: Invalid) -> None:
        super().__init__(why.fact)
        self.at = at
        self.why = why

    def moved(self, where: str | None) -> Invalid:
        """The reason, with another place than that of the value alone."""
        return Invalid(self.why.fact, **(self.why.facts() | {"where": where}))


class _Misfit(Exception):
    """Some value does not fit; which one is found by looking at each."""


def column_of(values: Sequence[Any], kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    """Make a column of Python values; None is null.

    Raises:
        Unfit: A value is not of the type, or is None where the column takes no nulls.
    """
    try:
        column = _column(values, kind)
    except (_Misfit, *_TABLE_ERRORS) as error:
        raise _first_unfit(values, kind, error) from error
    if column.null_count and not nullable:
        at = next(place for place, value in enumerate(values) if value is None)
        raise Unfit(
            at,
            Invalid(
                "this column takes no nulls",
                found="None",
                expected=type_text(kind),
                hint="leave NOT NULL out of the schema of the output, or give a value",
            ),
        )
    return column


def table_of(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Make a table of rows, each a dict, a row with names, or a tuple in the order of the columns.

    Raises:
        Unfit: A row is none of these, has a field too many or too few, or a value does not fit; `why`
            names the column.
    """
    names = schema.names
    shapes = set(map(type, rows))
    columns: Iterable[Sequence[Any]]
    if shapes == {dict}:
        columns = _columns_of_dicts(rows, names)
    else:
        tuples = [_as_tuple(at, row, names) for at, row in enumerate(rows)]
        columns = zip(*tuples, strict=True) if tuples else [()] * len(names)
    arrays = [_named_column(values, field) for values, field in zip(columns, schema, strict=True)]
    if not arrays:
        return pa.table({})
    return pa.Table.from_arrays(arrays, schema=schema)


def conformed(table: Any, schema: pa.Schema) -> pa.Table:
    """Give a table that a processor returned exactly the columns and types of a schema.

    Raises:
        Invalid: It is no table, a column is missing or unknown, or a value does not fit.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise Invalid(
            "a table is expected as output",
            found=f"{type(table).__name__}",
            expected="a pyarrow.Table, or None",
            hint="return one pyarrow.Table, as state.table(…) makes it",
        )
    if sorted(table.column_names) != sorted(schema.names):
        raise Invalid(
            "the table has other columns than the output",
            found=", ".join(table.column_names) or "none",
            expected=", ".join(schema.names),
            hint="select these columns, or name yours in `output`",
        )
    return pa.Table.from_arrays([_cast(table.column(field.name), field) for field in schema], schema=schema)


def cast_column(column: Any, kind: pa.DataType, where: str) -> Any:
    """Give an array another type, of the same family and without loss.

    Raises:
        Invalid: The types have nothing to do with each other, or a value would change.
    """
    if not kinds.is_null(column.type) and _family(column.type) != _family(kind):
        raise Invalid(
            "an array has another type",
            where=where,
            found=str(column.type),
            expected=type_text(kind),
            hint="cast it first: array.cast(…)",
        )
    try:
        return of_type(column, kind)
    except pa.ArrowException as error:
        raise Invalid(
            f"{error}",
            where=where,
            found=str(column.type),
            expected=type_text(kind),
            hint="round or cast the values first, so that none is lost",
        ) from error


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type != field.type:
        column = cast_column(column, field.type, f"output column {field.name}")
    if column.null_count and not field.nullable:
        raise Invalid(
            "this column takes no nulls",
            where=f"output column {field.name}",
            found="null",
            hint="leave NOT NULL out of the schema of the output, or give a value",
        )
    return column


def _family(kind: pa.DataType) -> str:
    """The kinds of types among which a cast that loses nothing is no surprise."""
    families = {
        "number": (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
        "text": (kinds.is_string, kinds.is_large_string),
        "bytes": (kinds.is_binary, kinds.is_large_binary),
        "struct": (kinds.is_struct,),
        "map": (kinds.is_map,),
        "list": (kinds.is_list, kinds.is_large_list),
        "date": (kinds.is_date,),
    }
    for name, members in families.items():
        if any(is_of(kind) for is_of in members):
            return name
    if kinds.is_timestamp(kind):
        return "local time" if kind.tz is None else "time"
    return str(kind)


def _named_column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return column_of(values, field.type, nullable=field.nullable)
    except Unfit as unfit:
        raise Unfit(unfit.at, unfit.moved(f"output column {field.name}")) from unfit


def _columns_of_dicts(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[list[Any]]:
    try:
        columns = [[row[name] for row in rows] for name in names]
    except KeyError:
        columns = []
    if not columns or set(map(len, rows)) != {len(names)}:
        for at, row in enumerate(rows):
            _as_tuple(at, row, names)
    return columns


def _as_tuple(at: int, row: Any, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        fields: Sequence[str] = list(row)
    elif isinstance(row, tuple):
        # A named tuple, an event, or a Row of Spark that was made with names.
        fields = getattr(row, "_fields", None) or getattr(row, "__fields__", None) or ()
        if not fields and len(row) == len(names):
            return row
        if not fields:
            raise Unfit(at, _wrong_row(f"{len(row)} fields", f"{len(names)}: {', '.join(names)}"))
    else:
        raise Unfit(at, _wrong_row(f"{row!r}, which is {type(row).__name__}", "a dict or a tuple"))
    if sorted(map(str, fields)) != sorted(names):
        missing = [name for name in names if name not in fields]
        unknown = [str(name) for name in fields if name not in names]
        found = [f"no {', '.join(missing)}"] * bool(missing) + [f"{', '.join(unknown)}"] * bool(unknown)
        raise Unfit(at, _wrong_row(" but ".join(found), ", ".join(names)))
    values = row if isinstance(row, Mapping) else dict(zip(fields, row, strict=True))
    return tuple(values[name] for name in names)


def _wrong_row(found: str, expected: str) -> Invalid:
    return Invalid(
        "a row has other fields than the output",
        found=found,
        expected=expected,
        hint="put out these columns, or name yours in `output`",
    )


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kinds.is_struct(kind):
        return _structs(values, kind)
    if kinds.is_map(kind):
        return _maps(values, kind)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return _lists(values, kind)
    if not all(type_ is _NONE or fits(type_, kind) for type_ in set(map(type, values))):
        raise _Misfit
    if (
        kinds.is_timestamp(kind)
        and kind.tz is None
        and any(value is not None and value.tzinfo is not None for value in values)
    ):
        raise _Misfit  # an instant is no local time
    return whole(pa.array(values, kind))


def _missing(values: Sequence[Any]) -> pa.Array | None:
    missing = [value is None for value in values]
    return pa.array(missing) if any(missing) else None


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not all(value is None or isinstance(value, (list, tuple)) for value in values):
        raise _Misfit
    parts = _column(list(chain.from_iterable(value or () for value in values)), kind.value_type)
    large = kinds.is_large_list(kind)
    make, offsets = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
    return make.from_arrays(_offsets(values, offsets), parts, kind, mask=_missing(values))


def _maps(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not all(value is None or isinstance(value, Mapping) for value in values):
        raise _Misfit
    keys = _column(list(chain.from_iterable(value or () for value in values)), kind.key_type)
    if keys.null_count:
        raise _Misfit
    items = _column(
        list(chain.from_iterable(value.values() for value in values if value is not None)), kind.item_type
    )
    offsets = _offsets(values, pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=_missing(values))


def _offsets(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    sizes = (0 if value is None else len(value) for value in values)
    return pa.array(list(accumulate(sizes, initial=0)), kind)


def _structs(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    fields = list(kind)
    names = tuple(field.name for field in fields)
    rows = [_struct_row(value, names) for value in values]
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(names)
    missing = _missing(values)
    arrays = []
    for part, field in zip(columns, fields, strict=True):
        array = _column(part, field.type)
        if not field.nullable and array.null_count > (missing.true_count if missing is not None else 0):
            raise _Misfit
        arrays.append(array)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=missing)


def _struct_row(value: Any, names: tuple[str, ...]) -> Sequence[Any]:
    if value is None:
        return (None,) * len(names)
    if isinstance(value, Mapping):
        if not all(name in names for name in value):
            raise _Misfit
        return tuple(value.get(name) for name in names)
    if not isinstance(value, tuple):
        raise _Misfit
    return cells_of(value, names)


def _first_unfit(values: Sequence[Any], kind: pa.DataType, error: Exception) -> Unfit:
    for at, value in enumerate(values):
        why = _why_unfit(value, kind)
        if why is not None:
            return Unfit(at, why)
    # Each fits alone, so the error is about all of them, such as more text than one array holds.
    return Unfit(
        0,
        Invalid(
            f"these values make no column: {error}",
            expected=type_text(kind),
            hint="put out fewer rows a batch: start the query with a smaller maxFilesPerTrigger or trigger",
        ),
    )


def _why_unfit(value: Any, kind: pa.DataType) -> Invalid | None:
    try:
        check_value(value, kind, "")
    except Invalid as why:
        return Invalid(why.fact, **(why.facts() | {"where": None}))
    try:
        _column([value], kind)
    except (_Misfit, *_TABLE_ERRORS):
        return Invalid(
            "this value is not of the declared type",
            found=f"{value!r}, which is {type(value).__name__}",
            expected=type_text(kind),
            hint="convert it, or declare the type that the handler gives",
        )
    return None
