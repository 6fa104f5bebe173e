"""Spark's hash of rows, which decides the partition of a key.

It is Murmur3 in 32 bits, field after field, each seeded with the hash so far, the first with 42. It is worked
out on the bytes of an UnsafeRow as they stand: a key is never taken apart and put together again for it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.text import damaged
from holdfast.worker.state.group_numbers import SEED, finish, mix

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
    """Spark's hash of the first fields of a row, as a signed number.

    Args:
        row: An UnsafeRow.
        fields: The fields of its schema, as in Spark's JSON.
        count: How many of them take part.
        where: The file, for messages.

    Raises:
        Corrupt: The row does not have these fields.
        Unsupported: A field has a type that Spark does not hash, or that is not known here.
    """
    value = SEED
    for index, field in enumerate(fields[:count]):
        value = _field(row, 0, len(fields), index, field["type"], value, where)
    return value - (1 << 32) if value & 0x80000000 else value


def require_hashed(kind: Any, where: str) -> None:
    """See that the hash of a type is known here.

    Raises:
        Unsupported: It is not.
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
    """The partition that Spark gives a row to."""
    return row_hash(row, fields, count, where) % partitions


def _field(row: bytes, base: int, width: int, index: int, kind: Any, seed: int, where: str) -> int:
    """Hash one field of a struct; an empty one leaves the hash as it is."""
    bits = (width + 63) // 64 * _WORD
    at = base + bits + index * _WORD
    if at + _WORD > len(row):
        raise damaged(_WHAT, where, f"{len(row)} bytes", f"at least {at + _WORD}")
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
        raise damaged(_WHAT, where, f"{len(row)} bytes", f"at least {start + size}")
    if kind.get("type") == "struct":
        for index, field in enumerate(kind["fields"]):
            seed = _field(row, start, len(kind["fields"]), index, field["type"], seed, where)
        return seed
    if kind.get("type") == "array":
        return _array(row, start, kind["elementType"], seed, where)
    raise _unknown(str(kind.get("type")), where)


def _unknown(kind: str, where: str) -> Unsupported:
    return Unsupported(
        "the hash of this type is not known here",
        where=where,
        found=kind,
        hint="keep the number of partitions, or let Spark move the keys with `holdfast rescale`, if RocksDB"
        " has them",
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
    """Where the bytes of a field of no fixed size are, and how many."""
    size, offset = struct.unpack_from("<II", row, at)
    if base + offset + size > len(row):
        raise damaged(_WHAT, where, f"{len(row)} bytes", f"at least {base + offset + size}")
    return base + offset, size


def _decimal(row: bytes, base: int, at: int, kind: str, seed: int, where: str) -> int:
    precision = int(kind.removeprefix("decimal(").partition(",")[0])
    if precision <= _SMALL_DECIMAL:
        return _long(_Q.unpack_from(row, at)[0], seed)
    start, size = _extent(row, base, at, where)
    return _bytes(row[start : start + size], seed)


def _without_sign_of_zero(data: bytes) -> int:
    """The bits of a float as a number; both zeros are one value, and so are all NaNs."""
    value = struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    if value == 0:
        return 0
    if value != value:  # noqa: PLR0124 - what a NaN is known by
        return 0x7FC00000 if len(data) == 4 else 0x7FF8 << 48
    return int.from_bytes(data, "little", signed=True)


def _int(value: int, seed: int) -> int:
    return finish(mix(seed, value & _MASK), 4)


def _long(value: int, seed: int) -> int:
    return finish(mix(mix(seed, value & _MASK), value >> 32 & _MASK), 8)


def _bytes(data: bytes, seed: int) -> int:
    """Four bytes at a time, then byte by byte: each of the last is a word of its own, with its sign."""
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        seed = mix(seed, word)
    for byte in data[whole:]:
        seed = mix(seed, (byte - 256 if byte & 0x80 else byte) & _MASK)
    return finish(seed, len(data))
