"""Locks are taken and let go while somebody clears away their files."""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast.storage.file_lock import FileLock


def test_who_has_it_has_the_file_that_others_look_at(tmp_path: Path) -> None:
    """Somebody clears away all the time, while others take it and let it go."""
    path = tmp_path / "lock"
    over = threading.Event()

    def clear() -> None:
        while not over.is_set():
            FileLock(path).clear()

    clearing = threading.Thread(target=clear)
    clearing.start()
    try:
        taken = 0
        while taken < 40:
            mine = FileLock(path)
            if mine.take():
                taken += 1
                assert FileLock(path).is_held()
                assert not FileLock(path).take()
                mine.release()
    finally:
        over.set()
        clearing.join()
