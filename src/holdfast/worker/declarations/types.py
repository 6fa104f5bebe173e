"""Spark types: their text, their Arrow types, their field paths and their sizes.

Unlike in Spark, names with letters of any language need no backquotes.

Each Spark type has exactly one Arrow type, the one in which Spark sends rows to Python, and converts back to
the same type. Types without an equivalent are rejected with the reason.

Arrow converts 5 to a timestamp and text to bytes, and ignores a misspelt field of a struct. In a value that a
user wrote, such as a default, each of these is rejected.

Names in a path are joined by dots, and a name that contains a dot is in backquotes. An array's elements are
called `element`, and the two sides of a map `key` and `value`, as in Spark's `ALTER TABLE`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.state_descriptors import State, StateKind

UTC_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
MAX_DEPTH: Final = 64

EXPECTED = "a Spark type, such as long, string, decimal(10,2), array<int> or struct<a: int, b: string>"
SCHEMA = "later versions of the job and other tools must be able to read stored values"
_LENGTH = ("its length would not be enforced", 'use "string"')
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC_TIMESTAMP,
    "timestamp_ltz": UTC_TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
REFUSED: Final = {
    "char": _LENGTH,
    "character": _LENGTH,
    "varchar": _LENGTH,
    "interval": ("Arrow cannot represent every interval of Spark", "store milliseconds as long"),
    "variant": (
        "Arrow has no such type",
        'store the JSON text as "string", or the fields you need as "struct<…>"',
    ),
    "time": ("it loses precision in Arrow", "store microseconds as long"),
    "void": ("its values are always null", "declare the type of the values to come"),
    "null": ("its values are always null", "declare the type of the values to come"),
    "object": (SCHEMA, 'declare its fields as "struct<…>"'),
    "pickle": (SCHEMA, 'declare its fields as "struct<…>"'),
    "udt": (SCHEMA, "declare the fields of the user-defined type as struct<…>"),
}
_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[^\W\d]\w*)|(?P<number>[0-9]+)|`(?P<quoted>(?:[^`]|``)+)`
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<mark>[<>(),:]))""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str  # "word", "number", "quoted", "text", "mark" or "end"
    text: str
    at: int


class TypeReader:
    """A parser of types written as text.

    Raises:
        Invalid: The text is not a valid type; every method raises it. The message marks the error in the
            text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def whole_type(self) -> pa.DataType:
        """Parse the complete text as one type."""
        read = self._type()
        self._expect_end()
        return read

    def whole_schema(self) -> pa.Schema:
        """Parse the complete text as comma-separated columns."""
        fields = self._fields(until="")
        self._expect_end()
        return pa.schema(fields)

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._wrong(_Token("", self._text[at], at), EXPECTED)
            kind = str(match.lastgroup)
            start = match.end() - len(match[0].lstrip())
            tokens.append(
                _Token(kind, match[kind].replace("``", "`") if kind == "quoted" else match[kind], start)
            )
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _peek(self, *words: str) -> bool:
        token = self._tokens[self._next]
        return token.kind in ("word", "mark") and token.text.lower() in words

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token.kind not in ("mark", "word") or token.text.lower() != mark:
            raise self._wrong(token, f"`{mark}`")

    def _expect_end(self) -> None:
        token = self._take()
        if token.kind != "end":
            raise self._wrong(token, "the end of the text")

    def _type(self) -> pa.DataType:
        token = self._take()
        if token.kind != "word":
            raise self._wrong(token, EXPECTED)
        word = token.text.lower()
        if word in REFUSED:
            raise self._refused(token)
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word in ("array", "map", "struct"):
            return self._nested(token, word)
        simple = _SIMPLE.get(word)
        if simple is None:
            raise self._wrong(token, EXPECTED)
        if word == "string" and self._peek("collate"):
            raise self._wrong(self._take(), "string without a collation, since Arrow compares bytes")
        return simple

    def _nested(self, token: _Token, word: str) -> pa.DataType:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(token, f"at most {MAX_DEPTH} nested types")
        self._expect("<")
        if word == "array":
            read = pa.list_(pa.field("element", self._type()))
        elif word == "map":
            key = self._type()
            self._expect(",")
            read = pa.map_(key, self._type())
        else:
            read = pa.struct(self._fields(until=">"))
        self._expect(">")
        self._depth -= 1
        return read

    def _decimal(self) -> pa.DataType:
        if not self._peek("("):
            return pa.decimal128(10, 0)
        self._take()
        precision = self._digits("a precision of 1 to 38", 1, 38)
        scale = 0
        if self._peek(","):
            self._take()
            scale = self._digits(f"a scale of 0 to {precision}, the precision", 0, precision)
        self._expect(")")
        return pa.decimal128(precision, scale)

    def _digits(self, expected: str, least: int, most: int) -> int:
        token = self._take()
        if token.kind != "number" or len(token.text) > 4 or not least <= int(token.text) <= most:
            raise self._wrong(token, expected)
        return int(token.text)

    def _fields(self, until: str) -> list[pa.Field]:
        fields: dict[str, pa.Field] = {}
        while True:
            name = self._take()
            if name.kind not in ("word", "quoted"):
                raise self._wrong(name, f"a name, then a type{f' or `{until}`' if fields and until else ''}")
            if name.text in fields:
                raise self._wrong(name, "each name only once")
            if self._peek(":"):
                self._take()
            read = self._type()
            nullable = not self._peek("not")
            if not nullable:
                self._take()
                self._expect("null")
            self._comment()
            fields[name.text] = pa.field(name.text, read, nullable=nullable)
            if not self._peek(","):
                return list(fields.values())
            self._take()

    def _comment(self) -> None:
        if self._peek("comment"):
            self._take()
            token = self._take()
            if token.kind != "text":
                raise self._wrong(token, "a comment in quotes")
        elif self._peek("default", "generated"):
            raise self._wrong(
                self._take(),
                "a type without this clause; declare defaults with `default=` or `field_defaults=`",
            )

    def _wrong(self, token: _Token, expected: str) -> Invalid:
        found = f"`{token.text}` at character {token.at + 1}" if token.text else "the end of the text"
        return Invalid(
            "the declared type cannot be parsed",
            code="HF-E2459",
            where=self._place(token.at),
            found=found,
            expected=expected,
            hint="write types as in CREATE TABLE; put names with special characters in backquotes",
        )

    def _refused(self, token: _Token) -> Invalid:
        reason, hint = REFUSED[token.text.lower()]
        return Invalid(
            f"state cannot store the type {token.text.lower()}: {reason}",
            code="HF-E2460",
            where=self._place(token.at),
            found=f"`{token.text}` at character {token.at + 1}",
            hint=hint,
        )

    def _place(self, at: int) -> str:
        """Return the text around an index on one line, and below it a caret, indented to follow the prefix `
        in `.
        """
        start = max(0, at - 60)
        line = re.sub(r"\s", " ", self._text[start : at + 40])
        return f"{line}\n{' ' * (len('  in ') + at - start)}^"


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
    """Return the Arrow type for Spark DDL, a plain Python type, a pyspark `DataType` or its class, or an
    Arrow type.

    `int` is a long, `float` a double, `Decimal` a decimal(38,18), and `datetime` a timestamp in UTC. A `NOT
    NULL` inside a struct is kept; a `COMMENT` is ignored.

    Raises:
        Invalid: The argument is not a type, or state cannot store the type.
    """
    if isinstance(given, str):
        return TypeReader(given).whole_type()
    if isinstance(given, pa.DataType):
        return parse_type(type_text(given))
    if hasattr(given, "jsonValue") and hasattr(given, "simpleString"):
        return _of_spark(given() if isinstance(given, type) else given)
    try:
        known = _PYTHON.get(given)
    except TypeError:  # not hashable, so not a type
        known = None
    if known is not None:
        return known
    raise _no_type(given)


