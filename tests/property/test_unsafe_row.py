"""Rows of any type come back from their bytes as they went in."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Corrupt, Invalid
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.spark_types import Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec

UTC = dt.timezone.utc
MICROS = 1 << 62


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    context = decimal.Context(prec=60)
    return st.integers(-most, most).map(lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale, context))


ATOMS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": whole(8),
    "short": whole(16),
    "integer": whole(32),
    "long": whole(64),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "varchar(20)": st.text(max_size=20),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "time(6)": st.integers(0, 86_400 * 10**9 - 1),
    "interval year to month": whole(32),
    "interval day to second": st.timedeltas(
        min_value=dt.timedelta(microseconds=-MICROS), max_value=dt.timedelta(microseconds=MICROS)
    ),
    "interval": st.tuples(whole(32), whole(32), whole(64)),
    "void": st.none(),
    "decimal(7,2)": decimals(7, 2),
    "decimal(18,0)": decimals(18, 0),
    "decimal(19,3)": decimals(19, 3),
    "decimal(38,18)": decimals(38, 18),
}
KEYS = ("long", "string", "date", "decimal(7,2)", "decimal(38,18)")


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type in Spark's JSON, and values of it."""
    kind = draw(st.sampled_from(["atom"] * 3 + (["struct", "array", "map"] if depth else [])))
    if kind == "atom":
        name = draw(st.sampled_from(sorted(ATOMS)))
        return name, ATOMS[name]
    if kind == "struct":
        return draw(structs(depth - 1))
    element, values = draw(types(depth - 1))
    if kind == "array":
        given_type = {"type": "array", "elementType": element, "containsNull": True}
        return given_type, st.lists(st.none() | values, max_size=70)
    key = draw(st.sampled_from(KEYS))
    given_type = {"type": "map", "keyType": key, "valueType": element, "valueContainsNull": True}
    return given_type, st.dictionaries(ATOMS[key], st.none() | values, max_size=5)


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    parts = draw(st.lists(types(depth), min_size=1, max_size=4))
    if draw(st.integers(0, 9)) == 0:
        parts *= 20  # more fields than one word of null bits has room for
    fields = [
        {"name": f"f{at}", "type": type_, "nullable": True, "metadata": {}}
        for at, (type_, _) in enumerate(parts)
    ]
    values = {f"f{at}": st.none() | each for at, (_, each) in enumerate(parts)}
    return {"type": "struct", "fields": fields}, st.fixed_dictionaries(values)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Struct, dict[str, Any]]:
    given_type, values = draw(structs())
    return parse_struct(json.dumps(given_type), ""), draw(values)


@given(rows())
def test_there_and_back(row: tuple[Struct, dict[str, Any]]) -> None:
    type_, values = row
    codec = RowCodec(type_)
    data = codec.encode(values)
    assert codec.decode(data) == values
    assert len(data) % 8 == 0
    assert codec.encode(codec.decode(data)) == data
    json.dumps(plain(values))


@given(rows(), st.data())
def test_damaged_bytes_are_refused_or_are_another_row(
    row: tuple[Struct, dict[str, Any]], data: st.DataObject
) -> None:
    """Bytes that are cut off or changed are `Corrupt` or a row, which is written and read again as itself."""
    codec = RowCodec(row[0])
    whole_row = codec.encode(row[1])
    at = data.draw(st.integers(0, len(whole_row) - 1))
    cut = whole_row[:at]
    changed = whole_row[:at] + data.draw(st.binary(min_size=1, max_size=9)) + whole_row[at + 1 :]
    for damaged in (cut, changed):
        try:
            decoded = codec.decode(damaged)
        except Corrupt:
            continue
        rewritten = codec.encode(decoded)
        assert codec.encode(codec.decode(rewritten)) == rewritten


def struct_of(*types_: Any) -> Struct:
    fields = [{"name": f"f{at}", "type": each, "nullable": True} for at, each in enumerate(types_)]
    return parse_struct(json.dumps({"type": "struct", "fields": fields}), "")


@pytest.mark.parametrize(
    ("types_", "values"),
    [
        (["long"], {}),
        (["long"], {"f0": "1"}),
        (["byte"], {"f0": 128}),
        (["decimal(3,1)"], {"f0": decimal.Decimal("100.1")}),
        (["decimal(3,1)"], {"f0": decimal.Decimal("1.11")}),
        (["string"], {"f0": 1}),
    ],
)
def test_values_of_another_type(types_: list[str], values: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="do not match the schema"):
        RowCodec(struct_of(*types_)).encode(values)


def test_bytes_as_spark_writes_them() -> None:
    """Worked out by hand from the format: a null bit a field, eight bytes each, the rest behind by eights."""
    row = RowCodec(struct_of("string", "integer", "long")).encode({"f0": "c10", "f1": -1, "f2": None})
    assert row == bytes.fromhex(
        "0400000000000000"  # the third is null
        "0300000020000000"  # three bytes at 32
        "ffffffff00000000"
        "0000000000000000"
        "6331300000000000"
    )
    nested = RowCodec(struct_of({"type": "array", "elementType": "short", "containsNull": True}))
    assert nested.encode({"f0": [1, None, 3]}) == bytes.fromhex(
        "0000000000000000"
        "1800000010000000"  # 24 bytes at 16
        "0300000000000000"
        "0200000000000000"  # the second is null
        "0100000003000000"
    )


def test_times_beyond_the_calendar() -> None:
    """Spark's years go further than Python's."""
    codec = RowCodec(struct_of("timestamp", "date"))
    row = codec.encode({"f0": 1 << 60, "f1": 2**31 - 1})
    assert codec.decode(row) == {"f0": 1 << 60, "f1": 2**31 - 1}


def test_names_that_are_there_twice() -> None:
    fields = [{"name": "ts", "type": "long", "nullable": True}] * 2
    type_ = parse_struct(json.dumps({"type": "struct", "fields": fields}), "")
    assert type_.names == ("ts", "ts#1")
