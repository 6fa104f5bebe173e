"""Two savepoints beside each other."""

from __future__ import annotations

import json

import pytest
from catalogs import Hands, catalog, file_query

from golden import NAMES, golden, golden_files
from holdfast.savepoints.manifest_diff import compare
from holdfast.storage.memory import MemoryStorage

OTHER = "0c9c4a52-1111-4222-8333-444455556666"


def test_batches_of_a_query_without_state() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(6))
    first, second = (hands.take(checkpoint, into, batch).manifest for batch in (2, 5))
    found = compare(first, second)
    assert [(each.name, each.first, each.second) for each in found.changes] == [("batch", 2, 5)]
    assert [each.as_dict() for each in found.sources] == [
        {"name": "0", "first": '{"logOffset":2}', "second": '{"logOffset":5}'}
    ]
    assert (found.operators, found.partitions, found.same_state) == ((), (), True)


def test_two_queries() -> None:
    hands, into = Hands(), catalog()
    first = hands.take(MemoryStorage(file_query(3)), into).manifest
    second = hands.take(MemoryStorage(file_query(3, OTHER), uri="memory://other"), into).manifest
    assert [each.name for each in compare(first, second).changes] == ["checkpoint", "query_id"]


@pytest.mark.slow
def test_a_savepoint_and_itself() -> None:
    for name in NAMES:
        manifest = Hands().take(golden(name), catalog()).manifest
        found = compare(manifest, manifest)
        assert (found.changes, found.sources, found.operators, found.same_state) == ((), (), (), True)
        assert found.partitions


def test_state_is_told_apart_by_its_bytes() -> None:
    """Worked out from the checkpoint's own files: a memory provider's deltas since the same snapshot."""
    name = next(name for name in NAMES if "4.2/aggregate-memory" in name)
    files = golden_files(name)
    newest = max(int(path[8:]) for path in files if path.startswith("commits/") and path[8:].isdigit())
    hands, into, checkpoint = Hands(), catalog(), MemoryStorage(files)
    first, second = (hands.take(checkpoint, into, batch).manifest for batch in (newest - 1, newest))
    found = compare(first, second)
    assert [(each.operator_id, each.partition) for each in found.partitions] == [(0, 0), (0, 1)]
    for each in found.partitions:
        old = {file.path for file in first.files if file.path.startswith(f"state/0/{each.partition}/")}
        new = {file.path for file in second.files if file.path.startswith(f"state/0/{each.partition}/")}

        def size(paths: set[str]) -> int:
            state = [path for path in paths if path.endswith((".delta", ".snapshot"))]
            return sum({files[path]: len(files[path]) for path in state}.values())

        assert (each.first_bytes, each.second_bytes) == (size(old - new), size(new - old))
        assert each.shared_bytes == size(old & new)
    assert not found.same_state


def test_an_operator_that_changed_is_shown() -> None:
    one = next(name for name in NAMES if "4.2/aggregate-memory" in name)
    other = next(name for name in NAMES if "4.2/windowed-memory" in name)
    hands, into = Hands(), catalog()
    found = compare(hands.take(golden(one), into).manifest, hands.take(golden(other), into).manifest)
    [change] = found.operators
    assert change.name == "0"
    assert change.first["stores"] != change.second["stores"]
    assert json.loads(json.dumps(found.as_dict()))["operators"][0]["name"] == "0"
