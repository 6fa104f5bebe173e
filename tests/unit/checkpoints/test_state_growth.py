from __future__ import annotations

import pytest

from golden import NAMES, golden
from holdfast.checkpoints.checkpoint import history, read, state_bytes


@pytest.mark.parametrize("name", NAMES)
def test_the_newest_batch_has_what_the_checkpoint_has(name: str) -> None:
    storage = golden(name)
    found = read(storage)
    batches = tuple(each.batch_id for each in history(storage))
    sizes = state_bytes(storage, batches)
    assert tuple(sizes) == batches
    newest = sizes[batches[-1]]
    assert newest == {each.operator_id: each.size_bytes for each in found.operators}


def test_state_that_only_gets_changes_grows_by_them() -> None:
    storage = golden("4.2/aggregate-changelog")
    listed = history(storage)
    sizes = {batch: sum(each.values()) for batch, each in state_bytes(storage, (8, 9, 10)).items()}
    added = {each.batch_id: each.new_bytes for each in listed}
    for batch in (9, 10):
        assert sizes[batch] - sizes[batch - 1] == added[batch]
