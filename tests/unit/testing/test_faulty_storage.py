from __future__ import annotations

import pytest

from holdfast.errors import Unavailable
from holdfast.storage.memory import MemoryStorage
from holdfast.testing.failing_storage import FaultyStorage, Killed


def steps(storage: FaultyStorage) -> None:
    storage.write("a", b"1")
    storage.copy("a", "b")
    storage.delete("a")


def test_steps_are_counted() -> None:
    storage = FaultyStorage(MemoryStorage())
    steps(storage)
    assert storage.steps == 3


@pytest.mark.parametrize(
    ("at", "late", "left"),
    [
        (1, False, []),
        (1, True, ["a"]),
        (2, False, ["a"]),
        (2, True, ["a", "b"]),
        (3, False, ["a", "b"]),
        (3, True, ["b"]),
    ],
)
def test_a_kill_at_each_step_leaves_what_was_done_before_it(at: int, late: bool, left: list[str]) -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, at, late=late)
    with pytest.raises(Killed):
        steps(storage)
    assert sorted(inner.files) == left
    with pytest.raises(Killed):
        storage.read("a")


def test_a_failure_happens_once() -> None:
    storage = FaultyStorage(MemoryStorage(), 1, kill=False)
    with pytest.raises(Unavailable):
        storage.write("a", b"1")
    storage.write("a", b"1")
    assert storage.read("a") == b"1"
