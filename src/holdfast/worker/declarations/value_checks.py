"""Checks that a Python value is one of a type, without bending it into one.

Arrow turns 5 into a timestamp, text into bytes and a struct's misspelt field into nothing. For a value
that a person wrote once, such as a default, each of these is a mistake.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.types import type_text


def check_value(value: Any, read: pa.DataType, where: str) -> pa.Scalar:
    """Give a value as an Arrow scalar; None fits every type.

    Raises:
        Invalid: The value is not of that type, with the path of the part that is not.
    """
    _check(value, read, where)
    try:
        return pa.scalar(value, type=read)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _unfit(value, read, where, str(error)) from error


def _check(value: Any, read: pa.DataType, where: str) -> None:
    if value is None:
        return
    if not _is_of(value, read):
        raise _unfit(value, read, where)
    if kinds.is_list(read):
        for at, element in enumerate(value):
            _check(element, read.value_type, f"{where}[{at}]")
    elif kinds.is_map(read):
        for key, item in value.items():
            if key is None:
                raise _unfit(None, read.key_type, f"{where}: a key")
            _check(key, read.key_type, f"{where}: a key")
            _check(item, read.item_type, f"{where}[{key!r}]")
    elif kinds.is_struct(read):
        _check_struct(value, read, where)


def _check_struct(value: Any, read: pa.DataType, where: str) -> None:
    names = [field.name for field in read]
    fields = value if isinstance(value, Mapping) else dict(zip(names, value, strict=False))
    if len(fields) != len(value) or len(value) > len(names) or any(name not in names for name in fields):
        raise _unfit(value, read, where)
    for field in read:
        part = fields.get(field.name)
        if part is None and not field.nullable:
            raise _unfit(part, field.type, f"{where}.{field.name}", "it is NOT NULL")
        _check(part, field.type, f"{where}.{field.name}")


def _is_of(value: Any, read: pa.DataType) -> bool:  # noqa: PLR0911 - one line a type
    if kinds.is_boolean(read):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kinds.is_integer(read):
        return isinstance(value, Integral)
    if kinds.is_floating(read):
        return isinstance(value, Real)
    if kinds.is_decimal(read):
        return isinstance(value, (Decimal, int))
    if kinds.is_string(read):
        return isinstance(value, str)
    if kinds.is_binary(read):
        return isinstance(value, (bytes, bytearray, memoryview))
    if kinds.is_timestamp(read):
        # A time with a zone names an instant, and timestamp_ntz has none.
        return isinstance(value, dt.datetime) and (read.tz is not None or value.tzinfo is None)
    if kinds.is_date(read):
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if kinds.is_list(read):
        return isinstance(value, (list, tuple))
    if kinds.is_map(read):
        return isinstance(value, Mapping)
    return isinstance(value, (Mapping, tuple))


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
