"""Spark's hash of rows, which determines the partition of a key, for one row or for many rows at once.

The hash is 32-bit Murmur3 over the fields in order, each seeded with the hash of the preceding fields, the
first one with 42. It is computed on the bytes of an UnsafeRow, without decoding the key.

The vectorized computation is for the most frequent types of keys: numbers, times and strings. It is a hundred
times faster if many rows have strings of the same length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.rows.murmur3 import SEED, finish, mix
from holdfast.formats.text import damaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_MASK: Final = 0xFFFFFFFF
_WORD: Final = 8
_INTS: Final = frozenset({"boolean", "byte", "short", "integer", "date"})
_LONGS: Final = frozenset({"long", "timestamp", "timestamp_ntz"})
_ATOMS: Final = _INTS | _LONGS | {"float", "double", "string", "binary", "void"}
_SIZES: Final = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "date": 4, "float": 4}
_SMALL_DECIMAL: Final = 18
_WHAT = "a key of state"
_Q = struct.Struct("<q")


def row_hash(row: bytes, fields: Sequence[Mapping[str, Any]], count: int, where: str) -> int:
    """Return Spark's signed hash of the first fields of a row.

    Args:
        row: An UnsafeRow.
        fields: The fields of the row's schema, as in Spark's JSON.
        count: The number of fields to hash.
        where: The file, for error messages.

    Raises:
        Corrupt: The row is too short for these fields.
        Unsupported: A field has a type without a hash function.
    """
    value = SEED
    for index, field in enumerate(fields[:count]):
        value = _field(row, 0, len(fields), index, field["type"], value, where)
    return value - (1 << 32) if value & 0x80000000 else value


def require_hashed(kind: Any, where: str) -> None:
    """Check that Spark has a hash function for a type.

    Raises:
        Unsupported: The type or a part of it has no hash function.
    """
    if isinstance(kind, dict):
        if kind.get("type") == "struct":
            for field in kind["fields"]:
                require_hashed(field["type"], where)
        elif kind.get("type") == "array":
            require_hashed(kind["elementType"], where)
        else:
            raise _unknown(str(kind.get("type")), where)
    elif kind not in _ATOMS and not kind.startswith("decimal"):
        raise _unknown(kind, where)


def partition_of(
    row: bytes, fields: Sequence[Mapping[str, Any]], count: int, partitions: int, where: str
) -> int:
    """Return the Spark partition of a row."""
    return row_hash(row, fields, count, where) % partitions


def _field(row: bytes, base: int, width: int, index: int, kind: Any, seed: int, where: str) -> int:
    """Return the hash after one field of a struct; a null leaves the hash unchanged."""
    bits = (width + 63) // 64 * _WORD
    at = base + bits + index * _WORD
    if at + _WORD > len(row):
        raise damaged(_WHAT, where, f"{len(row)} bytes", f"at least {at + _WORD} bytes")
    if row[base + index // 8] >> (index % 8) & 1:
        return seed
    return _value(row, base, at, kind, seed, where)


def _value(row: bytes, base: int, at: int, kind: Any, seed: int, where: str) -> int:
    if isinstance(kind, dict):
        return _nested(row, *_extent(row, base, at, where), kind, seed, where)
    if kind in ("string", "binary"):
        start, size = _extent(row, base, at, where)
        return _bytes(row[start : start + size], seed)
    if kind.startswith("decimal"):
        return _decimal(row, base, at, kind, seed, where)
    return _fixed(row, at, kind, seed, where)


def _fixed(row: bytes, at: int, kind: str, seed: int, where: str) -> int:
    if kind in _LONGS:
        return _long(_Q.unpack_from(row, at)[0], seed)
    if kind in ("float", "double"):
        hashed = _int if kind == "float" else _long
        return hashed(_without_sign_of_zero(row[at : at + _SIZES.get(kind, _WORD)]), seed)
    if kind in _INTS:
        return _int(int.from_bytes(row[at : at + _SIZES[kind]], "little", signed=kind != "boolean"), seed)
    raise _unknown(kind, where)


def _nested(row: bytes, start: int, size: int, kind: Mapping[str, Any], seed: int, where: str) -> int:
    if start + size > len(row):
        raise damaged(_WHAT, where, f"{len(row)} bytes", f"at least {start + size} bytes")
    if kind.get("type") == "struct":
        for index, field in enumerate(kind["fields"]):
            seed = _field(row, start, len(kind["fields"]), index, field["type"], seed, where)
        return seed
    if kind.get("type") == "array":
        return _array(row, start, kind["elementType"], seed, where)
    raise _unknown(str(kind.get("type")), where)


def _unknown(kind: str, where: str) -> Unsupported:
    return Unsupported(
        f"the partitions of keys of type {kind} cannot be computed",
        code="HF-E7077",
        where=where,
        hint="keep the number of partitions; or, for state in RocksDB, let Spark move the keys with"
        " `holdfast rescale CHECKPOINT --partitions N`",
    )


def _array(row: bytes, start: int, kind: Any, seed: int, where: str) -> int:
    (count,) = _Q.unpack_from(row, start)
    first = start + _WORD + (count + 63) // 64 * _WORD
    size = _SIZES.get(kind, _WORD) if isinstance(kind, str) else _WORD
    for index in range(count):
        if not row[start + _WORD + index // 8] >> (index % 8) & 1:
            seed = _value(row, start, first + index * size, kind, seed, where)
    return seed


def _extent(row: bytes, base: int, at: int, where: str) -> tuple[int, int]:
    """Return the offset and the length of a field of variable size."""
    size, offset = struct.unpack_from("<II", row, at)
    if base + offset + size > len(row):
        raise damaged(_WHAT, where, f"{len(row)} bytes", f"at least {base + offset + size} bytes")
    return base + offset, size


def _decimal(row: bytes, base: int, at: int, kind: str, seed: int, where: str) -> int:
    precision = int(kind.removeprefix("decimal(").partition(",")[0])
    if precision <= _SMALL_DECIMAL:
        return _long(_Q.unpack_from(row, at)[0], seed)
    start, size = _extent(row, base, at, where)
    return _bytes(row[start : start + size], seed)


def _without_sign_of_zero(data: bytes) -> int:
    """Return the bits of a float as an integer, the same for both zeros, and the same for all NaNs."""
    value = struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    if value == 0:
        return 0
    if value != value:  # noqa: PLR0124 - true only for NaN
        return 0x7FC00000 if len(data) == 4 else 0x7FF8 << 48
    return int.from_bytes(data, "little", signed=True)


def _int(value: int, seed: int) -> int:
    return finish(mix(seed, value & _MASK), 4)


def _long(value: int, seed: int) -> int:
    return finish(mix(mix(seed, value & _MASK), value >> 32 & _MASK), 8)


def _bytes(data: bytes, seed: int) -> int:
    """Return the hash after bytes: four bytes at a time, then each remaining byte as a signed integer."""
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        seed = mix(seed, word)
    for byte in data[whole:]:
        seed = mix(seed, (byte - 256 if byte & 0x80 else byte) & _MASK)
    return finish(seed, len(data))


# With fewer rows of the same layout, numpy's calls take longer than the loop.
_FEW: Final = 16
_TEXT: Final = ("string", "binary")
# The numpy type for each Spark type in a row, and whether it is hashed as a long.
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
    """Return Spark's signed hash of the first fields of each row, as `row_hash` does.

    Args:
        rows: UnsafeRows with the same schema.
        fields: The fields of the schema, as in Spark's JSON.
        count: The number of fields to hash.
        where: The file, for error messages.

    Raises:
        Corrupt: A row is too short for these fields.
        Unsupported: A field has a type without a hash function.
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
    """Return whether all offsets in a row are within it; otherwise the slow path reports the error."""
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
