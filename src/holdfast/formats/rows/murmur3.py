"""Spark's hash of numbers, Murmur3 in 32 bits, and its inverse.

Each step of the hash can be inverted, so a number with a given hash is computed instead of searched.
"""

from __future__ import annotations

from typing import Final

# The seed of Spark's `hash` function, which determines the partition of a row.
SEED: Final = 42
_MASK: Final = 0xFFFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_M: Final = 0xE6546B64
_F1: Final = 0x85EBCA6B
_F2: Final = 0xC2B2AE35
_INT, _LONG = 4, 8
_C1_INVERSE, _C2_INVERSE, _F1_INVERSE, _F2_INVERSE, _5_INVERSE = (
    pow(factor, -1, 1 << 32) for factor in (_C1, _C2, _F1, _F2, 5)
)


def mix(seed: int, word: int) -> int:
    """Return the hash after mixing in four more bytes."""
    word = word * _C1 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    seed ^= word * _C2 & _MASK
    seed = (seed << 13 | seed >> 19) & _MASK
    return (seed * 5 + _M) & _MASK


def finish(seed: int, length: int) -> int:
    """Return the final hash of the `length` bytes that were mixed in."""
    seed ^= length
    seed = (seed ^ seed >> 16) * _F1 & _MASK
    seed = (seed ^ seed >> 13) * _F2 & _MASK
    return seed ^ seed >> 16


def hash_int(value: int, seed: int) -> int:
    """Return Spark's signed hash of an `int`; `seed` is the hash of the preceding columns."""
    hashed = finish(mix(seed & _MASK, value), _INT)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def long_with_hash(hashed: int) -> int:
    """Return the long below 2**32 with this hash."""
    # The upper four bytes are zero, so they change the hash only through the last step of `mix`.
    word = (_unmixed(_unmixed(_unfinished(hashed, _LONG))) ^ SEED) * _C2_INVERSE & _MASK
    word = (word >> 15 | word << 17) & _MASK
    return word * _C1_INVERSE & _MASK


def _unmixed(seed: int) -> int:
    """Return the inverse of the last step of `mix`: the previous hash XORed with the word."""
    seed = (seed - _M) * _5_INVERSE & _MASK
    return (seed >> 13 | seed << 19) & _MASK


def _unfinished(hashed: int, length: int) -> int:
    """Return the inverse of `finish`."""
    hashed ^= hashed >> 16
    hashed = hashed * _F2_INVERSE & _MASK
    hashed ^= hashed >> 13 ^ hashed >> 26
    hashed = hashed * _F1_INVERSE & _MASK
    return hashed ^ hashed >> 16 ^ length
