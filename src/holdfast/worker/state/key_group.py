"""Key groups: what is moved between partitions, and a range of hashes each."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes
    from holdfast.worker.state.group_numbers import Numbering


def group_of(h: Hashes, key_groups: int) -> NDArray[np.int64]:
    """The key group of hashes: the hash's place among 2**64, so that a group is one range of hashes."""
    places = (h >> np.uint64(32)) * np.uint64(key_groups) >> np.uint64(32)
    return np.asarray(places, np.int64)


def range_of(group: int, key_groups: int) -> tuple[int, int | None]:
    """The hashes of a group: from the first to before the second, None past the last."""
    low = -(-(group << 32) // key_groups) << 32
    return low, None if group + 1 == key_groups else -(-((group + 1) << 32) // key_groups) << 32


@lru_cache(maxsize=4)
def numbers_of(key_groups: int, numbering: Numbering) -> NDArray[np.int64 | np.int32]:
    """The numbers under which groups are stored, in the order of the groups."""
    numbers = [numbering.number_of(group) for group in range(key_groups)]
    return np.array(numbers, np.int64 if numbering.even else np.int32)
