"""Rows with one key told from those with others, by their hashes and exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.worker.state.tables.runs import numbers, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.state.tables.runs import Hashes


def distinct(h: Hashes, keys: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The keys that there are: where each comes first, and which of them each row has.

    Hashes are compared, and then the keys themselves, so that two keys with one hash stay apart. NaN
    counts as a key of its own in each row where a hash is shared.
    """
    _, first, position = np.unique(h, return_index=True, return_inverse=True)
    taken = keys.take(pa.array(first[position]))
    if all(_same(whole(a), whole(b)) for a, b in zip(keys.columns, taken.columns, strict=True)):
        return first, position
    numbered: dict[tuple[object, ...], int] = {}
    rows = zip(h.tolist(), *(column.to_pylist() for column in keys.columns), strict=True)
    at = np.array([numbered.setdefault(row, len(numbered)) for row in rows], np.int64)
    _, first = np.unique(at, return_index=True)
    return first, at


def _same(one: pa.Array, other: pa.Array) -> bool:
    nulls = pc.and_(one.is_null(), other.is_null())
    equal = pc.or_(pc.fill_null(pc.equal(one, other), False), nulls)
    return bool(numbers(equal.cast(pa.int8())).all())
