from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.errors import NotFound
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.file_lock import FileLock


def folder(place: Path, name: str) -> Path:
    made = place / name
    made.mkdir()
    (made / "which").write_text(name)
    return made


def test_two_directories_change_places_and_nobody_sees_neither(tmp_path: Path) -> None:
    one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add((one / "which").read_text())

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(200):
        exchange(one, other)
    over.set()
    looking.join()
    assert seen <= {"one", "other"}
    assert ((one / "which").read_text(), (other / "which").read_text()) == ("one", "other")
    exchange(one, other)
    assert ((one / "which").read_text(), (other / "which").read_text()) == ("other", "one")


def test_what_is_not_there_changes_places_with_nothing(tmp_path: Path) -> None:
    one = folder(tmp_path, "one")
    with pytest.raises(NotFound):
        exchange(one, tmp_path / "other")
    assert (one / "which").read_text() == "one"


def test_any_number_may_look_whether_a_lock_is_taken(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    FileLock(place).take()
    seen: list[bool] = []

    def look() -> None:
        seen.extend(FileLock(tmp_path / "free").is_held() for _ in range(300))

    (tmp_path / "free").touch()
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    # Somebody who wants it gets it, whoever looks at the same moment.
    for _ in range(50):
        mine = FileLock(tmp_path / "other")
        assert mine.take()
        mine.release()
    for thread in threads:
        thread.join()
    assert seen == [False] * 1200
