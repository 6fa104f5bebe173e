"""Arrow columns as Python values, whole columns at a time, and events made of them.

A row, be it an event, a key or a struct, is a tuple that also gives its fields by name: `event.amount`,
`event["amount"]`, `event.place.city`. A timestamp is a datetime in UTC, a timestamp_ntz one without a
zone. An array is a list and a map is a dict; neither can be changed, as what is read from an event or a
state is not the state itself. Nulls are None, also among numbers; NaN stays NaN.
"""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import whole
from holdfast.worker.declarations.value_checks import cells_of
from holdfast.worker.runtime.timers import EPOCH

_HIGHEST_YEAR_US = 253_402_300_799_999_999
_LOWEST_YEAR_US = -62_135_596_800_000_000
_FIRST_DAY = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal()


class EventRecord(tuple[Any, ...]):
    """A row: an immutable tuple whose fields have names.

    A field named like a method of tuples, such as `count`, hides the method.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _places: ClassVar[dict[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                key = self._places[key]
            except KeyError:
                raise KeyError(f"there is no field {key!r}; there are {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"there is no field {name!r}; there are {', '.join(self._fields)}")

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)).join(
            "()"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _record, (self._fields, tuple(self))


class FrozenList(list[Any]):
    """The array that was read: a list that refuses to be changed."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "an array that was read cannot be changed in place: assign a new list, such as [*old, new]"
        )

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenDict(dict[Any, Any]):
    """The map that was read: a dict that refuses to be changed."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a map that was read cannot be changed in place: assign a new dict, such as {**old, key: value}"
        )

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


@lru_cache(maxsize=256)
def record_class(names: tuple[str, ...]) -> type[EventRecord]:
    """Make the class of rows with these fields; called with a tuple of values, it makes a row."""
    # The getters of a namedtuple are written in C and read any tuple, whatever the field's name.
    donor = namedtuple("donor", [f"f{at}" for at in range(len(names))])  # type: ignore[misc]
    fields: dict[str, Any] = {
        name: vars(donor)[f"f{at}"] for at, name in enumerate(names) if not name.startswith("__")
    }
    places = {name: at for at, name in enumerate(names)}
    return type("Record", (EventRecord,), {**fields, "__slots__": (), "_fields": names, "_places": places})


def _record(names: tuple[str, ...], values: tuple[Any, ...]) -> EventRecord:
    return record_class(names)(values)


def records(table: pa.Table) -> list[EventRecord]:
    """Give the rows of a table.

    Raises:
        Invalid: A time is outside the years 1 to 9999, so that Python has no value for it.
    """
    make = record_class(tuple(table.column_names))
    if not table.num_columns:
        return [make(())] * int(table.num_rows)
    columns = [_named(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]
    return list(map(make, zip(*columns, strict=True)))


def _named(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        return values_of(whole(column))
    except Invalid as error:
        raise Invalid(error.fact, **(error.facts() | {"where": f"column {name}"})) from error


def values_of(column: pa.Array, *, frozen: bool = True) -> list[Any]:  # noqa: PLR0911 - one a kind
    """Give a column as Python values.

    Args:
        column: One array of any type that Spark has.
        frozen: Whether arrays, maps and structs are made unchangeable; otherwise they are plain lists
            and dicts, for code that may change what it gets.

    Raises:
        Invalid: A time is outside the years 1 to 9999.
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
    """Give what turns a value of a type with parts into the form in which it is read, or None.

    What does not have that shape is refused with a TypeError; the parts' own types are checked when the
    value is written.
    """
    if kinds.is_struct(kind):
        return _struct_freezer(kind)
    # What was read of another type may have structs whose fields are in another order.
    may_differ = _has_structs(kind)
    if kinds.is_map(kind):
        item = freezer(kind.item_type) or _same

        def freeze_map(value: Any) -> Any:
            if value is None or (type(value) is FrozenDict and not may_differ):
                return value
            if not hasattr(value, "items"):
                raise TypeError(f"a map takes a dict, and this is {value!r}")
            return FrozenDict({key: item(part) for key, part in value.items()})

        return freeze_map
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        part = freezer(kind.value_type) or _same

        def freeze_list(value: Any) -> Any:
            if value is None or (type(value) is FrozenList and not may_differ):
                return value
            if not isinstance(value, (list, tuple)):
                raise TypeError(f"an array takes a list, and this is {value!r}")
            return FrozenList([part(element) for element in value])

        return freeze_list
    return None


def plain(value: Any) -> Any:
    """Give a value with its arrays, maps and structs as lists and dicts that can be changed."""
    if isinstance(value, EventRecord):
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
            raise TypeError(f"a struct takes a dict or a tuple of {', '.join(names)}, and this is {value!r}")
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
    """Convert a column that may have nulls by a function that takes none."""
    return _with_nulls(column, convert(column.fill_null(0) if column.null_count else column))


def _times(kind: pa.DataType) -> Callable[[pa.Array], list[Any]]:
    epoch = EPOCH if kind.tz is not None else EPOCH.replace(tzinfo=None)

    def times(ticks: pa.Array) -> list[Any]:
        numbers = ticks.to_numpy()
        if len(numbers) and (numbers.max() > _HIGHEST_YEAR_US or numbers.min() < _LOWEST_YEAR_US):
            far = numbers[(numbers > _HIGHEST_YEAR_US) | (numbers < _LOWEST_YEAR_US)][0]
            raise _too_far(f"{far} microseconds from 1970")
        # Numpy's own datetimes bear no zone, and adding one to each is six times slower than this.
        return list(map(epoch.__add__, numbers.view("m8[us]").tolist()))

    return times


def _dates(days: pa.Array) -> list[Any]:
    numbers = days.to_numpy()
    if len(numbers) and (numbers.max() > _LAST_DAY or numbers.min() < _FIRST_DAY):
        far = numbers[(numbers > _LAST_DAY) | (numbers < _FIRST_DAY)][0]
        raise _too_far(f"{far} days from 1970")
    return numbers.astype("M8[D]").tolist()  # type: ignore[no-any-return]


def _deltas(ticks: pa.Array) -> list[Any]:
    return ticks.to_numpy().view("m8[us]").tolist()  # type: ignore[no-any-return]


def _too_far(found: str) -> Invalid:
    return Invalid(
        "Python has no value for a time so far off",
        found=found,
        expected="the years 1 to 9999",
        hint="take such times out or cast them to long before the stream is keyed",
    )


def _nested(column: pa.Array, frozen: bool) -> list[Any]:
    if kinds.is_struct(column.type):
        return _structs(column, frozen)
    if not (kinds.is_map(column.type) or kinds.is_list(column.type) or kinds.is_large_list(column.type)):
        return column.to_pylist()  # type: ignore[no-any-return]
    # Flattening would drop the parts of null cells, so offsets are counted from the first one instead.
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


def _structs(column: pa.Array, frozen: bool) -> list[Any]:
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
