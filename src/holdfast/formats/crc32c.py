"""CRC-32C, the checksum that Spark writes, fast in Python alone.

No library at hand has it, and a table and a loop do 10 MB a second. A CRC is linear, so the bytes are cut
into lanes whose checksums numpy works out side by side, and neighbours are then merged pair by pair.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POLYNOMIAL: Final = 0x82F63B78
_ALL: Final = 0xFFFFFFFF
_LANE: Final = 128
# Below this the loop is done before numpy has made its first array.
_SMALL: Final = 1024
# Fewer of one length are done one by one, for the same reason.
_FEW: Final = 16


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes, as an unsigned number."""
    if len(data) < _SMALL:
        table = _table()
        crc = _ALL
        for byte in data:
            crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
        return crc ^ _ALL
    return _merged(_lanes(data)) ^ _ALL


def crc32c_each(parts: Sequence[bytes]) -> list[int]:
    """The CRC-32C of each of many short texts of bytes, as unsigned numbers.

    Those of one length are worked out side by side. Cost: about half a microsecond each for a hundred bytes,
    where most have a length that many others have too.
    """
    by_length: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        by_length.setdefault(len(part), []).append(index)
    found = [0] * len(parts)
    for length, indexes in by_length.items():
        if len(indexes) < _FEW or length == 0:
            for index in indexes:
                found[index] = crc32c(parts[index])
            continue
        for index, value in zip(
            indexes, _side_by_side([parts[each] for each in indexes], length), strict=True
        ):
            found[index] = value
    return found


def _side_by_side(parts: list[bytes], length: int) -> list[int]:
    import numpy as np  # noqa: PLC0415 - as above

    low, high = _word_tables()
    table = np.array(_table(), dtype=np.uint32)
    data = np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(len(parts), length)
    whole = length - length % 4
    crc = np.full(len(parts), _ALL, dtype=np.uint32)
    for step in np.ascontiguousarray(np.ascontiguousarray(data[:, :whole]).view("<u4").T):
        crc ^= step
        crc = low[crc & 0xFFFF] ^ high[crc >> 16]
    for column in range(whole, length):
        crc = (crc >> 8) ^ table[(crc ^ data[:, column]) & 0xFF]
    values: list[int] = (crc ^ np.uint32(_ALL)).tolist()
    return values


def _lanes(data: bytes) -> NDArray[np.uint32]:
    """The checksum of each lane, begun at zero.

    A checksum begun at zero does not see zeros at the front, so the front lane is filled up with them; what
    is usually done by beginning at all ones is done to the first four bytes.
    """
    import numpy as np  # noqa: PLC0415 - a verb that checks nothing does not load it

    low, high = _word_tables()
    count = -(-len(data) // _LANE)
    padded = np.zeros(count * _LANE, dtype=np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, dtype=np.uint8)
    padded[start : start + 4] ^= 0xFF
    # One column for each lane, so that a step works on bytes that lie side by side.
    words = np.ascontiguousarray(padded.view("<u4").reshape(count, _LANE // 4).T)
    crc = np.zeros(count, dtype=np.uint32)
    for step in words:
        crc ^= step
        crc = low[crc & 0xFFFF] ^ high[crc >> 16]
    return crc


def _merged(crc: NDArray[np.uint32]) -> int:
    import numpy as np  # noqa: PLC0415 - as above

    level = 0
    while len(crc) > 1:
        if len(crc) % 2:
            crc = np.concatenate([np.zeros(1, dtype=np.uint32), crc])
        first, second, third, fourth = _shift_tables(level)
        left = crc[0::2]
        crc = (
            first[left & 0xFF]
            ^ second[(left >> 8) & 0xFF]
            ^ third[(left >> 16) & 0xFF]
            ^ fourth[left >> 24]
            ^ crc[1::2]
        )
        level += 1
    return int(crc[0])


@functools.cache
def _table() -> tuple[int, ...]:
    """What a byte does to the checksum."""
    entries = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        entries.append(crc)
    return tuple(entries)


@functools.cache
def _word_tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What the lower and the upper half of a word do to the checksum."""
    import numpy as np  # noqa: PLC0415 - as above

    table = np.array(_table(), dtype=np.uint32)
    high = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        high = (high >> 8) ^ table[high & 0xFF]
    low = (high >> 16) ^ high[high & 0xFFFF]
    return low, high


@functools.cache
def _shift_tables(level: int) -> tuple[NDArray[np.uint32], ...]:
    """What as many zeros as a lane of this level has do to the checksum, byte by byte of it."""
    import numpy as np  # noqa: PLC0415 - as above

    columns = _shift(level)
    tables = []
    for byte in range(4):
        entries = np.zeros(256, dtype=np.uint32)
        for bit in range(8):
            has = (np.arange(256) >> bit) & 1 == 1
            entries[has] ^= np.uint32(columns[8 * byte + bit])
        tables.append(entries)
    return tuple(tables)


@functools.cache
def _shift(level: int) -> tuple[int, ...]:
    """The same for each bit of the checksum alone."""
    if level == 0:
        table = _table()
        columns = []
        for bit in range(32):
            crc = 1 << bit
            for _ in range(_LANE):
                crc = (crc >> 8) ^ table[crc & 0xFF]
            columns.append(crc)
        return tuple(columns)
    half = _shift(level - 1)
    return tuple(_times(half, column) for column in half)


def _times(columns: tuple[int, ...], vector: int) -> int:
    product = 0
    for column in columns:
        if vector & 1:
            product ^= column
        vector >>= 1
    return product