def parse_schema(text: str) -> pa.Schema:
    """Parse table columns from text such as "customer string, visits long".

    Raises:
        Invalid: A type is invalid, a column name is a duplicate, or there is no column.
    """
    return TypeReader(text).whole_schema()


def schema_of(given: Any) -> pa.Schema:
    """Return the columns of a table given as text, a pyspark `StructType` or an Arrow schema.

    Raises:
        Invalid: A type is invalid, a column name is a duplicate, or there is no column.
    """
    if isinstance(given, str):
        return parse_schema(given)
    if isinstance(given, pa.Schema):
        return pa.schema([pa.field(field.name, parse_type(field.type), field.nullable) for field in given])
    read = parse_type(given)
    if not kinds.is_struct(read):
        raise Invalid(
            "the schema has no column names",
            code="HF-E2461",
            found=type_text(read),
            expected='columns, as in "customer string, visits long"',
            hint='write a name before each type: "customer string, visits long"',
        )
    return pa.schema(list(read))


def type_text(read: pa.DataType) -> str:
    """Return a type as Spark DDL; `parse_type` reads the same type back.

    Raises:
        Invalid: Spark has no equivalent type.
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
        "Spark has no equivalent of this Arrow type",
        code="HF-E2462",
        found=str(read),
        expected=EXPECTED,
        hint="cast the column to a type of Spark, such as int64 or timestamp in microseconds",
    )


def schema_text(schema: pa.Schema) -> str:
    """Return the columns of a table as Spark DDL; `parse_schema` reads them back."""
    return ", ".join(_field_text(field, " ") for field in schema)


def name_text(name: str) -> str:
    """Return a name as Spark reads it, in backquotes if necessary."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _field_text(field: pa.Field, between: str) -> str:
    return f"{name_text(field.name)}{between}{type_text(field.type)}{'' if field.nullable else ' NOT NULL'}"


