"""The numbers under which key groups are stored, so that Spark spreads the groups evenly.

Spark takes a key to the partition that its hash names. Small numbers fall on partitions like dice: 128 groups
stored as 0 to 127 put 10 to 23 on each of eight partitions, and none on 50 of 128. So a group is stored under
the number whose hash is the group, and group g is in partition g modulo the number of partitions, however
many there are. Older checkpoints have each group under its own number, and continue so. The key's type tells
which, and Spark refuses a query that has another than its checkpoint.

The hash is Murmur3 in 32 bits, each step of which can be undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# As many as a packet can name.
MOST_GROUPS: Final = 1 << 15

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
    """The hash so far with four more bytes."""
    word = word * _C1 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    seed ^= word * _C2 & _MASK
    seed = (seed << 13 | seed >> 19) & _MASK
    return (seed * 5 + _M) & _MASK


def finish(seed: int, length: int) -> int:
    """The hash of all that was mixed, of so many bytes."""
    seed ^= length
    seed = (seed ^ seed >> 16) * _F1 & _MASK
    seed = (seed ^ seed >> 13) * _F2 & _MASK
    return seed ^ seed >> 16


def hash_int(value: int, seed: int) -> int:
    """Spark's hash of an `int` behind others whose hash is `seed`, signed."""
    hashed = finish(mix(seed & _MASK, value), _INT)
    return hashed - (1 << 32) if hashed >> 31 else hashed


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbering of an operator's key groups; fixed at its first start.

    Attributes:
        even: Whether under the numbers that spread them evenly, or each under its own.
    """

    even: bool = True

    @property
    def key_type(self) -> str:
        """The type of the number, as Spark's schemas have it."""
        return "long" if self.even else "integer"

    def number_of(self, group: int) -> int:
        """The number under which a group is stored."""
        return _number_with_hash(group) if self.even else group

    def group_at(self, number: int) -> int:
        """The group that is stored under a number; one that cannot be, where none is."""
        if not self.even:
            return number
        return finish(mix(mix(SEED, number & _MASK), number >> 32 & _MASK), _LONG)

    def partition_of(self, group: int, partitions: int) -> int:
        """The partition that Spark gives a group to."""
        if self.even:
            return group % partitions
        return hash_int(group, SEED) % partitions

    def groups_in(self, partition: int, partitions: int, key_groups: int) -> range | tuple[int, ...]:
        """The groups that Spark gives to a partition."""
        if self.even:
            return range(partition, key_groups, partitions)
        return _groups_in(self, partition, partitions, key_groups)


EVEN: Final = Numbering()
PLAIN: Final = Numbering(even=False)


def numbering_by(key_type: str) -> Numbering:
    """Return the numbering of groups whose numbers have this type."""
    return EVEN if key_type == EVEN.key_type else PLAIN


@lru_cache(maxsize=64)
def _groups_in(numbering: Numbering, partition: int, partitions: int, key_groups: int) -> tuple[int, ...]:
    groups = range(key_groups)
    return tuple(group for group in groups if numbering.partition_of(group, partitions) == partition)


@lru_cache(maxsize=MOST_GROUPS)
def _number_with_hash(hashed: int) -> int:
    """Return the long below 2**32 that has this hash."""
    # The upper four bytes are zero, which leave the hash as it is but for the last step of `mix`.
    word = (_unmixed(_unmixed(_unfinished(hashed, _LONG))) ^ SEED) * _C2_INVERSE & _MASK
    word = (word >> 15 | word << 17) & _MASK
    return word * _C1_INVERSE & _MASK


def _unmixed(seed: int) -> int:
    """Invert the last step of `mix`: return the hash so far, xored with the word."""
    seed = (seed - _M) * _5_INVERSE & _MASK
    return (seed >> 13 | seed << 19) & _MASK


def _unfinished(hashed: int, length: int) -> int:
    """Invert `finish`."""
    hashed ^= hashed >> 16
    hashed = hashed * _F2_INVERSE & _MASK
    hashed ^= hashed >> 13 ^ hashed >> 26
    hashed = hashed * _F1_INVERSE & _MASK
    return hashed ^ hashed >> 16 ^ length
