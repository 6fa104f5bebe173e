from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.worker.declarations.types import parse_schema, parse_type, schema_text, type_text

Parser = Callable[[str], Any]
Writer = Callable[[Any], str]

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)
DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.builds(pa.decimal128, st.just(precision), st.integers(0, precision))
)
LEAVES = (
    st.sampled_from(
        [
            pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
            pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"),
        ]
    )
    | DECIMALS
)  # fmt: skip


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.tuples(NAMES, types, st.booleans()).map(lambda parts: pa.field(parts[0], parts[1], parts[2]))
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda each: each.name)


TYPES = st.recursive(
    LEAVES,
    lambda inner: inner.map(pa.list_) | st.builds(pa.map_, inner, inner) | fields_of(inner).map(pa.struct),
    max_leaves=8,
)


@given(TYPES)
def test_a_type_survives_being_written(arrow: pa.DataType) -> None:
    assert parse_type(type_text(arrow)) == arrow
    assert parse_type(arrow) == arrow


@given(fields_of(TYPES).map(pa.schema))
def test_a_schema_survives_being_written(schema: pa.Schema) -> None:
    read = parse_schema(schema_text(schema))
    assert read == schema


@given(
    st.text(max_size=30) | st.from_regex(r"[a-z<>(),: `'0-9]{0,30}", fullmatch=True),
    st.sampled_from([(parse_type, type_text), (parse_schema, schema_text)]),
)
def test_any_text_is_read_or_refused(text: str, parser: tuple[Parser, Writer]) -> None:
    """What is read is a type: written down, it reads as the same type."""
    parse, write = parser
    try:
        parsed = parse(text)
    except Invalid:
        return
    assert parse(write(parsed)) == parsed
