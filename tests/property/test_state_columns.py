"""Rows taken apart by the column are those that are taken apart one by one."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from drawn_examples import MORE
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.at_rest.keys import ColumnDecoder
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct, arrow_type
from holdfast.formats.rows.unsafe_row import RowCodec

UTC = dt.timezone.utc
CENT = decimal.Decimal("0.01")
EXACT = decimal.Context(prec=60)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def cents(digits: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda each: EXACT.multiply(decimal.Decimal(each), CENT))


ATOMS: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (Atom("boolean"), st.booleans()),
    (Atom("byte"), whole(8)),
    (Atom("short"), whole(16)),
    (Atom("integer"), whole(32)),
    (Atom("long"), whole(64)),
    (Atom("double"), st.floats(allow_nan=False)),
    (Atom("float"), st.floats(width=32, allow_nan=False)),
    (Atom("string"), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    (Atom("binary"), st.binary(max_size=20)),
    (Atom("date"), st.dates()),
    (Atom("timestamp"), st.datetimes(timezones=st.just(UTC))),
    (Atom("timestamp_ntz"), st.datetimes()),
    (Decimal(10, 2), cents(10)),
    (Decimal(30, 2), cents(30)),
]


def parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Types of several parts, each with what makes its values."""
    nullable = inner.map(lambda pair: (pair[0], st.none() | pair[1]))
    lists = nullable.map(lambda pair: (Array(pair[0]), st.lists(pair[1], max_size=4)))
    maps = nullable.map(
        lambda pair: (Map(Atom("long"), pair[0]), st.dictionaries(whole(64), pair[1], max_size=3))
    )
    return lists | maps | structs(inner)


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def made(pairs: list[Any]) -> tuple[DataType, st.SearchStrategy[Any]]:
        names = tuple(f"f{at}" for at in range(len(pairs)))
        values = {name: st.none() | pair[1] for name, pair in zip(names, pairs, strict=True)}
        return Struct(names, tuple(pair[0] for pair in pairs)), st.fixed_dictionaries(values)

    return st.lists(inner, min_size=1, max_size=4).map(made)


ROWS = structs(st.recursive(st.sampled_from(ATOMS), parts, max_leaves=4)).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), st.lists(pair[1], min_size=1, max_size=8))
)


def told(value: Any) -> Any:
    """A value as it is compared: times in UTC under whatever name, maps as pairs."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dict):
        return [[key, told(each)] for key, each in value.items()]
    return [told(each) for each in value] if isinstance(value, (list, tuple)) else value


@settings(max_examples=60 * MORE)
@given(ROWS)
def test_columns_hold_what_rows_hold(drawn: tuple[Struct, list[dict[str, Any]]]) -> None:
    type_, values = drawn
    codec = RowCodec(type_)
    stored = [codec.encode(each) for each in values]
    expected = [told(codec.decode(row)) for row in stored]
    found = ColumnDecoder(type_, "").take_apart(stored)
    for column, each in zip(found, type_.types, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(each)
    cells = zip(*(column.to_pylist() for column in found), strict=True)
    rows = [dict(zip(type_.names, row, strict=True)) for row in cells]
    assert [told(row) for row in rows] == expected
    # And where all rows are of one length, with what stands before them in a store.
    checked = [b"\0\0\0\0" + (len(row) + 1).to_bytes(4, "little") + b"\0" + row for row in stored]
    behind = ColumnDecoder(type_, "").take_apart_behind(checked, 9)
    if len({len(row) for row in stored}) == 1:
        assert behind is not None
        assert pa.table(behind, list(type_.names)) == pa.table(found, list(type_.names))
    else:
        assert behind is None
