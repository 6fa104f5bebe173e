"""Under which number a key group is stored: its hash is the group."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from holdfast.checkpoints.keyed import KEY_GROUP, group_row
from holdfast.formats.rows.row_hashes import row_hashes
from holdfast.worker.state.group_numbers import EVEN, MOST_GROUPS, PLAIN, Numbering
from holdfast.worker.state.layout import numbers_of


def hashes(numbering: Numbering, groups: int) -> list[int]:
    """Spark's hashes of the keys of groups, worked out on their rows: nothing here is undone."""
    rows = [group_row(numbering).encode({KEY_GROUP: numbering.number_of(group)}) for group in range(groups)]
    return row_hashes(rows, [{"name": KEY_GROUP, "type": numbering.key_type}], 1, "here")


def test_a_group_is_the_hash_of_its_number() -> None:
    assert hashes(EVEN, MOST_GROUPS) == list(range(MOST_GROUPS))


@pytest.mark.parametrize("numbering", [EVEN, PLAIN])
def test_a_number_gives_its_group_back(numbering: Numbering) -> None:
    numbers = [numbering.number_of(group) for group in range(MOST_GROUPS)]
    assert [numbering.group_at(number) for number in numbers] == list(range(MOST_GROUPS))
    assert numbers_of(300, numbering).tolist() == numbers[:300]


@pytest.mark.parametrize("number", [0, 1, 127, -1, 1 << 40, -(1 << 63), (1 << 63) - 1])
def test_other_numbers_are_of_no_group(number: int) -> None:
    assert EVEN.group_at(number) >= MOST_GROUPS


@pytest.mark.parametrize("partitions", [1, 2, 7, 8, 64, 100, 128, 200])
@pytest.mark.parametrize("numbering", [EVEN, PLAIN])
def test_where_spark_puts_a_group(numbering: Numbering, partitions: int) -> None:
    found = (np.array(hashes(numbering, 128)) % partitions).tolist()
    assert [numbering.partition_of(group, partitions) for group in range(128)] == found


@pytest.mark.parametrize("partitions", [1, 2, 7, 8, 64, 100, 128, 200])
def test_groups_are_spread_evenly_over_partitions(partitions: int) -> None:
    found = Counter(hashed % partitions for hashed in hashes(EVEN, 128))
    counts = [found[each] for each in range(partitions)]
    assert max(counts) - min(counts) <= 1


def test_under_their_own_numbers_they_are_not() -> None:
    found = Counter(hashed % 8 for hashed in hashes(PLAIN, 128))
    assert (min(found.values()), max(found.values())) == (10, 23)
