"""Brings an array into another type, part by part; parts that stay are not copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa


class Reshape(Protocol):
    """One way to make an array of `type` out of an array of another type."""

    @property
    def type(self) -> pa.DataType:
        """The type of what comes out."""
        ...

    def of(self, array: pa.Array) -> pa.Array:
        """Give as many values as `array` has, null where it is null."""
        ...


@dataclass(frozen=True, slots=True)
class Same:
    """Leaves the array as it is."""

    type: pa.DataType

    def of(self, array: pa.Array) -> pa.Array:
        """Give the array back."""
        return array


@dataclass(frozen=True, slots=True)
class Cast:
    """Gives each value in another type that holds them all."""

    type: pa.DataType

    def of(self, array: pa.Array) -> pa.Array:
        """Convert; a value that does not fit is an error and never cut off."""
        return array.cast(self.type)


@dataclass(frozen=True, slots=True)
class Fill:
    """Gives one value again and again, for a field that was not stored."""

    type: pa.DataType
    value: pa.Scalar

    def of(self, array: pa.Array) -> pa.Array:
        """Give the value as often as `array`, the struct around it, is long."""
        if not self.value.is_valid or not len(array):
            return pa.nulls(len(array), self.type)
        return pa.repeat(self.value, len(array))


@dataclass(frozen=True, slots=True)
class InStruct:
    """Builds a struct out of the fields of another.

    Attributes:
        type: The new struct.
        sources: For each new field the place of its source among the old ones, None for none.
        parts: For each new field what to do to its source, or to the whole struct if it has none.
    """

    type: pa.DataType
    sources: tuple[int | None, ...]
    parts: tuple[Reshape, ...]

    def of(self, array: pa.StructArray) -> pa.StructArray:
        """Rebuild the struct around its fields; a null struct stays null."""
        children = [
            part.of(array if source is None else array.field(source))
            for source, part in zip(self.sources, self.parts, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=_mask(array))


@dataclass(frozen=True, slots=True)
class InList:
    """Changes the elements of lists."""

    type: pa.DataType
    inner: Reshape

    def of(self, array: pa.ListArray) -> pa.ListArray:
        """Change the elements that the array covers, and no others of a longer one it was cut from."""
        offsets, start, length = _offsets(array)
        values = self.inner.of(array.values.slice(start, length))
        return pa.ListArray.from_arrays(offsets, values, type=self.type, mask=_mask(array))


@dataclass(frozen=True, slots=True)
class InMap:
    """Changes the values of maps; keys stay as they are."""

    type: pa.DataType
    inner: Reshape

    def of(self, array: pa.MapArray) -> pa.MapArray:
        """Change the values of the entries that the array covers."""
        offsets, start, length = _offsets(array)
        keys = array.keys.slice(start, length)
        items = self.inner.of(array.items.slice(start, length))
        return pa.MapArray.from_arrays(offsets, keys, items, type=self.type, mask=_mask(array))


def _offsets(array: Any) -> tuple[pa.Array, int, int]:
    """Offsets that begin at zero, as a mask needs them, and the range of elements they stand for."""
    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    raw = array.offsets.to_numpy()
    start = int(raw[0])
    return pa.array(raw - start, pa.int32()), start, int(raw[-1]) - start


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
