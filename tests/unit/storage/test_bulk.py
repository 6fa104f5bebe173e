"""Changes in bulk are those of the storage, and last when the block is left."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import Conflict, Unavailable
from holdfast.storage.atomic_swap import in_bulk, passing
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
        assert flushed == [str(tmp_path)]  # in which the directory is new
        with pytest.raises(Conflict):
            quick.write("a/one", b"2")
    below = [f"{tmp_path}/here{path}" for path in ("", "/a", "/a/one", "/b", "/b/two")]
    assert sorted(set(flushed)) == [str(tmp_path), *below]
    assert storage.read("a/one") == b"1"
    assert (tmp_path / "here/b/two").samefile(tmp_path / "linked")
    assert list(storage.list("a").names) == ["one"]


def test_many_changes_are_flushed_at_once(tmp_path: Path, flushed: list[str]) -> None:
    with in_bulk(LocalStorage(tmp_path)) as quick:
        for number in range(150):
            quick.write(f"many/{number}", b"x")
    assert flushed == []
    assert len(list((tmp_path / "many").iterdir())) == 150


class _FailingLibrary:
    """A C library whose flush of a file system fails, as on a disk that has lost writes."""

    def syncfs(self, descriptor: int) -> int:
        os.fstat(descriptor)
        ctypes.set_errno(errno.EIO)
        return -1


@pytest.mark.parametrize("count", [3, 150], ids=["one by one", "at once"])
def test_a_flush_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = LocalStorage(tmp_path / "here")
    storage.write("many/first", b"x")
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: _FailingLibrary())

    def change() -> None:
        with in_bulk(storage) as quick:
            for number in range(count):
                quick.write(f"many/{number}", b"x")

    with pytest.raises(Unavailable, match="could not be flushed to disk") as caught:
        change()
    assert caught.value.where is not None
    assert caught.value.where.startswith(storage.uri)
    assert "Input/output error" in (caught.value.found or "")


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
