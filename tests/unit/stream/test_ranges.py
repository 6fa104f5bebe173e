"""Aggregates over ranges of sorted rows, in hand-worked cases."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.stream.measures import measures_of
from holdfast.stream.running import aggregate, ranges_before


def over(call: str, values: list[Any], kind: pa.DataType, *ranges: tuple[int, int]) -> list[Any]:
    schema = pa.schema([("v", kind)])
    (measure,) = measures_of({"m": call}, schema, (), where="here")
    column = None if measure.column is None else pa.array(values, kind)
    start, stop = (np.array(each, np.int64) for each in zip(*ranges, strict=True))
    found = aggregate(measure, column, start, stop)
    assert found.type == measure.output
    return list(found.to_pylist())


def test_a_range_is_of_one_key_and_both_its_ends_are_in_it() -> None:
    #                    0  1  2  3   4   5   6
    position = np.array([0, 0, 0, 0, 1, 1, 2])
    at = np.array([0, 10, 10, 21, 10, 20, -(2**63)])
    start, stop = ranges_before(position, at, np.arange(7), 10)
    assert start.tolist() == [0, 0, 0, 3, 4, 4, 6]
    assert stop.tolist() == [1, 3, 3, 4, 5, 6, 7]
    start, stop = ranges_before(position, at, np.array([5, 2]), 11)
    assert (start.tolist(), stop.tolist()) == ([4, 0], [6, 3])


def test_nulls_are_left_out() -> None:
    values = [None, 3, None, 4]
    ranges = [(0, 1), (0, 4), (2, 3), (1, 4)]
    assert over("count(*)", values, pa.int64(), *ranges) == [1, 4, 1, 3]
    assert over("count(v)", values, pa.int64(), *ranges) == [0, 2, 0, 2]
    assert over("sum(v)", values, pa.int64(), *ranges) == [None, 7, None, 7]
    assert over("avg(v)", values, pa.int64(), *ranges) == [None, 3.5, None, 3.5]
    assert over("min(v)", values, pa.int64(), *ranges) == [None, 3, None, 3]
    assert over("max(v)", values, pa.int64(), *ranges) == [None, 4, None, 4]


def test_what_is_retired_leaves_nothing_in_the_last_digits() -> None:
    # Subtracting 1e16 from a running total would leave 0.0 or 2.0 of the 1.1.
    assert over("sum(v)", [1e16, 1.1, -1e16, 0.1], pa.float64(), (0, 2), (1, 2), (1, 4), (3, 4)) == [
        1e16 + 1.1,
        1.1,
        -1e16 + 1.2,
        0.1,
    ]
    tenths = [0.1] * 1000
    assert over("sum(v)", tenths, pa.float64(), (0, 10), (990, 1000), (0, 1000)) == [1.0, 1.0, 100.0]
    assert over("avg(v)", [*tenths, 1e300], pa.float64(), (0, 10), (3, 1000)) == [0.1, 0.1]


def test_infinities_and_what_is_no_number_count_in_their_range_only() -> None:
    values = [1.0, math.inf, 2.0, -math.inf, 3.0, math.nan, 4.0]
    ranges = [(0, 1), (0, 2), (2, 5), (1, 4), (5, 7), (6, 7)]
    sums = over("sum(v)", values, pa.float64(), *ranges)
    assert sums[:3] == [1.0, math.inf, -math.inf]
    assert [math.isnan(each) for each in sums[3:5]] == [True, True]
    assert sums[5] == 4.0
    assert over("min(v)", values, pa.float64(), (5, 7), (2, 5)) == [4.0, -math.inf]
    assert math.isnan(over("max(v)", values, pa.float64(), (0, 7))[0])


def test_numbers_too_large_for_a_double_are_infinite_and_the_smallest_are_kept() -> None:
    assert over("sum(v)", [1e308, 1e308, -1e308], pa.float64(), (0, 2), (0, 3)) == [math.inf, 1e308]
    assert over("avg(v)", [1e308, 1e308], pa.float64(), (0, 2)) == [1e308]
    assert over("sum(v)", [5e-324, 5e-324], pa.float64(), (0, 2)) == [1e-323]


def test_whole_numbers_are_exact_beyond_a_double_and_refused_beyond_a_long() -> None:
    large = 2**62
    values = [large, large - 1, 1, -large, -large]
    assert over("sum(v)", values, pa.int64(), (0, 1), (0, 4), (3, 5)) == [large, large, -2 * large]
    assert over("avg(v)", [2**53 + 1, 2**53 + 1], pa.int64(), (0, 2)) == [float(2**53)]
    with pytest.raises(Invalid, match="overflows its type"):
        over("sum(v)", values, pa.int64(), (0, 3))


def test_decimals_are_exact_and_a_half_is_rounded_away_from_zero() -> None:
    cent, kind = Decimal("0.01"), pa.decimal128(10, 2)
    one_of_32 = [cent] + [Decimal(0)] * 31
    assert over("avg(v)", one_of_32, kind, (0, 32)) == [Decimal("0.000313")]
    assert over("avg(v)", [-each for each in one_of_32], kind, (0, 32)) == [Decimal("-0.000313")]
    assert over("sum(v)", [cent, None, -3 * cent], kind, (0, 1), (1, 2), (0, 3)) == [cent, None, -2 * cent]
    wide = pa.decimal128(38, 2)
    huge = Decimal(10) ** 35
    assert over("sum(v)", [huge, cent, None, -huge], wide, (0, 3), (1, 4), (0, 4)) == [
        Decimal("100000000000000000000000000000000000.01"),
        Decimal("-99999999999999999999999999999999999.99"),
        cent,
    ]
    with pytest.raises(Invalid, match="overflows its type"):
        over("sum(v)", [9 * huge] * 2, wide, (0, 2))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100])
def test_extremes_of_ranges_of_any_length(count: int) -> None:
    values = [(each * 37) % 101 for each in range(count)]
    ranges = [(a, b) for a in range(count) for b in range(a + 1, count + 1)]
    assert over("min(v)", values, pa.int32(), *ranges) == [min(values[a:b]) for a, b in ranges]
    texts = [f"{each:03}" for each in values]
    assert over("max(v)", texts, pa.string(), *ranges) == [max(texts[a:b]) for a, b in ranges]


def test_no_ranges_are_no_results() -> None:
    schema = pa.schema([("v", pa.float64())])
    none = np.zeros(0, np.int64)
    for call in ("count(*)", "sum(v)", "avg(v)", "min(v)", "max(v)"):
        (measure,) = measures_of({"m": call}, schema, (), where="here")
        assert len(aggregate(measure, pa.array([1.0]), none, none)) == 0
