"""Keys that are one, whatever their types are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.worker.arrays import distinct

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (pa.int64(), [1, 2, 1, None, None]),
        (pa.float64(), [0.0, NAN, -0.0, None, None]),
        (pa.float64(), [NAN, 1.0, NAN, None, None]),
        (pa.struct([("x", pa.float64())]), [{"x": 0.0}, {"x": 1.0}, {"x": -0.0}, None, None]),
        (pa.struct([("x", pa.float64())]), [{"x": NAN}, {"x": None}, {"x": NAN}, None, None]),
        (pa.list_(pa.string()), [["a"], ["a", None], ["a"], None, None]),
    ],
)
def test_the_first_the_third_and_the_last_two_of_these_are_one_key_each(
    kind: pa.DataType, cells: list[Any]
) -> None:
    keys = pa.table({"key": pa.array(cells, kind)})
    for hashes in ([7, 8, 7, 9, 9], [7, 7, 7, 7, 7]):
        first, position = distinct(np.array(hashes, np.uint64), keys)
        assert first.tolist() == [0, 1, 3]
        assert position.tolist() == [0, 1, 0, 2, 2]