def _of_spark(given: Any) -> pa.DataType:
    if " collate " in given.simpleString():
        return parse_type(given.simpleString())  # raises an error with the reason
    return _of_json(given.jsonValue())


def _of_json(value: Any) -> pa.DataType:
    """Parse a type from Spark's JSON, which, unlike `simpleString`, keeps quoted names and nullability."""
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
        names = [field.name for field in fields]
        if len(set(names)) == len(names):
            return pa.struct(fields)
        raise Invalid(
            "two fields of a struct have the same name",
            code="HF-E2463",
            found=", ".join(name for name, count in Counter(names).items() if count > 1),
            hint="rename one of the two fields",
        )
    return parse_type(word if word in REFUSED else "struct<>")


def _no_type(given: Any) -> Invalid:
    shown = given.__name__ if isinstance(given, type) else repr(given)
    if given is object:
        return Invalid(
            f"state cannot store Python objects: {SCHEMA}",
            code="HF-E2464",
            found=shown,
            expected=EXPECTED,
            hint='declare the fields of the object as "struct<name: string, visits: long>"',
        )
    origin = getattr(given, "__origin__", given)
    written = next((text for kind, text in _GENERIC.items() if origin is kind), None)
    plain = "use a Spark type, or int, float, str, bool, bytes, datetime, date or Decimal"
    return Invalid(
        "the declared type is not valid",
        code="HF-E2465",
        found=shown,
        expected=EXPECTED,
        hint=f"write {written}" if written else plain,
    )


# The hash and the ordinal of a key in a row, and both with the slot of an element in a row.
ROW_BYTES: Final = 8 + 4
ELEMENT_BYTES: Final = 8 + 4 + 8
STAMP_BYTES: Final = 8
SLOT_BYTES: Final = 8
OFFSET_BYTES: Final = 4
# One timer: its text with an offset, and the columns of the two clocks.
TIMER_BYTES: Final = 24 + OFFSET_BYTES + 2 * 8


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The assumed sizes of values of variable size.

    Attributes:
        text_bytes: The length of a string or binary.
        elements: The number of elements per key in a list or map state.
        nested: The number of elements of an array or a map inside a value.
    """

    text_bytes: int = 16
    elements: int = 10
    nested: int = 4


def value_bytes(read: pa.DataType, assumed: Assumptions) -> int:
    """Estimate the size in bytes of a value in an Arrow column, before compression and without null bits."""
    if kinds.is_boolean(read):
        return 1
    if kinds.is_string(read) or kinds.is_binary(read):
        return OFFSET_BYTES + assumed.text_bytes
    if kinds.is_list(read):
        return OFFSET_BYTES + assumed.nested * value_bytes(read.value_type, assumed)
    if kinds.is_map(read):
        entry = value_bytes(read.key_type, assumed) + value_bytes(read.item_type, assumed)
        return OFFSET_BYTES + assumed.nested * entry
    if kinds.is_struct(read):
        return sum(value_bytes(field.type, assumed) for field in read)
    return int(read.bit_width) // 8


def varies(read: pa.DataType) -> bool:
    """Return whether values of a type differ in size."""
    if kinds.is_struct(read):
        return any(varies(field.type) for field in read)
    return bool(kinds.is_string(read) or kinds.is_binary(read) or kinds.is_list(read) or kinds.is_map(read))


def state_bytes(state: State, assumed: Assumptions) -> int:
    """Estimate the size in bytes of one state of one key: its cell in the key's row, or all its elements."""
    stamp = STAMP_BYTES if state.ttl else 0
    one = value_bytes(state.type, assumed) + stamp
    if state.kind not in (StateKind.LIST, StateKind.MAP):
        return one
    key = value_bytes(state.key_type, assumed) if state.key_type is not None else 0
    return SLOT_BYTES + assumed.elements * (ELEMENT_BYTES + key + one)


def check_value(value: Any, read: pa.DataType, where: str) -> pa.Scalar:
    """Return a value as an Arrow scalar; None fits every type.

    Raises:
        Invalid: The value or a part of it does not match the type.
    """
    checked = _checked(value, read, where)
    try:
        return pa.scalar(checked, type=read)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _unfit(value, read, where, f"convert the value: {error}") from error


