"""The numbers under which key groups are stored, chosen so that Spark spreads the groups evenly.

Spark assigns a key to a partition by its hash. Small numbers spread at random: 128 groups stored as 0 to 127
give 10 to 23 groups to each of eight partitions, and none to 50 of 128. So a group is stored under the number
whose hash is the group, and group g is in partition g modulo the number of partitions. Older checkpoints
store each group under its own number, and continue to. The type of the key shows which, and Spark refuses a
query whose key type differs from its checkpoint's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.formats.rows.murmur3 import SEED, finish, hash_int, long_with_hash, mix

# As many as a packet can name.
MOST_GROUPS: Final = 1 << 15

_MASK: Final = 0xFFFFFFFF
_LONG: Final = 8


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
        """Return the number under which a group is stored."""
        return _number_with_hash(group) if self.even else group

    def group_at(self, number: int) -> int:
        """Return the group that is stored under a number; an invalid group if none is."""
        if not self.even:
            return number
        return finish(mix(mix(SEED, number & _MASK), number >> 32 & _MASK), _LONG)

    def partition_of(self, group: int, partitions: int) -> int:
        """Return Spark's partition of a group."""
        if self.even:
            return group % partitions
        return hash_int(group, SEED) % partitions

    def groups_in(self, partition: int, partitions: int, key_groups: int) -> range | tuple[int, ...]:
        """Return the groups in a Spark partition."""
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


_number_with_hash: Final = lru_cache(maxsize=MOST_GROUPS)(long_with_hash)
