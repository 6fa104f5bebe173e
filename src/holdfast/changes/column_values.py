"""The conversion of values of state to wider types, and the merging of values exactly as in Spark."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any, Final

from holdfast.changes.state_columns import AGGREGATE, DEDUPE, StateColumn
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct

Convert = Callable[[Any], Any]

_INTEGERS: Final = ("byte", "short", "integer", "long")
# The maximum number of digits of whole numbers, and the widest types whose values a float represents exactly.
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN: Final = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float")}
_BOOLEANS: Final = {"true": True, "false": False}


def same(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def widening(old: DataType, new: DataType) -> Convert | None:
    """Return a function that converts values to a wider type; None if a value could be lost or changed."""
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
    if old in _INTEGERS and new in _INTEGERS:
        return same if _INTEGERS.index(new) >= _INTEGERS.index(old) else None
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


def has_text_form(type_: DataType) -> bool:
    """Return True if `value_from_text` can parse values of the type."""
    names = {*_INTEGERS, "float", "double", "boolean", "string"}
    return isinstance(type_, Decimal) or (isinstance(type_, Atom) and type_.name in names)


def value_from_text(text: str, type_: DataType) -> Any:
    """Parse a user's value of a type; `null` is None.

    Raises:
        ValueError: The text is not a value of the type, or the type has no text form.
    """
    if text.lower() == "null":
        return None
    if isinstance(type_, Decimal):
        try:
            return Number(text)
        except InvalidOperation as error:
            raise ValueError("not a number") from error
    name = type_.name if isinstance(type_, Atom) else ""
    if name in _INTEGERS:
        return int(text)
    if name in ("float", "double"):
        return float(text)
    if name == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if name == "string":
        return text
    raise ValueError("values of this type cannot be given as text")


Merge = Callable[[Any, Any], Any]

_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
_ORDERED: Final = _WHOLE | {"boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "micros"}


def spark_name(column: StateColumn) -> str:
    """Return Spark's name for the content of a column, without the number of its expression."""
    return column.kept or column.name.partition("#")[0]


def merge_function(kind: str, column: StateColumn) -> Merge | None:
    """Return the function that merges two values exactly as Spark merges partial results; None if unknown."""
    if kind != AGGREGATE:
        return keep_first if kind == DEDUPE else None
    decimal = isinstance(column.type, Decimal)
    whole = decimal or (isinstance(column.type, Atom) and column.type.name in _WHOLE)
    ordered = whole or (isinstance(column.type, Atom) and column.type.name in _ORDERED)
    kept = spark_name(column)
    if kept == "isEmpty":
        return _both
    if kept in ("count", "sum") and whole:
        return _decimal_sum if decimal else _not_null(_sum)
    return _not_null(_least if kept == "min" else _most) if kept in ("min", "max") and ordered else None


def keep_first(one: Any, _: Any) -> Any:
    """Return the first of two values."""
    return one


def _not_null(merge: Merge) -> Merge:
    return lambda one, other: one if other is None else other if one is None else merge(one, other)


def _both(one: Any, other: Any) -> Any:
    return one and other


def _sum(one: Any, other: Any) -> Any:
    return one + other


def _decimal_sum(one: Any, other: Any) -> Any:
    """Return the sum of two decimals; None stands for a sum that was too large for its type."""
    return None if one is None or other is None else one + other


def _least(one: Any, other: Any) -> Any:
    return min(one, other, key=_order)


def _most(one: Any, other: Any) -> Any:
    return max(one, other, key=_order)


def _order(value: Any) -> Any:
    """Return a sort key: Spark orders text by its bytes."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
