"""Spark's types as text, and as Arrow types: read and written without a JVM.

Each Spark type here has exactly one Arrow type, the one that Spark itself uses when it hands rows to
Python, and the way back gives the same type. Types without such a twin are refused with the reason.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.ddl import EXPECTED, REFUSED, SCHEMA, UTC_TIMESTAMP, Reader

_WRITTEN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}
_PYTHON: Final[dict[Any, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.datetime: UTC_TIMESTAMP,
    dt.date: pa.date32(),
    Decimal: pa.decimal128(38, 18),
}
_GENERIC: Final = {
    list: '"array<long>"',
    tuple: '"array<long>" or "struct<a: long, b: string>"',
    set: '"array<long>"',
    dict: '"map<string, long>" or "struct<a: long, b: string>"',
}

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_type(given: Any) -> pa.DataType:
    """Read a type: Spark DDL, a plain Python type, a pyspark `DataType` (or its class) or an Arrow type.

    `int` is a long, `float` a double, `Decimal` a decimal(38,18), `datetime` a timestamp in UTC. A `NOT
    NULL` inside a struct is kept, a `COMMENT` is not.

    Raises:
        Invalid: It is no type, with the place in the text, or one that state cannot keep, with the reason.
    """
    if isinstance(given, str):
        return Reader(given).whole_type()
    if isinstance(given, pa.DataType):
        return parse_type(type_text(given))
    if hasattr(given, "jsonValue") and hasattr(given, "simpleString"):
        return _of_spark(given() if isinstance(given, type) else given)
    try:
        known = _PYTHON.get(given)
    except TypeError:  # not hashable, so it is no type
        known = None
    if known is not None:
        return known
    raise _no_type(given)


def parse_schema(text: str) -> pa.Schema:
    """Read the columns of a table out of text such as "customer string, visits long".

    Raises:
        Invalid: As `parse_type`, and where there is no column or a name comes twice.
    """
    return Reader(text).whole_schema()


def schema_of(given: Any) -> pa.Schema:
    """Read the columns of a table: text, a pyspark `StructType` or an Arrow schema.

    Raises:
        Invalid: As `parse_schema`.
    """
    if isinstance(given, str):
        return parse_schema(given)
    if isinstance(given, pa.Schema):
        return pa.schema([pa.field(field.name, parse_type(field.type), field.nullable) for field in given])
    read = parse_type(given)
    if not kinds.is_struct(read):
        raise Invalid(
            "a schema names columns",
            found=type_text(read),
            expected='columns, as in "customer string, visits long"',
            hint='write a name before each type: "customer string, visits long"',
        )
    return pa.schema(list(read))


def type_text(read: pa.DataType) -> str:
    """Write a type as Spark DDL; `parse_type` reads the same type back.

    Raises:
        Invalid: Spark has no such type.
    """
    written = _WRITTEN.get(read)
    if written is not None:
        return written
    if kinds.is_timestamp(read) and read.unit == "us":
        return "timestamp_ntz" if read.tz is None else "timestamp"
    if kinds.is_decimal128(read) and 0 <= read.scale <= read.precision:
        return f"decimal({read.precision},{read.scale})"
    if kinds.is_list(read) or kinds.is_large_list(read):
        return f"array<{type_text(read.value_type)}>"
    if kinds.is_map(read):
        return f"map<{type_text(read.key_type)}, {type_text(read.item_type)}>"
    if kinds.is_struct(read) and read.num_fields:
        return f"struct<{', '.join(_field_text(field, ': ') for field in read)}>"
    raise Invalid(
        "Spark has no type for this Arrow type",
        found=str(read),
        expected=EXPECTED,
        hint="cast the column to a type that Spark has, such as int64 or timestamp in microseconds",
    )


def schema_text(schema: pa.Schema) -> str:
    """Write the columns of a table as Spark DDL; `parse_schema` reads them back."""
    return ", ".join(_field_text(field, " ") for field in schema)


def name_text(name: str) -> str:
    """Write a name as Spark reads it, in backquotes where it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _field_text(field: pa.Field, between: str) -> str:
    return f"{name_text(field.name)}{between}{type_text(field.type)}{'' if field.nullable else ' NOT NULL'}"


def _of_spark(given: Any) -> pa.DataType:
    if " collate " in given.simpleString():
        return parse_type(given.simpleString())  # which says why not
    return _of_json(given.jsonValue())


def _of_json(value: Any) -> pa.DataType:
    """Read the form in which Spark keeps a schema: unlike `simpleString` it keeps names and nulls apart."""
    if isinstance(value, str):
        return parse_type(value)
    word = value["type"] if isinstance(value, Mapping) else ""
    if word == "array":
        return pa.list_(pa.field("element", _of_json(value["elementType"])))
    if word == "map":
        return pa.map_(_of_json(value["keyType"]), _of_json(value["valueType"]))
    if word == "struct" and value["fields"]:
        fields = [
            pa.field(field["name"], _of_json(field["type"]), nullable=field["nullable"])
            for field in value["fields"]
        ]
        if len({field.name for field in fields}) == len(fields):
            return pa.struct(fields)
        raise Invalid(
            "a name comes twice in a struct",
            found=", ".join(field.name for field in fields),
            hint="rename one of the fields",
        )
    return parse_type(word if word in REFUSED else "struct<>")


def _no_type(given: Any) -> Invalid:
    shown = given.__name__ if isinstance(given, type) else repr(given)
    if given is object:
        return Invalid(
            f"state cannot keep Python objects: {SCHEMA}",
            found=shown,
            expected=EXPECTED,
            hint='write its fields as "struct<name: string, visits: long>"',
        )
    origin = getattr(given, "__origin__", given)
    written = next((text for kind, text in _GENERIC.items() if origin is kind), None)
    plain = "the Python types int, float, str, bool, bytes, datetime, date and Decimal are read too"
    return Invalid(
        "this is not a type of state",
        found=shown,
        expected=EXPECTED,
        hint=f"write {written}" if written else plain,
    )
