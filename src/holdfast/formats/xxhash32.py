"""xxHash32, which guards each block of an LZ4 stream of Java's, for many blocks at once.

The hash of one block cannot be cut into parts, but blocks do not depend on each other: numpy works on all
of the same length side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_P1: Final = 2654435761
_P2: Final = 2246822519
_P3: Final = 3266489917
_P4: Final = 668265263
_P5: Final = 374761393
_MASK: Final = 0xFFFFFFFF


def xxhash32(blocks: Sequence[bytes], seed: int) -> list[int]:
    """The hash of each block, as unsigned numbers."""
    by_length: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        by_length.setdefault(len(block), []).append(index)
    hashes = [0] * len(blocks)
    for length, indexes in by_length.items():
        found = _same_length([blocks[index] for index in indexes], length, seed)
        for index, value in zip(indexes, found.tolist(), strict=True):
            hashes[index] = value
    return hashes


def _same_length(blocks: list[bytes], length: int, seed: int) -> NDArray[np.uint32]:
    import numpy as np  # noqa: PLC0415 - a verb that checks nothing does not load it

    value: NDArray[np.uint32]
    data = np.frombuffer(b"".join(blocks), dtype=np.uint8).reshape(len(blocks), length)
    striped = length - length % 16
    if striped:
        words = np.ascontiguousarray(data[:, :striped]).view("<u4").reshape(len(blocks), -1, 4)
        value = _stripes(words, seed)
    else:
        value = np.full(len(blocks), (seed + _P5) & _MASK, dtype=np.uint32)
    value = value + np.uint32(length & _MASK)
    at = striped
    while at + 4 <= length:
        word = np.ascontiguousarray(data[:, at : at + 4]).view("<u4")[:, 0]
        value = _rotated(value + word * np.uint32(_P3), 17) * np.uint32(_P4)
        at += 4
    for column in range(at, length):
        byte = data[:, column].astype(np.uint32)
        value = _rotated(value + byte * np.uint32(_P5), 11) * np.uint32(_P1)
    value = (value ^ (value >> 15)) * np.uint32(_P2)
    value = (value ^ (value >> 13)) * np.uint32(_P3)
    value ^= value >> 16
    return value


def _stripes(words: NDArray[np.uint32], seed: int) -> NDArray[np.uint32]:
    import numpy as np  # noqa: PLC0415 - as above

    begin = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
    lanes = np.tile(np.array(begin, dtype=np.uint32), (len(words), 1))
    first, second = np.uint32(_P1), np.uint32(_P2)
    for stripe in np.ascontiguousarray(words.swapaxes(0, 1)):
        lanes = _rotated(lanes + stripe * second, 13) * first
    turned = [_rotated(lanes[:, lane], bits) for lane, bits in enumerate((1, 7, 12, 18))]
    total: NDArray[np.uint32] = turned[0] + turned[1] + turned[2] + turned[3]
    return total


def _rotated(value: NDArray[np.uint32], bits: int) -> Any:
    return (value << bits) | (value >> (32 - bits))
