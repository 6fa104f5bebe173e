"""Rows of two runs: equal whatever their order and files, and every difference counted and shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.trials import comparison
from holdfast.jobs.trials.comparison import BatchOutput, compare_outputs
from holdfast.storage.memory import MemoryStorage

SCHEMA = pa.schema([("who", pa.string()), ("amount", pa.int64())])
Rows = list[tuple[str, int]]


def put_out(
    batches: Mapping[int, Iterable[Iterable[tuple[Any, ...]]]], schema: pa.Schema = SCHEMA
) -> MemoryStorage:
    """What a run has written: for each batch, its files with their rows."""
    files = {}
    for batch_id, parts in batches.items():
        for number, rows in enumerate(parts):
            table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
            buffer = pa.BufferOutputStream()
            pq.write_table(table, buffer)
            files[f"{batch_id}/part-{number}.parquet"] = buffer.getvalue().to_pybytes()
        files[f"{batch_id}/_SUCCESS"] = b""
        files[f"{batch_id}/.part-0.parquet.crc"] = b"crc"
    return MemoryStorage(files)


def test_order_and_files_are_of_no_account() -> None:
    one = put_out({3: [[("ann", 1), ("bob", 2)], [("ann", 1)]], 4: [[]]})
    other = put_out({3: [[("ann", 1)], [], [("ann", 1), ("bob", 2)]], 4: [[]]})
    found = compare_outputs(one, other, [3, 4], 5)
    assert found.equal
    assert found.same_rows
    assert found.batches == (BatchOutput(3, 3, 3, 0, 0), BatchOutput(4, 0, 0, 0, 0))
    assert (found.missing, found.extra) == ((), ())


def test_a_row_counts_as_often_as_it_is_there() -> None:
    one = put_out({0: [[("ann", 1)] * 3 + [("bob", 2)]]})
    other = put_out({0: [[("ann", 1), ("cid", 3)]]})
    found = compare_outputs(one, other, [0], 5)
    assert found.batches == (BatchOutput(0, 4, 2, 3, 1),)
    assert {(each.row["who"], each.count) for each in found.missing} == {("ann", 2), ("bob", 1)}
    assert [(each.batch_id, each.count, dict(each.row)) for each in found.extra] == [
        (0, 1, {"who": "cid", "amount": 3})
    ]
    assert not found.same_rows


def test_the_same_rows_in_other_batches_are_told_apart_from_other_rows() -> None:
    one, other = put_out({0: [[("ann", 1)]], 1: [[]]}), put_out({0: [[]], 1: [[("ann", 1)]]})
    found = compare_outputs(one, other, [0, 1], 5)
    assert not found.equal
    assert found.same_rows
    assert found.batches == (BatchOutput(0, 1, 0, 1, 0), BatchOutput(1, 0, 1, 0, 1))


def test_other_columns_are_a_difference_and_the_rest_is_compared() -> None:
    wider = pa.schema([("amount", pa.int32()), ("who", pa.string()), ("note", pa.string())])
    one, other = put_out({0: [[("ann", 1)]]}), put_out({0: [[(1, "ann", "new")]]}, wider)
    found = compare_outputs(one, other, [0], 5)
    assert found.original_columns == ("who string", "amount int64")
    assert found.new_columns == ("amount int32", "who string", "note string")
    assert found.batches == (BatchOutput(0, 1, 1, 0, 0),)
    assert not found.equal


@pytest.mark.parametrize(
    ("kind", "one", "other", "equal"),
    [
        (pa.float64(), 0.0, -0.0, True),
        (pa.float64(), float("nan"), float("nan"), True),
        (pa.float64(), 0.1 + 0.2, 0.3, False),
        (pa.string(), None, "", False),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 2)], False),
        (pa.list_(pa.int64()), [1, 2], [2, 1], False),
        (pa.struct([("x", pa.float64())]), {"x": -0.0}, {"x": 0.0}, True),
        (pa.binary(), b"\x00", b"\x01", False),
    ],
)
def test_values_are_equal_if_they_print_alike(kind: pa.DataType, one: Any, other: Any, equal: bool) -> None:
    schema = pa.schema([("value", kind)])
    found = compare_outputs(put_out({0: [[(one,)]]}, schema), put_out({0: [[(other,)]]}, schema), [0], 1)
    assert found.equal is equal


rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=12)


@given(rows, rows, st.integers(1, 4))
@pytest.mark.slow
def test_differences_are_those_of_the_multisets(one: Rows, other: Rows, at_once: int) -> None:
    before = comparison.ROWS_AT_ONCE
    try:
        comparison.ROWS_AT_ONCE = at_once  # type: ignore[misc]  # so few that it takes several passes
        found = compare_outputs(put_out({0: [one]}), put_out({0: [other]}), [0], 100)
    finally:
        comparison.ROWS_AT_ONCE = before  # type: ignore[misc]
    left, right = Counter(one), Counter(other)
    shown = {(each.row["who"], each.row["amount"]): each.count for each in found.missing}
    assert shown == dict(left - right)
    assert found.batches[0].missing == (left - right).total()
    assert found.batches[0].extra == (right - left).total()


def test_no_more_rows_are_shown_than_were_asked_for(tmp_path: Path) -> None:
    one = put_out({0: [[("ann", each) for each in range(9)]], 1: [[("bob", 1)]]})
    found = compare_outputs(one, put_out({0: [[]], 1: [[]]}), [0, 1], 4)
    assert len(found.missing) == 4
    assert compare_outputs(one, put_out({0: [[]], 1: [[]]}), [0, 1], 0).missing == ()
