"""Reads Spark's types out of text, as its own parser does, and says where a text goes wrong.

One thing is easier than in Spark: names with letters of any language need no backquotes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pyarrow as pa

from holdfast.errors import Invalid

UTC_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
MAX_DEPTH: Final = 64

EXPECTED = "a Spark type, such as long, string, decimal(10,2), array<int> or struct<a: int, b: string>"
SCHEMA = "a state has a schema: stored values are read by later versions of the job, and by other tools"
_LENGTH = ("a length is not checked where Python writes the value", 'write "string"')
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
    "interval": ("Arrow has no type that keeps Spark's intervals whole", "keep a long of milliseconds"),
    "variant": (
        "a variant is an encoding of Spark's own, without a type in Arrow",
        'keep the JSON text as "string", or the fields that are needed as "struct<…>"',
    ),
    "time": ("a time of day loses its precision on the way through Arrow", "keep a long of microseconds"),
    "void": ("a value that is always null needs no state", "name the type of the values to come"),
    "null": ("a value that is always null needs no state", "name the type of the values to come"),
    "object": (SCHEMA, 'write its fields as "struct<…>"'),
    "pickle": (SCHEMA, 'write its fields as "struct<…>"'),
    "udt": (SCHEMA, "write the fields of the user-defined type as struct<…>"),
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


class Reader:
    """Reads one text from left to right.

    Raises:
        Invalid: From every method, with the text and a mark under the place that is wrong.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def whole_type(self) -> pa.DataType:
        """Read the text as one type."""
        read = self._type()
        self._expect_end()
        return read

    def whole_schema(self) -> pa.Schema:
        """Read the text as columns with commas between them."""
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
            raise self._wrong(token, "nothing more")

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
            raise self._wrong(
                self._take(), "a string without a collation: Arrow compares strings byte by byte"
            )
        return simple

    def _nested(self, token: _Token, word: str) -> pa.DataType:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(token, f"at most {MAX_DEPTH} types inside each other")
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
                raise self._wrong(name, "each name once")
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
                self._take(), "no default in the text: a state takes `default=` and `field_defaults=`"
            )

    def _wrong(self, token: _Token, expected: str) -> Invalid:
        found = f"`{token.text}` at character {token.at + 1}" if token.text else "the end of the text"
        return Invalid(
            "this is not a type",
            where=self._place(token.at),
            found=found,
            expected=expected,
            hint="write types as in CREATE TABLE; names with other signs stand in backquotes",
        )

    def _refused(self, token: _Token) -> Invalid:
        reason, hint = REFUSED[token.text.lower()]
        return Invalid(
            f"state cannot keep the type {token.text.lower()}: {reason}",
            where=self._place(token.at),
            found=f"`{token.text}` at character {token.at + 1}",
            hint=hint,
        )

    def _place(self, at: int) -> str:
        """The text around a place on one line, and a mark below it; `  in ` stands before the line."""
        start = max(0, at - 60)
        line = re.sub(r"\s", " ", self._text[start : at + 40])
        return f"{line}\n{' ' * (len('  in ') + at - start)}^"
