"""Values brought into a wider type, where nothing is lost by that; and values from text."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any, Final

from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct

Convert = Callable[[Any], Any]

_WHOLE: Final = ("byte", "short", "integer", "long")
# How many digits a whole number may have, and the widest of them whose values a floating number has exactly.
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN: Final = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float")}
_BOOLEANS: Final = {"true": True, "false": False}


def same(value: Any) -> Any:
    """The value as it is."""
    return value


def widening(old: DataType, new: DataType) -> Convert | None:
    """What brings values of one type into another; None where a value could be lost or changed."""
    if old == new:
        return same
    if isinstance(new, Decimal):
        return _to_decimal(old, new)
    if isinstance(old, Atom) and isinstance(new, Atom):
        return _between(old.name, new.name)
    if isinstance(old, Struct) and isinstance(new, Struct):
        return _struct(old, new)
    return _inside(old, new)


def _to_decimal(old: DataType, new: Decimal) -> Convert | None:
    if isinstance(old, Decimal):
        whole = old.precision - old.scale
        return same if new.scale >= old.scale and new.precision - new.scale >= whole else None
    digits = _DIGITS.get(old.name) if isinstance(old, Atom) else None
    return Number if digits is not None and new.precision - new.scale >= digits else None


def _inside(old: DataType, new: DataType) -> Convert | None:
    if isinstance(old, Array) and isinstance(new, Array):
        return _array(widening(old.element, new.element))
    if isinstance(old, Map) and isinstance(new, Map) and old.key == new.key:
        return _map(widening(old.value, new.value))
    return None


def _between(old: str, new: str) -> Convert | None:
    if old == "void":
        return same
    if old in _WHOLE and new in _WHOLE:
        return same if _WHOLE.index(new) >= _WHOLE.index(old) else None
    return float if old in _EXACT_IN.get(new, ()) else None


def _array(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda values: [None if value is None else inner(value) for value in values]


def _map(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None

    def converted(given: Any) -> Any:
        pairs = given.items() if isinstance(given, dict) else given
        return [(key, None if value is None else inner(value)) for key, value in pairs]

    return converted


def _struct(old: Struct, new: Struct) -> Convert | None:
    if len(old.types) != len(new.types):
        return None
    parts = [widening(before, after) for before, after in zip(old.types, new.types, strict=True)]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    names = list(zip(old.names, new.names, known, strict=True))

    def converted(value: Any) -> Any:
        return {
            after: None if value[before] is None else convert(value[before])
            for before, after, convert in names
        }

    return converted


def value_from_text(text: str, type_: DataType) -> Any:
    """A value of a type, as a person writes it; `null` is none.

    Raises:
        ValueError: It is not one, or values of the type are not written so.
    """
    if text.lower() == "null":
        return None
    if isinstance(type_, Decimal):
        try:
            return Number(text)
        except InvalidOperation as error:
            raise ValueError("not a number") from error
    name = type_.name if isinstance(type_, Atom) else ""
    if name in _WHOLE:
        return int(text)
    if name in ("float", "double"):
        return float(text)
    if name == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if name == "string":
        return text
    raise ValueError("a value of this type cannot be written here")
