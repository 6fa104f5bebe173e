"""Checkpoints of Spark 3.5, which notes nothing of its operators."""

from __future__ import annotations

import random

import pytest
from damages import DAMAGES, hidden
from state_rows import state_rows

from golden import UNNAMED, golden, golden_files
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.copy import How, cut
from holdfast.checkpoints.verification.verifying import verify
from holdfast.storage.memory import MemoryStorage

OPERATORS = {
    "aggregate": "stateStoreSave",
    "dedupe": "dedupeWithinWatermark",
    "join": "symmetricHashJoin",
    "session": "sessionWindowStateStoreSaveExec",
}
STORES = {
    "join": (
        "left-keyToNumValues",
        "left-keyWithIndexToValue",
        "right-keyToNumValues",
        "right-keyWithIndexToValue",
    ),
}


@pytest.mark.parametrize("name", UNNAMED)
def test_they_are_whole_and_known_by_their_state(name: str) -> None:
    found = verify(golden(name))
    assert found.problems == ()
    assert found.batch_id in found.restorable
    assert found.remarks == ()
    (operator,) = read(golden(name)).operators
    kind = name.split("/")[1].split("-", maxsplit=1)[0]
    assert (operator.name, operator.store_names) == (OPERATORS[kind], STORES.get(kind, ("default",)))
    assert (operator.partitions, operator.noted) == (2, False)


@pytest.mark.parametrize("name", UNNAMED)
def test_damage_in_them_is_named(name: str) -> None:
    files = golden_files(name)
    rng = random.Random(name)
    needed = [each.path for each in cut(MemoryStorage(files)).files if each.how is not How.SOURCE_LOG]
    for path in rng.sample([path for path in needed if not hidden(path)], 8):
        damage = rng.choice(sorted(DAMAGES))
        changed = DAMAGES[damage](files[path], rng)
        found = verify(MemoryStorage({**files, path: changed}))
        assert changed == files[path] or path in [each.file for each in found.problems], (path, damage)
    lost = {path: data for path, data in files.items() if not path.startswith("state/0/1/")}
    assert any(each.file.startswith("state/0/1") for each in verify(MemoryStorage(lost)).problems)


def test_a_newer_spark_has_notes_to_lose() -> None:
    files = dict(golden_files("4.2/aggregate-memory"))
    for path in ("state/0/_metadata/metadata", "state/0/_metadata/.metadata.crc"):
        files.pop(path)
    assert "state/0/_metadata/metadata" in [each.file for each in verify(MemoryStorage(files)).problems]


def test_their_rows_are_read() -> None:
    """Twelve files of ten events, one of each customer: see `golden_queries`."""
    for name in ("3.5/aggregate-memory", "3.5/aggregate-rocksdb"):
        rows = {next(iter(row.key.values())): tuple(row.value.values()) for row in state_rows(golden(name))}
        expected = {
            f"c{customer}": (12, sum(number * 10 + (customer - number) % 10 for number in range(12)))
            for customer in range(10)
        }
        assert rows == expected
