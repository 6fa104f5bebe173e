"""What a person writes, as values of a state's types: JSON for rows, JSON or `field=value` for keys."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.at_rest.mending.columns import Column, type_words
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.spark_types import Array, Atom, DataType, Decimal, Map, Struct

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64, "time": 64, "months": 32}
_UTC: Final = dt.timezone.utc


def typed(given: Any, type_: DataType, column: str, where: str) -> Any:
    """A value of a type, from what JSON has.

    Times are ISO 8601, in UTC where they say no zone; decimals are numbers or text; binary is Base64.

    Raises:
        Invalid: It is not of the type.
        Unsupported: There is no way to write this type.
    """
    if given is None:
        return None
    try:
        return _typed(given, type_)
    except (ValueError, TypeError, KeyError, decimal.DecimalException, binascii.Error) as error:
        raise Invalid(
            "the value is not of its column's type",
            where=f"{where}, column {column}",
            found=json.dumps(given, default=str, ensure_ascii=False)[:200],
            expected=type_words(type_),
        ) from error
    except NotImplementedError as error:
        raise Unsupported(
            "a value of this type cannot be given", where=f"{where}, column {column}", found=type_words(type_)
        ) from error


def key_given(text: str, columns: Sequence[Column], where: str) -> dict[str, Any]:
    """The key that a person has written: a JSON object, `field=value` with commas, or one bare word.

    Args:
        text: What was written.
        columns: The columns of the key.
        where: The state, for messages.

    Returns:
        The value of each column that was named.

    Raises:
        Invalid: It does not fit the key.
    """
    by_name = {each.name: each for each in columns}
    given = _fields(text, columns, where)
    found = {}
    for name, value in given.items():
        if name not in by_name:
            raise _unfit(text, columns, where)
        column = by_name[name]
        found[name] = (
            worded(value, column, where) if isinstance(value, str) else typed(value, column.type, name, where)
        )
    if not found:
        raise _unfit(text, columns, where)
    return found


def worded(text: str, column: Column, where: str) -> Any:
    """A value from bare text: text as it stands, else what JSON makes of it."""
    if column.type == Atom("string"):
        return text
    given: Any = text
    if not isinstance(column.type, Atom) or column.type.name in (*_BITS, "float", "double", "boolean"):
        try:
            given = json.loads(text)
        except ValueError:
            given = text
    return typed(given, column.type, column.name, where)


def _fields(text: str, columns: Sequence[Column], where: str) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            given = json.loads(text)
        except ValueError as error:
            raise Invalid("the key is no JSON", where=where, found=text, expected=str(error)) from error
        if isinstance(given, dict):
            return given
        raise _unfit(text, columns, where)
    names = {each.name for each in columns}
    if text.partition("=")[0].strip() in names and "=" in text:
        parts = [part.partition("=") for part in text.split(",")]
        return {name.strip(): value for name, _, value in parts}
    if len(columns) == 1:
        return {columns[0].name: text}
    raise _unfit(text, columns, where)


def _unfit(text: str, columns: Sequence[Column], where: str) -> Invalid:
    expected = ", ".join(f"{each.name} {type_words(each.type)}" for each in columns)
    return Invalid(
        "this is no key of the state",
        where=where,
        found=text,
        expected=expected or "a state with a key",
        hint='write it as JSON, such as {"customer": "c7"}, or as field=value',
    )


def _typed(given: Any, type_: DataType) -> Any:
    if isinstance(type_, Decimal):
        return _decimal(given, type_)
    if isinstance(type_, Array):
        return [None if each is None else _typed(each, type_.element) for each in _as(list, given)]
    if isinstance(type_, Map):
        return _map(_as(dict, given), type_)
    if isinstance(type_, Struct):
        fields = _as(dict, given)
        if set(fields) - set(type_.names):
            raise ValueError("fields that are not of the struct")
        return {
            name: None if fields.get(name) is None else _typed(fields[name], kind)
            for name, kind in zip(type_.names, type_.types, strict=True)
        }
    if type_.name in _BITS:
        return _whole(given, _BITS[type_.name])
    make = _ATOMS.get(type_.name)
    if make is None:
        raise NotImplementedError
    return make(given)


def _as(kind: type, given: Any) -> Any:
    if not isinstance(given, kind):
        raise TypeError(f"not a {kind.__name__}")
    return given


def _map(given: Mapping[str, Any], type_: Map) -> list[tuple[Any, Any]]:
    text = type_.key == Atom("string")
    return [
        (
            _typed(key if text else json.loads(key), type_.key),
            None if each is None else _typed(each, type_.value),
        )
        for key, each in given.items()
    ]


def _whole(given: Any, bits: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError("no whole number")
    if not -(1 << bits - 1) <= given < 1 << bits - 1:
        raise ValueError("out of range")
    return given


def _decimal(given: Any, type_: Decimal) -> decimal.Decimal:
    if isinstance(given, bool) or not isinstance(given, (int, float, str, decimal.Decimal)):
        raise TypeError("no number")
    found = decimal.Decimal(str(given))
    scaled = found.scaleb(type_.scale, decimal.Context(prec=80))
    if scaled != int(scaled) or abs(int(scaled)) >= 10**type_.precision:
        raise ValueError("more digits than it has")
    return found


def _float(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        raise TypeError("no number")
    if isinstance(given, str) and given not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError("no number")
    return float(given)


def _single(given: Any) -> float:
    found = _float(given)
    if math.isfinite(found) and abs(found) > 3.4028235677973366e38:
        raise ValueError("out of range")
    return found


def _moment(given: Any) -> dt.datetime:
    if isinstance(given, dt.datetime):
        found = given
    else:
        found = dt.datetime.fromisoformat(_as(str, given).replace("Z", "+00:00"))
    return found.replace(tzinfo=_UTC) if found.tzinfo is None else found.astimezone(_UTC)


def _naive(given: Any) -> dt.datetime:
    found = dt.datetime.fromisoformat(_as(str, given))
    if found.tzinfo is not None:
        raise ValueError("a zone where there is none")
    return found


_ATOMS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": lambda given: _as(bool, given),
    "float": _single,
    "double": _float,
    "string": lambda given: _as(str, given),
    "binary": lambda given: base64.b64decode(_as(str, given), validate=True),
    "date": lambda given: dt.date.fromisoformat(_as(str, given)),
    "timestamp": _moment,
    "timestamp_ntz": _naive,
    "micros": lambda given: dt.timedelta(seconds=_float(given)),
}
