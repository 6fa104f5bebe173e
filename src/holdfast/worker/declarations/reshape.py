"""Brings an array into another type, part by part; parts that stay are not copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

# Gives as many values as an array has in another type, null where it is null.
Reshape = Callable[[Any], Any]


def cast(to: pa.DataType) -> Reshape:
    """Convert to a type that holds all values; one that does not fit is an error and never cut off."""
    return lambda array: array.cast(to)


def fill(to: pa.DataType, value: pa.Scalar) -> Reshape:
    """Give one value again and again, as often as the struct around it is long: it was not stored."""

    def filled(array: pa.Array) -> pa.Array:
        if not value.is_valid or not len(array):
            return pa.nulls(len(array), to)
        return pa.repeat(value, len(array))

    return filled


def in_struct(to: pa.DataType, sources: Sequence[int | None], parts: Sequence[Reshape | None]) -> Reshape:
    """Build a struct out of the fields of another; a null struct stays null.

    Args:
        to: The new struct.
        sources: For each new field the place of its source among the old ones, None for none.
        parts: For each new field what to do to its source, or to the whole struct if it has none.
    """

    def rebuilt(array: pa.StructArray) -> pa.StructArray:
        fields = [array if source is None else array.field(source) for source in sources]
        children = [field if part is None else part(field) for part, field in zip(parts, fields, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=_mask(array))

    return rebuilt


def in_list(to: pa.DataType, inner: Reshape) -> Reshape:
    """Change the elements that lists cover, and no others of a longer array that they were cut from."""

    def changed(array: pa.ListArray) -> pa.ListArray:
        offsets, start, length = _offsets(array)
        values = inner(array.values.slice(start, length))
        return pa.ListArray.from_arrays(offsets, values, type=to, mask=_mask(array))

    return changed


def in_map(to: pa.DataType, inner: Reshape) -> Reshape:
    """Change the values of the entries that maps cover; keys stay as they are."""

    def changed(array: pa.MapArray) -> pa.MapArray:
        offsets, start, length = _offsets(array)
        keys = array.keys.slice(start, length)
        items = inner(array.items.slice(start, length))
        return pa.MapArray.from_arrays(offsets, keys, items, type=to, mask=_mask(array))

    return changed


def _offsets(array: Any) -> tuple[pa.Array, int, int]:
    """Offsets that begin at zero, as a mask needs them, and the range of elements they stand for."""
    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    raw = array.offsets.to_numpy()
    start = int(raw[0])
    return pa.array(raw - start, pa.int32()), start, int(raw[-1]) - start


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
