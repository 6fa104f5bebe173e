"""Spark's 64-bit hash, by which keys of Holdfast's keyed state are found and assigned to key groups.

The hash is xxHash64, column by column, each seeded with the hash of the preceding columns, the first one with
42. Complete columns are hashed at once; a null leaves the hash unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

SEED: Final = 42
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_MASK: Final = (1 << 64) - 1
_SMALL_DECIMAL: Final = 18


def xxhash64(keys: pa.Table) -> Hashes:
    """Return the unsigned hash of each row, equal to the result of Spark's `xxhash64`.

    Both zeros have the same hash, and so do all NaNs. A number takes about 0.1 microseconds and a short
    string 0.3; lists and decimals in keys are hashed one at a time.

    Raises:
        Unsupported: A column has a type without a hash function.
    """
    import numpy as np

    hashes: Any = np.full(keys.num_rows, SEED, np.uint64)
    with np.errstate(over="ignore"):
        for column in keys.columns:
            hashes = _column(column.combine_chunks(), hashes)
    found: Hashes = hashes
    return found


def key_hashes(keys: pa.Table) -> Hashes:
    """Return the hashes of keys in keyed state, in which a 32-bit float is hashed as a double.

    Raises:
        Unsupported: A column has a type without a hash function.
    """
    import pyarrow as pa

    wide = [field.with_type(pa.float64()) if field.type == pa.float32() else field for field in keys.schema]
    return xxhash64(keys.cast(pa.schema(wide)))


def _column(column: Any, seeds: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    if there.all():
        return _values(column, seeds)
    found = seeds.copy()
    found[there] = _values(column.drop_null(), seeds[there])
    return found


def _values(column: Any, seeds: Any) -> Any:
    """Return the hashes after a column without nulls."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_int64(kind) or kinds.is_timestamp(kind):
        return _longs(column.cast(pa.int64()).to_numpy().view("u8"), seeds)
    if kinds.is_boolean(kind) or kinds.is_signed_integer(kind) or kinds.is_date32(kind):
        # A date is a number of days, which Arrow converts only to an integer of four bytes.
        return _ints(column.cast(pa.int32()).to_numpy(zero_copy_only=False).view("u4"), seeds)
    for of, hashed in (
        (kinds.is_floating, _floats),
        (kinds.is_string, _bytes),
        (kinds.is_large_string, _bytes),
        (kinds.is_binary, _bytes),
        (kinds.is_large_binary, _bytes),
        (kinds.is_decimal128, _decimals),
        (kinds.is_struct, _fields),
        (kinds.is_list, _lists),
        (kinds.is_large_list, _lists),
    ):
        if of(kind):
            return hashed(column, seeds)
    raise Unsupported(
        f"keys of type {kind} cannot be hashed",
        code="HF-E7079",
        expected="numbers, text, times, or structs and lists of them",
        hint="use keys of these types",
    )


def _bytes(column: Any, seeds: Any) -> Any:
    import pyarrow as pa

    return _texts(column.cast(pa.large_binary()).to_pylist(), seeds)


def _fields(column: Any, seeds: Any) -> Any:
    for field in column.flatten():
        seeds = _column(field, seeds)
    return seeds


def _floats(column: Any, seeds: Any) -> Any:
    import numpy as np

    values = column.to_numpy(zero_copy_only=False)
    wide = values.dtype == np.float64
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    return _longs(values.view("u8"), seeds) if wide else _ints(values.view("u4"), seeds)


def _decimals(column: Any, seeds: Any) -> Any:
    import numpy as np

    scale = column.type.scale
    unscaled = [int(number.scaleb(scale)) for number in column.to_pylist()]
    if column.type.precision <= _SMALL_DECIMAL:
        return _longs(np.array(unscaled, np.int64).view("u8"), seeds)
    sizes = [(number if number >= 0 else ~number).bit_length() // 8 + 1 for number in unscaled]
    values = zip(unscaled, sizes, strict=True)
    return _texts([value.to_bytes(size, "big", signed=True) for value, size in values], seeds)


def _lists(column: Any, seeds: Any) -> Any:
    found = seeds.copy()
    for at in range(len(column)):
        elements = column.slice(at, 1).flatten()
        value = seeds[at : at + 1]
        for number in range(len(elements)):
            value = _column(elements.slice(number, 1), value)
        found[at] = value[0]
    return found


def _ints(values: NDArray[Any], seeds: Any) -> Any:
    import numpy as np

    found = seeds + _u(_P5 + 4)
    found ^= values.astype(np.uint64) * _u(_P1)
    return _finished(_rotated(found, 23) * _u(_P2) + _u(_P3))


def _longs(values: NDArray[Any], seeds: Any) -> Any:
    found = seeds + _u(_P5 + 8)
    found ^= _rotated(values * _u(_P2), 31) * _u(_P1)
    return _finished(_rotated(found, 27) * _u(_P1) + _u(_P4))


def _texts(values: Sequence[bytes], seeds: Any) -> Any:
    import numpy as np
    import xxhash

    pairs = zip(values, seeds.tolist(), strict=True)
    return np.fromiter((xxhash.xxh64_intdigest(value, seed) for value, seed in pairs), np.uint64, len(values))


def _finished(found: Any) -> Any:
    found = (found ^ (found >> _u(33))) * _u(_P2)
    found = (found ^ (found >> _u(29))) * _u(_P3)
    return found ^ (found >> _u(32))


def _rotated(value: Any, bits: int) -> Any:
    return (value << _u(bits)) | (value >> _u(64 - bits))


def _u(number: int) -> Any:
    import numpy as np

    return np.uint64(number & _MASK)
