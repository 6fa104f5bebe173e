"""Keys as people write them, brought into the types of a state's columns."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal as Exact
from typing import Any

import pytest

from holdfast.at_rest.keys import typed_key
from holdfast.at_rest.state_reader import parse_key
from holdfast.errors import Invalid
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Struct

UTC = dt.timezone.utc
TEXT, LONG = Atom("string"), Atom("long")
ONE = Struct(("who",), (TEXT,))
TWO = Struct(("who", "n"), (TEXT, LONG))
WINDOW = Struct(("start", "end"), (Atom("timestamp"), Atom("timestamp")))


def column(type_: DataType) -> Struct:
    return Struct(("c",), (type_,))


@pytest.mark.parametrize(
    ("words", "columns", "expected"),
    [
        (["ann"], ONE, {"who": "ann"}),
        (["who=ann"], ONE, {"who": "ann"}),
        (['"ann"'], ONE, {"who": "ann"}),
        (["a=b"], ONE, {"who": "a=b"}),
        (["{x"], ONE, {"who": "{x"}),
        (['{"who": null}'], ONE, {"who": None}),
        (["17"], ONE, {"who": "17"}),
        (["who=ann", "n=3"], TWO, {"who": "ann", "n": 3}),
        (['{"n": 3, "who": "ann"}'], TWO, {"who": "ann", "n": 3}),
        (['["ann", 3]'], TWO, {"who": "ann", "n": 3}),
        ([], Struct((), ()), {}),
        (["{}"], Struct((), ()), {}),
    ],
)
def test_what_is_written_becomes_a_key(words: list[str], columns: Struct, expected: dict[str, Any]) -> None:
    assert parse_key(words, columns, "s") == expected


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("true", Atom("boolean"), True),
        ("-128", Atom("byte"), -128),
        ("1.5", Atom("double"), 1.5),
        ("-0.0", Atom("double"), 0.0),
        ("0x00ff", Atom("binary"), b"\x00\xff"),
        ("2026-03-05", Atom("date"), dt.date(2026, 3, 5)),
        ("2026-03-05T08:00:00Z", Atom("timestamp"), dt.datetime(2026, 3, 5, 8, tzinfo=UTC)),
        ("2026-03-05T09:00:00+01:00", Atom("timestamp"), dt.datetime(2026, 3, 5, 8, tzinfo=UTC)),
        ("2026-03-05T08:00:00", Atom("timestamp_ntz"), dt.datetime(2026, 3, 5, 8)),
        ("1.25", Decimal(10, 3), Exact("1.250")),
        ("[1, null]", Array(LONG), [1, None]),
    ],
)
def test_text_becomes_the_type_of_its_column(text: str, type_: DataType, expected: Any) -> None:
    assert parse_key([f"c={text}"], column(type_), "s") == {"c": expected}


def test_both_zeros_are_one_key_and_so_are_all_nans() -> None:
    assert math.copysign(1, parse_key(["-0.0"], column(Atom("double")), "s")["c"]) == 1
    assert math.isnan(parse_key(["NaN"], column(Atom("double")), "s")["c"])


def test_a_struct_within_a_key_is_written_as_json() -> None:
    columns = Struct(("window", "who"), (WINDOW, TEXT))
    window = '{"start": "2026-03-05T08:00:00Z", "end": "2026-03-05T08:02:00Z"}'
    found = parse_key([f"window={window}", "who=ann"], columns, "s")
    assert found["window"]["end"] == dt.datetime(2026, 3, 5, 8, 2, tzinfo=UTC)
    assert typed_key(json.loads(json.dumps(plain(found))), columns, "s") == found


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        (["ann"], TWO),
        (["who=ann"], TWO),
        (["n=x", "who=ann"], TWO),
        (['{"who": "ann", "n": "3"}'], TWO),
        (['{"who": "ann", "n": true}'], TWO),
        (['{"who": "ann", "n": 3, "m": 4}'], TWO),
        (["{broken"], TWO),
        ([], ONE),
        (["x"], Struct((), ())),
        (["128"], column(Atom("byte"))),
        (["9223372036854775808"], column(LONG)),
        (["yes"], column(Atom("boolean"))),
        (["ff"], column(Atom("binary"))),
        (["5 March"], column(Atom("date"))),
        (["2026-03-05T08:00:00Z"], column(Atom("timestamp_ntz"))),
        (["1.2345"], column(Decimal(10, 3))),
        (["12345678.1"], column(Decimal(10, 3))),
        (["one"], column(Decimal(10, 3))),
        (['{"a": 1}'], column(WINDOW)),
    ],
)
def test_what_does_not_fit_is_refused_with_the_columns(words: list[str], columns: Struct) -> None:
    with pytest.raises(Invalid) as refused:
        parse_key(words, columns, "aggregate")
    assert refused.value.where == "aggregate"
    assert all(name in str(refused.value) for name in columns.names) or not columns.names
