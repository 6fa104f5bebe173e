"""Directories for work that must not be seen until it is done; a killed process leaves none for good."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.errors import Unavailable

_PREFIX: Final = ".holdfast-"
_LOCK: Final = ".lock"
_TRIES: Final = 10
_LET_WRITE: Final = "make room there, or let this user write there"


@contextmanager
def sandbox(folder: Path, purpose: str, token: str) -> Iterator[Path]:
    """Make a directory, and remove it at the end, however the work ends.

    A process that is killed cannot remove its own. It has held a lock, which no crash leaves behind, so the
    next sandbox in the same folder removes it. Cost: one listing of the folder.

    Args:
        folder: Where to make it; made if need be. Hard links lead into it from the same disk.
        purpose: What it is for: a part of its name.
        token: A name that no other process has.

    Raises:
        Unavailable: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder)
        lock = folder / f"{_PREFIX}{purpose}-{token}{_LOCK}"
        descriptor = _locked(lock)
        place = lock.with_suffix("")
        place.mkdir(mode=0o700)
    except OSError as error:
        raise Unavailable(
            "a directory to work in cannot be made", where=str(folder), found=error.strerror, hint=_LET_WRITE
        ) from error
    try:
        yield place
    finally:
        _remove(place, lock)
        os.close(descriptor)


def clear(folder: Path) -> None:
    """Remove what killed processes of this user have left in a folder, which other users may share."""
    for lock in folder.glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError):
            if not _is_own(lock, stat.S_ISREG):
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock.with_suffix(""), lock)
            finally:
                os.close(descriptor)


def _remove(place: Path, lock: Path) -> None:
    """Remove a directory, then its lock: while the lock exists, the next sandbox comes back for the rest."""
    # Whoever makes directories deep enough ends rmtree by a RecursionError: what stays hinders nobody.
    with suppress(OSError, RecursionError):
        if _is_own(place, stat.S_ISDIR):
            shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):
        if not os.path.lexists(place):
            lock.unlink(missing_ok=True)


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Return whether a path is of this kind and belongs to this user; False if it is gone."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return kind(found.st_mode) and found.st_uid == os.geteuid()


def _locked(lock: Path) -> int:
    """Make a lock and hold it. One that is not yet held looks like one of a dead process for a moment."""
    for _ in range(_TRIES):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        os.close(descriptor)
    raise OSError(0, "its lock is removed again and again")
