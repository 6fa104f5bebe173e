"""The numbers under which key groups are stored, chosen so that Spark distributes the groups evenly.

Spark assigns a key to a partition by its hash. Small numbers are distributed randomly: 128 groups stored as 0
to 127 give 10 to 23 groups to each of eight partitions, and no group to 50 of 128 partitions. So a group is
stored under the number whose hash is the group, and group g is in partition g modulo the number of
partitions. Older checkpoints store each group under its own number, and continue to do so. The two are
distinguished by the type of the key, and Spark rejects a query whose key type differs from that of its
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.formats.rows.murmur3 import SEED, finish, hash_int, long_with_hash, mix

# The maximum number of groups in a packet.
MOST_GROUPS: Final = 1 << 15

_MASK: Final = 0xFFFFFFFF
_LONG: Final = 8


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbering of an operator's key groups; fixed at the operator's first start.

    Attributes:
        even: Whether groups are stored under numbers that distribute them evenly; otherwise each is stored
            under its own number.
    """

    even: bool = True

    @property
    def key_type(self) -> str:
        """Return the type of the number in Spark schemas."""
        return "long" if self.even else "integer"

    def number_of(self, group: int) -> int:
        """Return the number under which a group is stored."""
        return _number_with_hash(group) if self.even else group

    def group_at(self, number: int) -> int:
        """Return the group stored under a number; the result is not a valid group if there is none."""
        if not self.even:
            return number
        return finish(mix(mix(SEED, number & _MASK), number >> 32 & _MASK), _LONG)

    def partition_of(self, group: int, partitions: int) -> int:
        """Return the Spark partition of a group."""
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
    """Return the numbering whose numbers have this Spark type."""
    return EVEN if key_type == EVEN.key_type else PLAIN


@lru_cache(maxsize=64)
def _groups_in(numbering: Numbering, partition: int, partitions: int, key_groups: int) -> tuple[int, ...]:
    groups = range(key_groups)
    return tuple(group for group in groups if numbering.partition_of(group, partitions) == partition)


_number_with_hash: Final = lru_cache(maxsize=MOST_GROUPS)(long_with_hash)
