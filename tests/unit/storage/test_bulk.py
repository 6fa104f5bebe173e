"""Changes in bulk are those of the storage, and last when the block is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import Conflict
from holdfast.storage.bulk import in_bulk, passing
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and directories that were flushed, in order."""
    seen: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_everything_is_flushed_at_the_end_and_nothing_before(tmp_path: Path, flushed: list[str]) -> None:
    (tmp_path / "linked").write_bytes(b"by somebody who did not flush")
    storage = LocalStorage(tmp_path / "here")
    with in_bulk(storage) as quick:
        quick.write("a/one", b"1")
        quick.copy("linked", "b/two", origin=LocalStorage(tmp_path))
        quick.write("a/gone", b"3")
        quick.delete("a/gone")
        assert flushed == []
        with pytest.raises(Conflict):
            quick.write("a/one", b"2")
    assert sorted(set(flushed)) == [f"{tmp_path}/here{path}" for path in ("", "/a", "/a/one", "/b", "/b/two")]
    assert storage.read("a/one") == b"1"
    assert (tmp_path / "here/b/two").samefile(tmp_path / "linked")
    assert list(storage.list("a").names) == ["one"]


def test_many_changes_are_flushed_at_once(tmp_path: Path, flushed: list[str]) -> None:
    with in_bulk(LocalStorage(tmp_path)) as quick:
        for number in range(150):
            quick.write(f"many/{number}", b"x")
    assert flushed == []
    assert len(list((tmp_path / "many").iterdir())) == 150


def test_a_block_that_fails_flushes_nothing(tmp_path: Path, flushed: list[str]) -> None:
    def fail() -> None:
        with in_bulk(LocalStorage(tmp_path)) as quick:
            quick.write("a", b"1")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert flushed == []


def test_other_storages_are_used_as_they_are() -> None:
    storage = MemoryStorage()
    with in_bulk(storage) as same:
        assert same is storage


def test_what_need_not_last_is_not_flushed(tmp_path: Path, flushed: list[str]) -> None:
    passing(LocalStorage(tmp_path)).write("notes/one", b"1")
    assert flushed == []
    assert LocalStorage(tmp_path).read("notes/one") == b"1"
    memory = MemoryStorage()
    assert passing(memory) is memory
