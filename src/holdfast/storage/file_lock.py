"""Exclusive file locks that are released when their process ends."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from pathlib import Path
from typing import Final

from holdfast.config.settings import make_directory

_TRIES: Final = 5
_AGAIN_S: Final = 0.01

# The `struct flock` of 64-bit Linux: type, whence, start, length, process.
_FLOCK = "@hhqqi4x"


def lock_holder(path: Path, start: int = 0, length: int = 0) -> int | None:
    """Return the process that holds a POSIX lock on a part of a file, as reported by the kernel.

    The result is None if no process holds such a lock, if the holder runs on a different machine or in a
    different container, or if the kernel does not report holders.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        kind, pid = _conflicting(descriptor, start, length)
    finally:
        os.close(descriptor)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def is_locked(descriptor: int) -> bool:
    """Return whether a different process or a different descriptor has locked a complete file.

    On Linux the kernel is asked and no lock is taken, so a process that tries to lock the file at this moment
    succeeds. On other systems the lock is taken briefly.
    """
    if not sys.platform.startswith("linux"):
        return not _lock_now(descriptor)
    return _conflicting(descriptor, 0, 0)[0] != fcntl.F_UNLCK


def _conflicting(descriptor: int, start: int, length: int) -> tuple[int, int]:
    """Return the type of the lock that conflicts with a lock on a part of a file, and its process."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return int(kind), int(pid)


def lock_whole(descriptor: int) -> bool:
    """Lock a complete file, compatibly with a JVM's lock on it; return False if the file is locked.

    On Linux the lock belongs to the descriptor: unlike a POSIX lock, it remains if this process opens and
    closes the file elsewhere. The two types of locks exclude each other.
    """
    # A different process may hold the lock for microseconds while it checks whether the file is locked.
    for _ in range(_TRIES):
        if _lock_now(descriptor):
            return True
        time.sleep(_AGAIN_S)
    return False


def _lock_now(descriptor: int) -> bool:
    try:
        if sys.platform.startswith("linux"):
            wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class FileLock:
    """A lock on a file of this machine, to which nothing is written and which is not deleted.

    Args:
        path: The file; the file and its directory are created when the lock is first taken.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, make: bool = True) -> bool:
        """Take the lock if it is free; return whether it was taken.

        Args:
            make: Whether to create a missing file.

        Raises:
            OSError: The file cannot be created, or is missing.
        """
        if make:
            make_directory(self._path.parent)
        # A different process may hold the lock for microseconds while it checks whether the file is locked.
        for _ in range(_TRIES):
            self._descriptor = self._locked(fcntl.LOCK_EX, os.O_CREAT if make else 0)
            if self._descriptor is not None:
                return True
            time.sleep(_AGAIN_S)
        return False

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holds(self) -> bool:
        """Return whether this process still holds the lock: the path must be the file that was locked."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def is_held(self) -> bool:
        """Return whether any process holds the lock; creates no file and no directory.

        Several processes may check at the same time without affecting each other.
        """
        try:
            descriptor = self._locked(fcntl.LOCK_SH)
        except FileNotFoundError:
            return False
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def clear(self) -> bool:
        """Delete the file and return True, or return False if a process holds the lock."""
        try:
            descriptor = self._locked(fcntl.LOCK_EX)
        except FileNotFoundError:
            return True
        if descriptor is None:
            return False
        self._path.unlink(missing_ok=True)
        os.close(descriptor)
        return True

    def _locked(self, how: int, flags: int = 0) -> int | None:
        """Open and lock the file; return None if a different process holds it or has just deleted it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
        return None
