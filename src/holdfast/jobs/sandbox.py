"""A directory to try things in that is always cleared up: by its owner, or by the next one after a crash."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "sandboxes"
_LOCK: Final = ".lock"


@contextmanager
def sandbox(home: Path, what: str) -> Iterator[Path]:
    """A new directory below the state home; it is gone afterwards, however the body ends.

    A lock beside it lives exactly as long as this process does. Whoever is killed leaves the directory and a
    lock that nobody holds, by which the next sandbox of this home knows that it may be removed.

    Args:
        home: The state home.
        what: What it is for; a part of its name.
    """
    folder = home / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    clear(home)
    place, lock = _claim(folder, what)
    try:
        place.mkdir()
        yield place
    finally:
        _remove(place, lock)


def clear(home: Path) -> int:
    """Remove what killed processes have left; returns how many sandboxes that were."""
    removed = 0
    for path in sorted((home / FOLDER).glob(f"*{_LOCK}")):
        lock = _hold(path)
        if lock is not None:
            _remove(path.with_suffix(""), lock)
            removed += 1
    return removed


def _claim(folder: Path, what: str) -> tuple[Path, int]:
    while True:
        place = folder / f"{what}-{os.urandom(6).hex()}"
        lock = _hold(place.with_suffix(_LOCK), os.O_CREAT | os.O_EXCL)
        if lock is not None:
            return place, lock


def _hold(path: Path, flags: int = 0) -> int | None:
    """Take a lock file, or None if somebody has it; one that was removed meanwhile is nobody's."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _remove(place: Path, lock: int) -> None:
    """Remove the directory, then its lock: where something of it stays, the next one finds both."""
    shutil.rmtree(place, ignore_errors=True)
    if not place.exists():
        with suppress(OSError):
            place.with_suffix(_LOCK).unlink()
    os.close(lock)
