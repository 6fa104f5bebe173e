"""Python values as Arrow columns, and Arrow columns as Python values and events.

Arrow truncates 1.5 to a long, reads 5 as a timestamp and drops a struct's misspelt field. This module first
checks the Python types of a column's values and reports the first value that does not match.

A row, such as an event, a key or a struct, is a tuple with named fields: `event.amount`, `event["amount"]`,
`event.place.city`. A timestamp is a datetime in UTC, and a timestamp_ntz is a datetime without a time zone.
An array is a list and a map is a dict; both are read-only, because changing a copy would not change the
state. A null is None, also in a column of numbers; NaN stays NaN.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import of_type, whole
from holdfast.worker.declarations.handler_arguments import Event, record_class
from holdfast.worker.declarations.types import cells_of, check_value, fits, type_text
from holdfast.worker.runtime.timers import EPOCH

_NONE: Final = type(None)
_TABLE_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


class Unfit(Exception):
    """The exception for a value that does not match the type of its column.

    Attributes:
        at: The index of the value in the column.
        why: The error, with the found and the expected value.
    """

    def __init__(self, at: int, why: Invalid) -> None:
        super().__init__(why.fact)
        self.at = at
        self.why = why

    def moved(self, where: str | None) -> Invalid:
        """Return the error with its location replaced."""
        return Invalid(self.why.fact, **(self.why.facts() | {"where": where}))


class _Misfit(Exception):
    """The exception for a column with a wrong value; the caller then checks each value to find it."""


def column_of(values: Sequence[Any], kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    """Convert Python values to a column; None becomes null.

    Raises:
        Unfit: A value does not match the type, or is None in a NOT NULL column.
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
                "null in a NOT NULL column",
                code="HF-E2477",
                found="null",
                expected=f"a value of type {type_text(kind)}",
                hint="return a value, or remove NOT NULL from the output schema",
            ),
        )
    return column


