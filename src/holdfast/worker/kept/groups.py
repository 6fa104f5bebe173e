"""Key groups: what is moved between partitions, and a range of hashes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]


def group_of(h: Hashes, key_groups: int) -> NDArray[np.int64]:
    """The key group of hashes: the hash's place among 2**64, so that a group is one range of hashes."""
    places = (h >> np.uint64(32)) * np.uint64(key_groups) >> np.uint64(32)
    return np.asarray(places, np.int64)


def range_of(group: int, key_groups: int) -> tuple[int, int | None]:
    """The hashes of a group: from the first to before the second, None past the last."""
    low = -(-(group << 32) // key_groups) << 32
    return low, None if group + 1 == key_groups else -(-((group + 1) << 32) // key_groups) << 32
