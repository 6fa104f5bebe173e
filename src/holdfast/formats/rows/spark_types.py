"""Spark's data types, parsed from JSON, and their Arrow types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.text import damaged, json_value

if TYPE_CHECKING:
    import pyarrow as pa


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
    """A type without element types.

    Attributes:
        name: Spark's name of the type; `months` and `micros` are intervals, `calendar` is the old combined
            interval, and `time` a time of day.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal type with precision and scale."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array type with the type of its elements."""

    element: DataType


@dataclass(frozen=True, slots=True)
class Map:
    """A map type with the types of its keys and values."""

    key: DataType
    value: DataType


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct type with the names and types of its fields.

    Attributes:
        names: The names of the fields; later fields with the same name get a number, for example `ts#1` after
            `ts`.
        types: The types of the fields, in the same order.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]


DataType = Atom | Decimal | Array | Map | Struct


def parse_struct(text: str, where: str) -> Struct:
    """Parse the struct type in the JSON of a schema.

    Raises:
        Corrupt: The text is not in the format that Spark writes.
        Unsupported: The schema contains an unknown type.
    """
    found = _type(json_value(text, _WHAT, where), where)
    if not isinstance(found, Struct):
        raise damaged(_WHAT, where, text, "a struct")
    return found


def _type(given: Any, where: str) -> DataType:
    if isinstance(given, str):
        return _atom_of_name(given, where)
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
        raise damaged(_WHAT, where, repr(given), "a Spark type") from error
    raise _unknown(str(kind), where)


def _atom_of_name(name: str, where: str) -> DataType:
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
        f"state of type {name} cannot be read",
        code="HF-E7078",
        where=where,
        expected="numbers, text, binary, times, intervals, or structs, lists and maps of them",
        hint="read this state with Spark: spark.read.format('statestore')",
    )


def arrow_atoms() -> dict[str, pa.DataType]:
    """Return the Arrow types for types without element types, by Spark's names."""
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "months": pa.int32(),
        "micros": pa.duration("us"),
        "time": pa.time64("ns"),
        "void": pa.null(),
        "calendar": pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())]),
    }


def arrow_type(type_: DataType, atoms: Mapping[str, pa.DataType] | None = None) -> pa.DataType:
    """Return the Arrow type for a Spark type.

    Args:
        type_: The Spark type.
        atoms: The Arrow types for types without element types; by default those of `arrow_atoms`.

    Raises:
        KeyError: A type without element types is missing in `atoms`.
    """
    import pyarrow as pa

    atoms = arrow_atoms() if atoms is None else atoms
    if isinstance(type_, Decimal):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, Struct):
        fields = zip(type_.names, type_.types, strict=True)
        return pa.struct([pa.field(name, arrow_type(field, atoms)) for name, field in fields])
    if isinstance(type_, Array):
        return pa.list_(arrow_type(type_.element, atoms))
    if isinstance(type_, Map):
        return pa.map_(arrow_type(type_.key, atoms), arrow_type(type_.value, atoms))
    return atoms[type_.name]
