"""Spark's hash of 64 bits: what Spark 4.2 gave for these values, and Spark's own rules."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Unsupported
from holdfast.formats.rows.xxhash64 import key_hashes, xxhash64

UTC = dt.timezone.utc
# select xxhash64(…) in Spark 4.2.0.
KNOWN = [
    (1, pa.int32(), -6698625589789238999),
    (1, pa.int64(), -7001672635703045582),
    (-5, pa.int32(), 9201179564109417620),
    (1.5, pa.float64(), 7738255526519901366),
    (None, pa.int32(), 42),
    (True, pa.bool_(), -6698625589789238999),
    (dt.date(2026, 3, 5), pa.date32(), 2171406172042045760),
    (dt.datetime(2026, 3, 5, 9, tzinfo=UTC), pa.timestamp("us", "UTC"), 4769604523483144892),
    (Decimal("12.34"), pa.decimal128(4, 2), -3802813071951760351),
    (Decimal("-1234567890123456789012.5"), pa.decimal128(38, 1), -8334185788029573723),
    ([1, None, 3], pa.list_(pa.int64()), 7452347529957652509),
    ({"x": 1, "y": "b"}, pa.struct([("x", pa.int32()), ("y", pa.string())]), 28649989522078021),
    (b"\x00\xff\x80", pa.binary(), 7869338589911211550),
    ("ann", pa.string(), 7160020621161744715),
    ("", pa.string(), -7444071767201028348),
    ("abcdefghijklmnopqrstuvwxyz0123456789é", pa.string(), 6299449163703261661),
    ("a text that is longer than thirty-two bytes", pa.string(), -8813302458738745550),
]


def signed(*columns: pa.Array) -> list[int]:
    table = pa.Table.from_arrays(list(columns), names=[str(at) for at in range(len(columns))])
    return [int(each) for each in xxhash64(table).view(np.int64)]


@pytest.mark.parametrize(("value", "kind", "expected"), KNOWN)
def test_as_spark_hashes(value: Any, kind: pa.DataType, expected: int) -> None:
    assert signed(pa.array([value], kind)) == [expected]
    # The same among others of other sizes, and behind a null.
    assert signed(pa.array([None, value, value], kind)) == [42, expected, expected]


def test_each_column_is_seeded_with_the_one_before() -> None:
    found = signed(pa.array(["ann"]), pa.array([7], pa.int32()))
    assert found == [-8008314129777084754]


def test_a_float_of_a_key_is_hashed_as_a_double() -> None:
    floats = [1.5, -0.0, 0.0, math.nan, None]
    narrow = key_hashes(pa.table({"key": pa.array(floats, pa.float32())}))
    wide = key_hashes(pa.table({"key": pa.array(floats, pa.float64())}))
    assert narrow.tolist() == wide.tolist()
    assert narrow[0].astype(np.int64) == 7738255526519901366
    assert narrow[1] == narrow[2]


def test_a_type_that_is_no_key() -> None:
    with pytest.raises(Unsupported, match="cannot be hashed"):
        signed(pa.array([None, [("a", 1)]], pa.map_(pa.string(), pa.int64())))
