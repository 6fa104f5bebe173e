from __future__ import annotations

import datetime as dt
from collections import namedtuple
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.handler_arguments import record_class
from holdfast.worker.runtime.columns import Unfit, column_of, conformed, table_of

UTC = dt.timezone.utc
INSTANT = pa.timestamp("us", "UTC")
PLACE = pa.struct([("city", pa.string()), ("visits", pa.int64())])
OUTPUT = pa.schema([("customer", pa.string()), ("visits", pa.int64()), ("spend", pa.float64())])


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, np.int64(2)], pa.int64(), [1, None, 2]),
        ([1, 2.5, None], pa.float64(), [1.0, 2.5, None]),
        ([True, np.bool_(False), None], pa.bool_(), [True, False, None]),
        (["x", None], pa.string(), ["x", None]),
        ([b"x", bytearray(b"y")], pa.binary(), [b"x", b"y"]),
        ([Decimal("1.2"), 3], pa.decimal128(5, 2), [Decimal("1.20"), Decimal("3.00")]),
        ([dt.date(2020, 1, 2)], pa.date32(), [dt.date(2020, 1, 2)]),
        ([[1, None], None, ()], pa.list_(pa.int64()), [[1, None], None, []]),
        ([{"a": 1}, None, {}], pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []]),
        (
            [{"city": "x", "visits": 1}, ("y", None), None, {"city": "z"}],
            PLACE,
            [
                {"city": "x", "visits": 1},
                {"city": "y", "visits": None},
                None,
                {"city": "z", "visits": None},
            ],
        ),
        ([], PLACE, []),
        ([[{"city": "x", "visits": 1}]], pa.list_(PLACE), [[{"city": "x", "visits": 1}]]),
    ],
)
def test_values_become_columns(values: list[Any], kind: pa.DataType, expected: list[Any]) -> None:
    column = column_of(values, kind)
    assert column.type == kind
    assert column.to_pylist() == expected


def test_a_time_without_zone_is_in_utc() -> None:
    noon = dt.datetime(2020, 1, 1, 12)
    east = dt.datetime(2020, 1, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    column = column_of([noon, east], INSTANT)
    assert column.cast(pa.int64()).to_pylist() == [1_577_880_000_000_000] * 2


def test_a_struct_takes_the_parts_of_a_row_by_their_names() -> None:
    named = namedtuple("named", ["visits", "city"])
    values = [record_class(("visits", "city"))((1, "x")), named(2, "y"), ("z", 3)]
    cities = [row["city"] for row in column_of(values, PLACE).to_pylist()]
    assert cities == ["x", "y", "z"]


def test_nan_stays_nan() -> None:
    assert column_of([float("nan")], pa.float64()).null_count == 0


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (1.5, pa.int64()),
        (1.0, pa.int64()),
        (np.float64(1), pa.int64()),
        (True, pa.int64()),
        ("1", pa.int64()),
        (2**63, pa.int64()),
        (300, pa.int8()),
        (True, pa.float64()),
        (2**60 + 1, pa.float64()),
        (1, pa.bool_()),
        (1, pa.string()),
        (b"x", pa.string()),
        ("x", pa.binary()),
        (5, INSTANT),
        (dt.date(2020, 1, 1), INSTANT),
        (dt.datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("us")),
        (dt.datetime(2020, 1, 1), pa.date32()),
        (1.5, pa.decimal128(5, 2)),
        (Decimal("1.234"), pa.decimal128(5, 2)),
        ("ab", pa.list_(pa.string())),
        ({1, 2}, pa.list_(pa.int64())),
        ([1.5], pa.list_(pa.int64())),
        ([("a", 1)], pa.map_(pa.string(), pa.int64())),
        ({None: 1}, pa.map_(pa.string(), pa.int64())),
        ({"town": "x"}, PLACE),
        (("x",), PLACE),
        (record_class(("city", "count"))(("x", 1)), PLACE),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(bad: Any, kind: pa.DataType) -> None:
    with pytest.raises(Unfit) as refused:
        column_of([None, bad, None], kind)
    assert refused.value.at == 1
    assert refused.value.why.expected


def test_a_column_may_take_no_nulls() -> None:
    with pytest.raises(Unfit, match="null in a NOT NULL column") as refused:
        column_of([1, None], pa.int64(), nullable=False)
    assert refused.value.at == 1


def test_rows_are_dicts_tuples_and_rows_with_names() -> None:
    named = namedtuple("named", ["spend", "visits", "customer"])
    rows = [
        {"spend": 1.0, "customer": "a", "visits": 1},
        ("b", 2, 2.0),
        named(3.0, 3, "c"),
        record_class(("visits", "customer", "spend"))((4, "d", 4.0)),
    ]
    table = table_of(rows, OUTPUT)
    assert table.schema == OUTPUT
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("a", 1, 1.0),
        ("b", 2, 2.0),
        ("c", 3, 3.0),
        ("d", 4, 4.0),
    ]
    assert table_of([], OUTPUT).num_rows == 0


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"customer": "a", "visits": 1}, "no spend"),
        ({"customer": "a", "visits": 1, "spend": 1.0, "more": 1}, "extra more"),
        ({"customer": "a", "visit": 1, "spend": 1.0}, "no visits; extra visit"),
        (("a", 1), "2 fields"),
        ("abc", "'abc', which is str"),
        (["a", 1, 1.0], "['a', 1, 1.0], which is list"),
    ],
)
@pytest.mark.parametrize("before", [{"customer": "a", "visits": 1, "spend": 1.0}, ("a", 1, 1.0)])
def test_a_row_has_exactly_the_fields_of_the_output(before: Any, row: Any, found: str) -> None:
    with pytest.raises(Unfit) as refused:
        table_of([before, row], OUTPUT)
    assert (refused.value.at, refused.value.why.found) == (1, found)


def test_a_wrong_value_names_the_output_column() -> None:
    with pytest.raises(Unfit) as refused:
        table_of([("a", 1, 1.0), ("b", "two", 2.0)], OUTPUT)
    assert refused.value.at == 1
    assert refused.value.why.where == "output column visits"
    assert refused.value.why.found == "'two', which is str"


def test_a_returned_table_is_brought_into_the_output_schema() -> None:
    table = pa.table(
        {"visits": pa.array([1], pa.int32()), "customer": pa.array(["a"], pa.large_string()), "spend": [2]}
    )
    found = conformed(table, OUTPUT)
    assert found.schema == OUTPUT
    assert found.to_pylist() == [{"customer": "a", "visits": 1, "spend": 2.0}]
    assert conformed(found.to_batches()[0], OUTPUT).equals(found)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"customer": ["a"], "visits": [1]}, "do not match `output`"),
        ({"customer": ["a"], "visits": [1], "spend": [1.0], "more": [1]}, "do not match `output`"),
        ({"customer": [1], "visits": [1], "spend": [1.0]}, "the wrong type"),
        ({"customer": ["a"], "visits": [1.5], "spend": [1.0]}, "truncated"),
        ({"customer": ["a"], "visits": ["1"], "spend": [1.0]}, "the wrong type"),
    ],
)
def test_a_returned_table_that_does_not_fit_is_refused(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        conformed(pa.table(columns), OUTPUT)


def test_only_tables_are_tables() -> None:
    with pytest.raises(Invalid, match="did not return a table"):
        conformed([{"customer": "a"}], OUTPUT)
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(Invalid, match="null in a NOT NULL column"):
        conformed(pa.table({"a": pa.array([None], pa.int64())}), strict)
