"""Helpers for Arrow columns and numpy arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Places = NDArray[np.int64]

_LOWEST = np.iinfo(np.int64).min


def numbers(column: pa.Array) -> NDArray[Any]:
    """Return a numeric column without nulls as a numpy array; avoid a copy if possible."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; copy only if it has several chunks."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def of_type(column: Any, kind: pa.DataType) -> Any:
    """Cast an array to a type, without loss.

    An array that already has the type is returned unchanged. Null structs keep their children as they are,
    because Arrow would report the nulls in those children as nulls in NOT NULL fields.
    """
    if column.type == kind:
        return column
    if not (column.null_count and pa.types.is_struct(kind)):
        return column.cast(kind)
    there = numbers(whole(column.is_valid()))
    order = np.cumsum(there) - 1
    return column.drop_null().cast(kind).take(pa.array(order, mask=~there))


def placed(column: pa.Array, at: Places, values: pa.Array) -> pa.Array:
    """Return a column with the cells at the indices `at` replaced by `values`."""
    if len(at) == len(column) and (at == np.arange(len(at))).all():
        return values
    order = np.arange(len(column))
    order[at] = len(column) + np.arange(len(at))
    return pa.concat_arrays([column, of_type(values, column.type)]).take(pa.array(order))


def offsets_of(counts: NDArray[Any]) -> Places:
    """Return the start offsets of consecutive parts with these sizes, followed by the total size."""
    return np.concatenate([[0], np.cumsum(counts)])


def starts_of(ordered: NDArray[Any]) -> Places:
    """Return the index at which each run of equal values starts in a sorted array."""
    if not len(ordered):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))


def first_rows(position: Places, size: int) -> Places:
    """Return the index of the first row of each key, or -1 for a key without rows; `position` is the key of
    each row.
    """
    first = np.full(size, -1)
    first[position[::-1]] = np.arange(len(position))[::-1]  # the last assignment wins
    return first


def last_rows(position: Places, size: int) -> Places:
    """Return the index of the last row of each key, or -1 for a key without rows; `position` is the key of
    each row.
    """
    last = np.full(size, -1)
    last[position] = np.arange(len(position))
    return last


def latest(position: Places, times: NDArray[Any], size: int) -> Places:
    """Return the latest time of each key; `position` is the key of each row.

    A key without rows gets the lowest int64.
    """
    newest = np.full(size, _LOWEST)
    np.maximum.at(newest, position, times)
    return newest


def distinct(h: Hashes, keys: pa.Table) -> tuple[Places, Places]:
    """Return the first row of each distinct key, and the key number of each row.

    Keys with equal hashes are compared by value, so two different keys are never merged.
    """
    _, first, position = np.unique(h, return_index=True, return_inverse=True)
    taken = keys.take(pa.array(first[position]))
    if all(same_cells(a, b).all() for a, b in zip(keys.columns, taken.columns, strict=True)):
        return first, position
    numbered: dict[tuple[Hashable, ...], int] = {}
    rows = zip(h.tolist(), *(column.to_pylist() for column in keys.columns), strict=True)
    at = np.array([numbered.setdefault(comparable_key(row), len(numbered)) for row in rows], np.int64)
    _, first = np.unique(at, return_index=True)
    return first, at


def comparable_key(cells: Iterable[Any]) -> tuple[Hashable, ...]:
    """Return a key as a tuple of values that can be compared and hashed; see `comparable`."""
    return tuple(map(comparable, cells))


def comparable(cell: Any) -> Hashable:
    """Return a cell as a value to compare and hash: NaN equals NaN and 0.0 equals -0.0, also in structs and
    lists.
    """
    if isinstance(cell, float):
        return "NaN" if cell != cell else cell + 0.0  # noqa: PLR0124 - NaN; -0.0 + 0.0 is 0.0
    if isinstance(cell, dict):
        return tuple((name, comparable(value)) for name, value in cell.items())
    if isinstance(cell, list):
        return tuple(map(comparable, cell))
    hashable: Hashable = cell
    return hashable


def same_cells(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of equal cells; nested cells count as equal only if both are null."""
    left, right = whole(left), whole(right)
    neither: NDArray[np.bool_] = numbers(pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_nested(left.type):
        return neither
    same: NDArray[np.bool_] = numbers(pc.fill_null(pc.equal(left, right), False))
    return neither | same
