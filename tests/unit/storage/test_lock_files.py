"""A lock on a file: one has it at a time, and its file can go once nobody has."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.file_lock import FileLock


def test_one_has_it_at_a_time(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "a" / "lock"), FileLock(tmp_path / "a" / "lock")
    assert not first.is_held()
    assert not (tmp_path / "a").exists()
    assert first.take()
    assert second.is_held()
    assert not second.take()
    first.release()
    assert not second.is_held()
    assert second.take()


def test_a_file_goes_only_when_nobody_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = FileLock(path)
    assert FileLock(path).clear()
    assert held.take()
    assert not FileLock(path).clear()
    assert path.exists()
    held.release()
    assert path.exists()
    assert FileLock(path).clear()
    assert not path.exists()
