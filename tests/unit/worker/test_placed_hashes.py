"""Keys that a user's function places have hashes within the range of their key group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from holdfast.worker.packets import Placement


@pytest.mark.parametrize("key_groups", [1, 2, 3, 7])
def test_a_placed_key_has_a_hash_of_its_group_which_tells_it_from_others(key_groups: int) -> None:
    names = [f"{number}" for number in range(40)]
    h = np.random.default_rng(key_groups).integers(0, 1 << 64, len(names), np.uint64)
    placement = Placement(lambda who: int(who) % key_groups, key_groups, "op")
    moved = placement.moved(pa.table({"who": names}), h).tolist()
    # A key group is one of the equal ranges of all 64-bit hashes.
    assert [hash_ * key_groups >> 64 for hash_ in moved] == [int(name) % key_groups for name in names]
    assert len(set(moved)) == len(names)
