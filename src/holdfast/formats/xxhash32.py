"""xxHash32, which guards each block of an LZ4 stream of Java's, for many blocks at once.

The hash of one block cannot be cut into parts, but blocks do not depend on each other: numpy works on many
side by side, and the more there are at once, the less each takes.
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
_STRIPE: Final = 16
# Blocks in memory at a time.
_AT_ONCE: Final = 512


def xxhash32(blocks: Sequence[bytes], seed: int) -> list[int]:
    """The hash of each block, as unsigned numbers. Cost: 10 milliseconds for 16 MB, and half for a block."""
    hashes = [0] * len(blocks)
    # The longest first: those that are done are then always the last.
    order = sorted(range(len(blocks)), key=lambda index: -len(blocks[index]))
    for start in range(0, len(order), _AT_ONCE):
        some = order[start : start + _AT_ONCE]
        found = _side_by_side([blocks[index] for index in some], seed)
        for index, value in zip(some, found, strict=True):
            hashes[index] = _finished(value, blocks[index])
    return hashes


def _side_by_side(blocks: Sequence[bytes], seed: int) -> list[int]:
    """What the whole stripes of 16 bytes of each block come to; the longest block comes first."""
    import numpy as np  # noqa: PLC0415 - a verb that checks nothing does not load it

    stripes = [len(block) // _STRIPE for block in blocks]
    begin = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
    lanes = np.tile(np.array(begin, dtype=np.uint32), (len(blocks), 1))
    words = np.zeros((stripes[0], len(blocks), 4), dtype=np.uint32)
    for at, block in enumerate(blocks):
        if stripes[at]:
            whole = np.frombuffer(block, "<u4", stripes[at] * 4)
            words[: stripes[at], at] = whole.reshape(-1, 4)
    words *= np.uint32(_P2)
    active, done = len(blocks), 0
    turned = np.empty_like(lanes)
    while active:
        until = stripes[active - 1]
        now, spare = lanes[:active], turned[:active]
        for stripe in words[done:until, :active]:
            # In place: the arrays are small, and making new ones would take longer than working on them.
            np.add(now, stripe, out=now)
            np.left_shift(now, 13, out=spare)
            np.right_shift(now, 19, out=now)
            np.bitwise_or(now, spare, out=now)
            np.multiply(now, np.uint32(_P1), out=now)
        done = until
        while active and stripes[active - 1] == until:
            active -= 1
    total = sum(_turned(lanes[:, lane], bits) for lane, bits in enumerate((1, 7, 12, 18)))
    none = (seed + _P5) & _MASK
    return [
        int(value) if count else none
        for value, count in zip(np.asarray(total, np.uint32).tolist(), stripes, strict=True)
    ]


def _finished(value: int, block: bytes) -> int:
    """The hash, from what the stripes come to and the bytes behind them."""
    value = (value + len(block)) & _MASK
    at = len(block) - len(block) % _STRIPE
    while at + 4 <= len(block):
        word = int.from_bytes(block[at : at + 4], "little")
        value = _rotated((value + word * _P3) & _MASK, 17) * _P4 & _MASK
        at += 4
    for byte in block[at:]:
        value = _rotated((value + byte * _P5) & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 15) * _P2 & _MASK
    value = (value ^ value >> 13) * _P3 & _MASK
    return value ^ value >> 16


def _turned(value: NDArray[np.uint32], bits: int) -> Any:
    return (value << bits) | (value >> (32 - bits))


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