def cells_of(value: tuple[Any, ...], names: tuple[str, ...]) -> Sequence[Any]:
    """Return the cells of a tuple in the order of a struct's fields; a tuple with field names is matched by
    name.

    Raises:
        TypeError: The tuple has different names or a different length than the struct.
    """
    # A named tuple, an event, or a Spark Row created with names.
    given = getattr(value, "_fields", None) or getattr(value, "__fields__", None)
    if given is None or given == names:
        if len(value) != len(names):
            raise TypeError(f"a struct takes a dict or a tuple of {', '.join(names)}, not {value!r}")
        return value
    cells = list(value)
    return [cells[at] for at in _places(tuple(given), names)]


@lru_cache(maxsize=1024)
def _places(given: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    if sorted(given) != sorted(names):
        raise TypeError(
            f"a tuple of {', '.join(given)} does not match a struct of {', '.join(names)}: "
            "pass a dict, or a plain tuple in the order of the fields"
        )
    return [given.index(name) for name in names]


def _checked(value: Any, read: pa.DataType, where: str) -> Any:
    """Return the value with dicts in place of structs, after checking that it matches the type."""
    if value is None:
        return None
    # A datetime with a time zone is an instant, which timestamp_ntz cannot represent.
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
        raise _unfit(value, read, where, "pass a dict, or a tuple with a value for each field") from error
    if any(name not in names for name in fields):
        raise _unfit(value, read, where)
    checked = {}
    for field in read:
        part = fields.get(field.name)
        if part is None and not field.nullable:
            raise _unfit(part, field.type, f"{where}.{field.name}", "give a value, or remove NOT NULL")
        checked[field.name] = _checked(part, field.type, f"{where}.{field.name}")
    return checked


def fits(python: type, read: pa.DataType) -> bool:
    """Return whether values of a Python type can be stored in an Arrow type, judged by the types alone."""
    if issubclass(python, bool) and not kinds.is_boolean(read):
        return False  # in Python a bool is an int
    if issubclass(python, dt.datetime) and kinds.is_date(read):
        return False  # and a datetime is a date
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
        hint = 'declare the fields of the object as "struct<…>" instead of pickling it'
    return Invalid(
        "a value does not match the declared type",
        code="HF-E2466",
        where=where,
        found=f"{shown}{kind}",
        expected=type_text(read),
        hint=hint,
    )


Former = Mapping[str, "str | Sequence[str]"]


def join_path(path: str, name: str) -> str:
    """Return a path extended by a field name, in backquotes if the name contains a dot."""
    part = f"`{name}`" if "." in name else name
    return f"{path}.{part}" if path else part


def paths_of(declared: pa.DataType, path: str = "") -> dict[str, pa.Field]:
    """Return the fields of all structs within a type, by path."""
    paths: dict[str, pa.Field] = {}
    if kinds.is_list(declared):
        paths.update(paths_of(declared.value_type, join_path(path, "element")))
    elif kinds.is_map(declared):
        paths.update(paths_of(declared.key_type, join_path(path, "key")))
        paths.update(paths_of(declared.item_type, join_path(path, "value")))
    elif kinds.is_struct(declared):
        for field in declared:
            here = join_path(path, field.name)
            paths[here] = field
            paths.update(paths_of(field.type, here))
    return paths


def check_paths(
    name: str, declared: pa.DataType, fields_were: Former, field_defaults: Mapping[str, Any]
) -> None:
    """Check the former names and the defaults of a state's fields against its type.

    Raises:
        Invalid: A path names no field, a default does not match its type, or a former name is the name of a
            field.
    """
    fields = paths_of(declared)
    for option, paths in (("fields_were", fields_were), ("field_defaults", field_defaults)):
        for path in paths:
            if path not in fields:
                raise Invalid(
                    f"{option} names an undeclared field",
                    code="HF-E2467",
                    where=name,
                    found=path,
                    expected="one of " + ", ".join(fields) if fields else "a state of a struct type",
                    hint="write the path of a declared field, as in address.street",
                )
    for path, value in field_defaults.items():
        check_value(value, fields[path].type, f"{name}, default of {path}")
    claims: dict[str, str] = {}
    for path, former in fields_were.items():
        parent = path[: -len(join_path("", fields[path].name))]
        for old_name in names_of(former):
            claimed = parent + join_path("", old_name)
            if claimed in fields:
                raise Invalid(
                    "the former name of a field is still in use",
                    code="HF-E2468",
                    where=f"{name}, {path}",
                    found=f'fields_were "{path}": "{old_name}", and a field {claimed}',
                    hint=f"remove the former name, or give the field {claimed} a name that was never used",
                )
            if claimed in claims:
                raise Invalid(
                    "two fields have the same former name",
                    code="HF-E2469",
                    where=name,
                    found=f"{claims[claimed]} and {path} were both {old_name}",
                    hint="remove the former name from the field that never had it",
                )
            claims[claimed] = path


def names_of(former: str | Sequence[str]) -> tuple[str, ...]:
    """Return the former names of one field as a tuple, newest first."""
    return (former,) if isinstance(former, str) else tuple(former)
