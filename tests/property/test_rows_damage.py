"""Seeded damage to state files: the right content or `Corrupt`, and never anything else."""

from __future__ import annotations

import random

import pytest

from golden import golden_files
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Corrupt
from holdfast.storage.memory import MemoryStorage

FAULTS = 40
STATE = (".sst", ".zip", ".changelog", ".delta", ".snapshot")


def damaged(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return chance.choice(
        [
            data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
            data[:at],
            data[:at] + bytes(min(16, len(data) - at)) + data[at + 16 :],
        ]
    )


@pytest.mark.parametrize(
    "name", ["4.2/aggregate-rocksdb", "4.2/aggregate-memory", "4.2/state-format2", "4.3/join-format2"]
)
def test_nothing_wrong_comes_of_damage(name: str) -> None:
    """Bytes that the newest batch does not need may be anything."""
    files = golden_files(name)
    whole = contents(MemoryStorage(files))
    paths = sorted(path for path, data in files.items() if path.endswith(STATE) and data)
    chance = random.Random(name)
    refused = []
    for fault in range(FAULTS):
        path = chance.choice(paths)
        storage = MemoryStorage({**files, path: damaged(files[path], chance)})
        try:
            found = contents(storage)
        except Corrupt as error:
            refused.append(error)
        else:
            assert found == whole, (fault, path)
    assert refused
    assert all("state/0" in (error.where or "") for error in refused)
