"""Spark's data types, from the JSON that schemas are written in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.text import damaged, json_value

_WHAT = "a schema"
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT: Final = re.compile(r"(?:char|varchar)\(\d+\)|string collate \w+")
_TIME: Final = re.compile(r"time\(\d\)")
_MONTHS: Final = re.compile(r"interval (?:year|month)(?: to month)?")
_MICROS: Final = re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?")
_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double")
_ATOMS: Final = frozenset(
    [*_NUMBERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "void"]
)


@dataclass(frozen=True, slots=True)
class Atom:
    """A type without parts.

    Attributes:
        name: Spark's name of it; `months` and `micros` are intervals, `calendar` is the old one of both,
            `time` a time of day.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal number."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Array:
    """A list of elements."""

    element: DataType


@dataclass(frozen=True, slots=True)
class Map:
    """Keys and values."""

    key: DataType
    value: DataType


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields.

    Attributes:
        names: The names; where two are the same, the later ones get a number, as in `ts`, `ts#1`.
        types: The types, in the same order.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]


DataType = Atom | Decimal | Array | Map | Struct


def parse_struct(text: str, where: str) -> Struct:
    """The type in a schema's JSON.

    Raises:
        Corrupt: Spark cannot have written it.
        Unsupported: It has a type that is not known here.
    """
    found = _type(json_value(text, _WHAT, where), where)
    if not isinstance(found, Struct):
        raise damaged(_WHAT, where, text, "a struct")
    return found


def _type(given: Any, where: str) -> DataType:
    if isinstance(given, str):
        return _named(given, where)
    try:
        kind = given["type"]
        if kind == "struct":
            fields = given["fields"]
            names = tuple(_unique(str(field["name"]) for field in fields))
            return Struct(names, tuple(_type(field["type"], where) for field in fields))
        if kind == "array":
            return Array(_type(given["elementType"], where))
        if kind == "map":
            return Map(_type(given["keyType"], where), _type(given["valueType"], where))
        if kind == "udt":
            return _type(given["sqlType"], where)
    except (KeyError, TypeError) as error:
        raise damaged(_WHAT, where, repr(given), "a type of Spark's") from error
    raise _unknown(str(kind), where)


def _named(name: str, where: str) -> DataType:
    if name in _ATOMS:
        return Atom(name)
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return Decimal(int(decimal[1]), int(decimal[2]))
    for pattern, atom in ((_TEXT, "string"), (_TIME, "time"), (_MONTHS, "months"), (_MICROS, "micros")):
        if pattern.fullmatch(name):
            return Atom(atom)
    if name == "interval":
        return Atom("calendar")
    if name == "null":
        return Atom("void")
    raise _unknown(name, where)


def _unique(names: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        again = seen.get(name)
        seen[name] = 0 if again is None else again + 1
        yield name if again is None else f"{name}#{again + 1}"


def _unknown(name: str, where: str) -> Unsupported:
    return Unsupported(
        "state of this type cannot be read yet",
        where=where,
        found=name,
        expected="numbers, text, binary, times, intervals, and structs, lists and maps of them",
        hint="read this state with Spark: spark.read.format('statestore')",
    )
