"""How batches that were watched are held against batches that were not."""

from __future__ import annotations

import pytest

from holdfast_bench.overhead import _beside


def test_each_block_is_held_against_the_one_next_to_it() -> None:
    # The machine is twice as slow in the second round, and five times in the third.
    alone = [1.0, 1.0, 2.0, 2.0, 5.0, 5.0]
    watched = [1.1, 1.1, 2.0, 2.4, 5.0, 5.5]
    assert _beside(watched, alone, 2) == pytest.approx(1.1)
    assert _beside(alone, alone, 2) == 1.0
