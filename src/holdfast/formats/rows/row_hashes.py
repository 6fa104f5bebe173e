"""Spark's hash of many rows at once: numpy works on those of the same shape side by side.

What `murmur3` does row by row, for the keys that state mostly has: numbers, times and text. It is a hundred
times as fast where many rows have text of the same lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.formats.rows.murmur3 import row_hash
from holdfast.worker.state.group_numbers import SEED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Of fewer of one shape numpy's calls cost more than the loop.
_FEW: Final = 16
_WORD: Final = 8
_TEXT: Final = ("string", "binary")
# Spark's type, as numpy reads it from a row, and whether it is hashed as a long.
_NUMBERS: Final = {
    "boolean": ("u1", False),
    "byte": ("i1", False),
    "short": ("<i2", False),
    "integer": ("<i4", False),
    "date": ("<i4", False),
    "long": ("<i8", True),
    "timestamp": ("<i8", True),
    "timestamp_ntz": ("<i8", True),
}


def row_hashes(
    rows: Sequence[bytes], fields: Sequence[Mapping[str, Any]], count: int, where: str
) -> list[int]:
    """Spark's hash of the first fields of each row, as `murmur3.row_hash` gives it.

    Args:
        rows: UnsafeRows of one schema.
        fields: The fields of the schema, as in Spark's JSON.
        count: How many of them take part.
        where: The file, for messages.

    Raises:
        Corrupt: A row does not have these fields.
        Unsupported: A field has a type that Spark does not hash, or that is not known here.
    """
    kinds = [field["type"] for field in fields[:count]]
    if not all(isinstance(kind, str) and (kind in _TEXT or kind in _NUMBERS) for kind in kinds):
        return [row_hash(row, fields, count, where) for row in rows]
    nulls = (len(fields) + 63) // 64 * _WORD
    texts = [nulls + index * _WORD for index, kind in enumerate(kinds) if kind in _TEXT]
    shapes: dict[bytes, list[int]] = {}
    for index, row in enumerate(rows):
        shape = (
            row[:nulls] + b"".join([row[at : at + _WORD] for at in texts]) + len(row).to_bytes(8, "little")
        )
        shapes.setdefault(shape, []).append(index)
    found = [0] * len(rows)
    for indexes in shapes.values():
        row = rows[indexes[0]]
        if len(indexes) < _FEW or not _is_whole(row, nulls + len(fields) * _WORD, texts):
            for index in indexes:
                found[index] = row_hash(rows[index], fields, count, where)
            continue
        values = _same_shape([rows[place] for place in indexes], kinds, nulls)
        for index, value in zip(indexes, values, strict=True):
            found[index] = value
    return found


def _is_whole(row: bytes, head: int, texts: Sequence[int]) -> bool:
    """Whether what the head says of places is within the row; where not, the slow way says so."""
    if len(row) < head:
        return False
    places = [struct.unpack_from("<II", row, at) for at in texts]
    return all(offset + size <= len(row) for size, offset in places)


def _same_shape(rows: list[bytes], kinds: Sequence[str], nulls: int) -> list[int]:
    import numpy as np

    data = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)
    first = rows[0]
    value = np.full(len(rows), SEED, dtype=np.uint32)
    for index, kind in enumerate(kinds):
        if first[index // 8] >> (index % 8) & 1:
            continue
        at = nulls + index * _WORD
        if kind in _TEXT:
            size, offset = struct.unpack_from("<II", first, at)
            value = _text(data[:, offset : offset + size], value)
            continue
        name, long = _NUMBERS[kind]
        width = np.dtype(name).itemsize
        numbers = np.ascontiguousarray(data[:, at : at + width]).view(name)[:, 0]
        low = numbers.astype(np.int64 if long else np.int32).astype(np.uint64 if long else np.uint32)
        value = _mix(value, (low & np.array(0xFFFFFFFF, dtype=low.dtype)).astype(np.uint32))
        if long:
            value = _mix(value, (low >> np.uint64(32)).astype(np.uint32))
        value = _finish(value, 8 if long else 4)
    hashes: list[int] = value.view(np.int32).tolist()
    return hashes


def _text(data: NDArray[np.uint8], value: Any) -> Any:
    import numpy as np

    size = data.shape[1]
    whole = size - size % 4
    for word in np.ascontiguousarray(data[:, :whole]).view("<u4").T:
        value = _mix(value, word)
    for column in range(whole, size):
        value = _mix(value, data[:, column].astype(np.int8).astype(np.int32).astype(np.uint32))
    return _finish(value, size)


def _mix(value: Any, word: Any) -> Any:
    import numpy as np

    word = word * np.uint32(0xCC9E2D51)
    word = (word << 15) | (word >> 17)
    value = value ^ (word * np.uint32(0x1B873593))
    value = (value << 13) | (value >> 19)
    return value * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(value: Any, length: int) -> Any:
    import numpy as np

    value = value ^ np.uint32(length)
    value = (value ^ (value >> 16)) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> 13)) * np.uint32(0xC2B2AE35)
    return value ^ (value >> 16)
