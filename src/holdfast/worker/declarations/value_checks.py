"""Checks that a Python value is one of a type, without bending it into one.

Arrow turns 5 into a timestamp, text into bytes and a struct's misspelt field into nothing. For a value
that a person wrote once, such as a default, each of these is a mistake.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.types import type_text


def check_value(value: Any, read: pa.DataType, where: str) -> pa.Scalar:
    """Give a value as an Arrow scalar; None fits every type.

    Raises:
        Invalid: The value is not of that type, with the path of the part that is not.
    """
    checked = _checked(value, read, where)
    try:
        return pa.scalar(checked, type=read)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _unfit(value, read, where, str(error)) from error


def cells_of(value: tuple[Any, ...], names: tuple[str, ...]) -> Sequence[Any]:
    """Give the parts of a tuple in the order of a struct's fields: by name where the tuple has names.

    Raises:
        TypeError: It has other names, or another length.
    """
    # A named tuple or an event, or a Row of Spark that was made with names.
    given = getattr(value, "_fields", None) or getattr(value, "__fields__", None)
    if given is None or given == names:
        if len(value) != len(names):
            raise TypeError(f"a struct takes a dict or a tuple of {', '.join(names)}, and this is {value!r}")
        return value
    cells = list(value)
    return [cells[at] for at in _places(tuple(given), names)]


@lru_cache(maxsize=1024)
def _places(given: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    if sorted(given) != sorted(names):
        raise TypeError(
            f"a struct of {', '.join(names)} takes no tuple of {', '.join(given)}: "
            "give a dict, or a plain tuple in the order of the fields"
        )
    return [given.index(name) for name in names]


def _checked(value: Any, read: pa.DataType, where: str) -> Any:
    """The value, with dicts in place of structs."""
    if value is None:
        return None
    # A time with a zone names an instant, and timestamp_ntz has none.
    is_instant = kinds.is_timestamp(read) and read.tz is None and getattr(value, "tzinfo", None) is not None
    if is_instant or not fits(type(value), read):
        raise _unfit(value, read, where)
    if kinds.is_list(read):
        return [_checked(element, read.value_type, f"{where}[{at}]") for at, element in enumerate(value)]
    if kinds.is_map(read):
        entries = []
        for key, item in value.items():
            if key is None:
                raise _unfit(None, read.key_type, f"{where}: a key")
            checked = _checked(key, read.key_type, f"{where}: a key")
            entries.append((checked, _checked(item, read.item_type, f"{where}[{key!r}]")))
        return entries
    return _checked_struct(value, read, where) if kinds.is_struct(read) else value


def _checked_struct(value: Any, read: pa.DataType, where: str) -> dict[str, Any]:
    names = tuple(field.name for field in read)
    try:
        fields = (
            value if isinstance(value, Mapping) else dict(zip(names, cells_of(value, names), strict=True))
        )
    except TypeError as error:
        raise _unfit(value, read, where, str(error)) from error
    if any(name not in names for name in fields):
        raise _unfit(value, read, where)
    checked = {}
    for field in read:
        part = fields.get(field.name)
        if part is None and not field.nullable:
            raise _unfit(part, field.type, f"{where}.{field.name}", "it is NOT NULL")
        checked[field.name] = _checked(part, field.type, f"{where}.{field.name}")
    return checked


def fits(python: type, read: pa.DataType) -> bool:
    """Whether values of a type of Python can be of a type of Arrow, going by the types alone."""
    if issubclass(python, bool) and not kinds.is_boolean(read):
        return False  # Python calls True an int
    if issubclass(python, dt.datetime) and kinds.is_date(read):
        return False  # and a datetime a date
    return issubclass(python, next((taken for is_of, taken in _TAKEN if is_of(read)), object))


_BYTES: Final = (bytes, bytearray, memoryview)
_TAKEN: Final[tuple[tuple[Any, tuple[type, ...]], ...]] = (
    (kinds.is_boolean, (bool, np.bool_)),
    (kinds.is_integer, (int, np.integer)),
    (kinds.is_floating, (float, int, np.floating, np.integer)),
    (kinds.is_decimal, (Decimal, int)),
    (kinds.is_string, (str,)),
    (kinds.is_large_string, (str,)),
    (kinds.is_binary, _BYTES),
    (kinds.is_large_binary, _BYTES),
    (kinds.is_timestamp, (dt.datetime,)),
    (kinds.is_date, (dt.date,)),
    (kinds.is_list, (list, tuple)),
    (kinds.is_map, (Mapping,)),
    (kinds.is_struct, (Mapping, tuple)),
)


def _unfit(value: Any, read: pa.DataType, where: str, why: str | None = None) -> Invalid:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}…"
    kind = "" if value is None else f", which is {type(value).__name__}"
    hint = why
    if kinds.is_binary(read) and not isinstance(value, str):
        hint = 'a state has a schema, so objects are not pickled into it: name the fields as "struct<…>"'
    return Invalid(
        "this value is not of the declared type",
        where=where,
        found=f"{shown}{kind}",
        expected=type_text(read),
        hint=hint,
    )