def table_of(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Convert rows to a table; a row is a dict, a tuple with field names, or a tuple in the order of the
    columns.

    Raises:
        Unfit: A row is none of these, lacks a column, has an unknown one, or has a value that does not match;
            `why` names the column.
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
    """Convert a table that a processor returned to exactly the columns and types of a schema.

    Raises:
        Invalid: The result is not a table, a column is missing or unknown, or a value does not match its
            type.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise Invalid(
            "the handler did not return a table",
            code="HF-E2478",
            found=f"{type(table).__name__}",
            expected="a pyarrow.Table, or None",
            hint="return one pyarrow.Table, as made by state.table(…)",
        )
    if sorted(table.column_names) != sorted(schema.names):
        raise Invalid(
            "the columns of the returned table do not match `output`",
            code="HF-E2479",
            found=", ".join(table.column_names) or "none",
            expected=", ".join(schema.names),
            hint="return a table with the columns of `output`, or change `output`",
        )
    return pa.Table.from_arrays([_cast(table.column(field.name), field) for field in schema], schema=schema)


def cast_column(column: Any, kind: pa.DataType, where: str) -> Any:
    """Cast an array losslessly to a type of the same family.

    Raises:
        Invalid: The types are of different families, or the cast would change a value.
    """
    if not kinds.is_null(column.type) and _family(column.type) != _family(kind):
        raise Invalid(
            "an array has the wrong type",
            code="HF-E2480",
            where=where,
            found=str(column.type),
            expected=type_text(kind),
            hint="cast the array first: array.cast(…)",
        )
    try:
        return of_type(column, kind)
    except pa.ArrowException as error:
        raise Invalid(
            f"an array cannot be converted to the declared type: {error}",
            code="HF-E2481",
            where=where,
            found=str(column.type),
            expected=type_text(kind),
            hint="round or cast the values first",
        ) from error


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type != field.type:
        column = cast_column(column, field.type, f"output column {field.name}")
    if column.null_count and not field.nullable:
        raise Invalid(
            "null in a NOT NULL column",
            code="HF-E2477",
            where=f"output column {field.name}",
            hint="return a value, or remove NOT NULL from the output schema",
        )
    return column


def _family(kind: pa.DataType) -> str:
    """Return the name of the type's family; lossless casts are allowed only within a family."""
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
        # A named tuple, an event, or a Spark Row created with names.
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
        found = [f"no {', '.join(missing)}"] * bool(missing) + [f"extra {', '.join(unknown)}"] * bool(unknown)
        raise Unfit(at, _wrong_row("; ".join(found), ", ".join(names)))
    values = row if isinstance(row, Mapping) else dict(zip(fields, row, strict=True))
    return tuple(values[name] for name in names)


def _wrong_row(found: str, expected: str) -> Invalid:
    return Invalid(
        "a returned row does not match `output`",
        code="HF-E2482",
        found=found,
        expected=expected,
        hint="return a dict or a tuple with the columns of `output`, or change `output`",
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
        raise _Misfit  # a datetime with a time zone is not a local time
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
    # Each value matches alone, so the error concerns all together, such as more text than one array holds.
    return Unfit(
        0,
        Invalid(
            f"the values of a batch do not fit in one Arrow column of type {type_text(kind)}: {error}",
            code="HF-E2483",
            hint="output fewer rows per batch: limit the source, for example with maxFilesPerTrigger",
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
            "a value does not match the declared type",
            code="HF-E2466",
            found=f"{value!r}, which is {type(value).__name__}",
            expected=type_text(kind),
            hint="convert the value, or declare the type that the handler returns",
        )
    return None


_HIGHEST_YEAR_US = 253_402_300_799_999_999
_LOWEST_YEAR_US = -62_135_596_800_000_000
_FIRST_DAY = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal()


class FrozenList(list[Any]):
    """A read-only list with the elements of a stored array."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("an array cannot be changed in place: assign a new list, such as [*old, new]")

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenDict(dict[Any, Any]):
    """A read-only dict with the entries of a stored map."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a map cannot be changed in place: assign a new dict, such as {**old, key: value}")

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def records(table: pa.Table) -> list[Event]:
    """Return the rows of a table as events.

    Raises:
        Invalid: A time is outside the years 1 to 9999, the range of Python.
    """
    make = record_class(tuple(table.column_names))
    if not table.num_columns:
        return [make(())] * int(table.num_rows)
    columns = [
        _column_values(name, column) for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return list(map(make, zip(*columns, strict=True)))


def _column_values(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        return values_of(whole(column))
    except Invalid as error:
        raise Invalid(error.fact, **(error.facts() | {"where": f"column {name}"})) from error


def values_of(column: pa.Array, *, frozen: bool = True) -> list[Any]:  # noqa: PLR0911 - one a kind
    """Return a column as a list of Python values.

    Args:
        column: An array of any Spark type.
        frozen: Whether arrays, maps and structs are read-only; otherwise they are plain lists and dicts.

    Raises:
        Invalid: A time is outside the years 1 to 9999, the range of Python.
    """
    kind = column.type
    if kinds.is_nested(kind):
        return _nested(column, frozen)
    if kinds.is_dictionary(kind):
        return values_of(column.dictionary_decode(), frozen=frozen)
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return _filled(column, lambda dense: dense.to_numpy().tolist())
    if kinds.is_timestamp(kind):
        return _filled(column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()), _times(kind))
    if kinds.is_date(kind):
        return _filled(column.cast(pa.date32()).cast(pa.int32()), _dates)
    if kinds.is_null(kind):
        return [None] * len(column)
    if kinds.is_duration(kind):
        return _filled(column.cast(pa.duration("us"), safe=False).cast(pa.int64()), _deltas)
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def freezer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that converts a nested value to its read-only form; None for a simple type.

    The function raises a TypeError for a value of the wrong shape. The types of its parts are checked when
    the value is written.
    """
    if kinds.is_struct(kind):
        return _struct_freezer(kind)
    # A value read from a different type may have structs with their fields in a different order.
    may_differ = _has_structs(kind)
    if kinds.is_map(kind):
        item = freezer(kind.item_type) or _same

        def freeze_map(value: Any) -> Any:
            if value is None or (type(value) is FrozenDict and not may_differ):
                return value
            if not hasattr(value, "items"):
                raise TypeError(f"a map takes a dict, not {value!r}")
            return FrozenDict({key: item(part) for key, part in value.items()})

        return freeze_map
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        part = freezer(kind.value_type) or _same

        def freeze_list(value: Any) -> Any:
            if value is None or (type(value) is FrozenList and not may_differ):
                return value
            if not isinstance(value, (list, tuple)):
                raise TypeError(f"an array takes a list, not {value!r}")
            return FrozenList([part(element) for element in value])

        return freeze_list
    return None


def plain(value: Any) -> Any:
    """Return a value with its arrays, maps and structs as mutable lists and dicts."""
    if isinstance(value, Event):
        return {name: plain(part) for name, part in zip(value._fields, value, strict=True)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value


def _struct_freezer(kind: pa.DataType) -> Callable[[Any], Any]:
    names = tuple(field.name for field in kind)
    parts = [freezer(field.type) or _same for field in kind]
    make = record_class(names)
    may_differ = any(_has_structs(field.type) for field in kind)

    def freeze_struct(value: Any) -> Any:
        if value is None or (type(value) is make and not may_differ):
            return value
        if isinstance(value, dict):
            unknown = [name for name in value if name not in names]
            if unknown:
                raise TypeError(f"a struct of {', '.join(names)} has no field {unknown[0]!r}")
            value = [value.get(name) for name in names]
        elif isinstance(value, tuple):
            value = cells_of(value, names)
        else:
            raise TypeError(f"a struct takes a dict or a tuple of {', '.join(names)}, not {value!r}")
        return make([part(cell) for part, cell in zip(parts, value, strict=True)])

    return freeze_struct


def _has_structs(kind: pa.DataType) -> bool:
    if kinds.is_map(kind):
        return _has_structs(kind.item_type)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return _has_structs(kind.value_type)
    return bool(kinds.is_struct(kind))


def _same(value: Any) -> Any:
    return value


def _filled(column: pa.Array, convert: Callable[[pa.Array], list[Any]]) -> list[Any]:
    """Convert a column with nulls by a function that accepts only columns without nulls."""
    return _with_nulls(column, convert(column.fill_null(0) if column.null_count else column))


def _times(kind: pa.DataType) -> Callable[[pa.Array], list[Any]]:
    epoch = EPOCH if kind.tz is not None else EPOCH.replace(tzinfo=None)

    def times(ticks: pa.Array) -> list[Any]:
        numbers = ticks.to_numpy()
        if len(numbers) and (numbers.max() > _HIGHEST_YEAR_US or numbers.min() < _LOWEST_YEAR_US):
            far = numbers[(numbers > _HIGHEST_YEAR_US) | (numbers < _LOWEST_YEAR_US)][0]
            raise _too_far(f"{far} microseconds since 1970", f"{_LOWEST_YEAR_US} to {_HIGHEST_YEAR_US}")
        # Numpy's datetimes have no time zone, and adding one to each is six times slower.
        return list(map(epoch.__add__, numbers.view("m8[us]").tolist()))

    return times


def _dates(days: pa.Array) -> list[Any]:
    numbers = days.to_numpy()
    if len(numbers) and (numbers.max() > _LAST_DAY or numbers.min() < _FIRST_DAY):
        far = numbers[(numbers > _LAST_DAY) | (numbers < _FIRST_DAY)][0]
        raise _too_far(f"{far} days since 1970", f"{_FIRST_DAY} to {_LAST_DAY}")
    return numbers.astype("M8[D]").tolist()  # type: ignore[no-any-return]


def _deltas(ticks: pa.Array) -> list[Any]:
    return ticks.to_numpy().view("m8[us]").tolist()  # type: ignore[no-any-return]


def _too_far(found: str, expected: str) -> Invalid:
    return Invalid(
        "a time is out of Python's range",
        code="HF-E2484",
        found=found,
        expected=f"{expected}, the years 1 to 9999",
        hint="filter such times out, or cast the column to long, before hf.keyed",
    )


def _nested(column: pa.Array, frozen: bool) -> list[Any]:
    if kinds.is_struct(column.type):
        return _struct_values(column, frozen)
    if not (kinds.is_map(column.type) or kinds.is_list(column.type) or kinds.is_large_list(column.type)):
        return column.to_pylist()  # type: ignore[no-any-return]
    # Flattening would drop the elements of null cells, so offsets are counted from the first element instead.
    offsets = column.offsets.to_numpy()
    base, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    spans: Iterable[tuple[int, int]] = pairwise((offsets - base).tolist())
    values: list[Any]
    if kinds.is_map(column.type):
        names = values_of(column.keys.slice(base, end - base), frozen=frozen)
        items = values_of(column.items.slice(base, end - base), frozen=frozen)
        make: Any = FrozenDict if frozen else dict
        values = [make(zip(names[a:b], items[a:b], strict=True)) for a, b in spans]
    else:
        parts = values_of(column.values.slice(base, end - base), frozen=frozen)
        values = [FrozenList(parts[a:b]) for a, b in spans] if frozen else [parts[a:b] for a, b in spans]
    return _with_nulls(column, values)


def _struct_values(column: pa.Array, frozen: bool) -> list[Any]:
    names = tuple(field.name for field in column.type)
    parts: Sequence[list[Any]] = [values_of(part, frozen=frozen) for part in column.flatten()]
    rows: Any = zip(*parts, strict=True) if parts else [()] * len(column)
    if frozen:
        return _with_nulls(column, list(map(record_class(names), rows)))
    return _with_nulls(column, [dict(zip(names, row, strict=True)) for row in rows])


def _with_nulls(column: pa.Array, values: list[Any]) -> list[Any]:
    if column.null_count:
        for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[at] = None
    return values
