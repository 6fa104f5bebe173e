"""The replacement of several files, or the exchange of two directories, in one step; working directories."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.errors import NotFound, Unavailable, Unsupported
from holdfast.storage.local import LocalStorage, flush_folder, make_folder
from holdfast.storage.port import Storage, full

_HERE: Final = -100  # AT_FDCWD: paths are absolute
_LINUX_EXCHANGE: Final = 2
_MAC_SWAP: Final = 2
_LOOK_AT_DISK: Final = "check that the disk is mounted and writable for this user, then retry"
_NOT_OFFERED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)


def exchange(one: Path, other: Path) -> None:
    """Exchange two directories of the same file system atomically and durably.

    Raises:
        NotFound: One of the directories does not exist.
        Unsupported: The operating system or the file system has no such operation; both directories are
            unchanged.
        Unavailable: The exchange failed; both directories are unchanged.
    """
    call = _call()
    if call is None:
        raise _not_offered(one, f"no exchange call on {sys.platform}")
    ctypes.set_errno(0)
    if call(os.fsencode(one.absolute()), os.fsencode(other.absolute())) != 0:
        number = ctypes.get_errno()
        if number == errno.ENOENT:
            raise NotFound(
                "one of the two directories does not exist",
                code="HF-E3061",
                where=f"{one} or {other}",
                hint="check both paths",
            )
        if number in _NOT_OFFERED:
            raise _not_offered(one, os.strerror(number))
        raise Unavailable(
            "two directories could not be exchanged",
            code="HF-E5044",
            where=f"{one} and {other}",
            found=os.strerror(number),
            hint=_LOOK_AT_DISK,
        )
    for folder in {one.absolute().parent, other.absolute().parent}:
        flush_folder(folder)


def require_exchange(folder: Path) -> None:
    """Check that two directories can be exchanged on this disk.

    Raises:
        Unsupported: The file system cannot exchange directories.
    """
    one, other = folder / "exchange-1", folder / "exchange-2"
    one.mkdir()
    other.mkdir()
    exchange(one, other)


def _call() -> Any:
    """Return the operating system's function for an exchange, or None if there is none."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        return lambda one, other: library.renameat2(_HERE, one, _HERE, other, _LINUX_EXCHANGE)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return lambda one, other: library.renamex_np(one, other, _MAC_SWAP)
    return None


def _not_offered(where: Path, found: str) -> Unsupported:
    return Unsupported(
        "this system cannot exchange two directories atomically",
        code="HF-E7102",
        where=str(where),
        found=found,
        expected="a file system with atomic exchange, such as ext4, xfs, btrfs or tmpfs on Linux",
        hint="write to a new directory, and start the query on the new directory",
    )


# Flushing a file takes a few milliseconds; flushing all unwritten data of a disk may take a second.
_FEW: Final = 100


@contextmanager
def in_bulk(storage: Storage) -> Iterator[Storage]:
    """Return a storage for changing many files, which are all flushed when the block ends without an error.

    Flushing after each of thousands of files takes many seconds, flushing all of them at the end a fraction
    of a second. Until then a crash of the machine may undo changes, in any order, so the file that makes them
    valid must be written after the block. Linked files are flushed, too, because their writer may not have
    flushed them. Storages that flush by themselves are returned unchanged.
    """
    quick = passing(storage)
    yield quick
    if isinstance(quick, _Unflushed):
        quick.flush()


def passing(storage: Storage) -> Storage:
    """Return the storage without flushes to disk, for files that need not survive a crash of the machine.

    Without flushes, other writers on the same disk are not delayed. A storage that is not on a local disk is
    returned unchanged.
    """
    here = isinstance(storage, LocalStorage)
    return _Unflushed(Path(storage.uri.removeprefix("file://"))) if here else storage


class _Unflushed(LocalStorage):
    """A local storage that records changes instead of flushing them."""

    __slots__ = ("_touched",)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._touched: set[str] = {""}

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        super().copy(source, target, origin=origin)
        self._touched.add(target)

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        super().write(path, data, replace=replace)
        self._touched.add(path)

    def delete(self, path: str) -> None:
        """See `Storage`."""
        super().delete(path)
        self._touched.discard(path)

    def flush(self) -> None:
        """Flush the changed files, or the complete file system if that is faster.

        Raises:
            Unavailable: A flush failed, so written data may be lost if the machine crashes.
        """
        sync: Any = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        at_once = sync is not None and len(self._touched) > _FEW
        path = ""
        try:
            for path in ("",) if at_once else self._touched:
                with suppress(FileNotFoundError):
                    self._flush_one(path, sync if at_once else os.fsync)
        except OSError as error:
            raise Unavailable(
                "written data could not be flushed to disk, and a crash of the machine may lose it",
                code="HF-E5045",
                where=full(self.uri, path),
                found=error.strerror,
                hint="check the disk, then repeat the command",
            ) from error

    def _flush_one(self, path: str, flush: Callable[..., Any]) -> None:
        descriptor = self._open(path)
        try:
            if flush(descriptor):
                raise OSError(number := ctypes.get_errno(), os.strerror(number))
        finally:
            os.close(descriptor)

    def _flush_file(self, file: BinaryIO) -> None:
        file.flush()

    def _flush_folder(self, folder: str) -> None:
        self._touched.add(folder)


_PREFIX: Final = ".holdfast-"
_LOCK: Final = ".lock"
_TRIES: Final = 10
_LET_WRITE: Final = "free disk space, or grant this user write access to the directory"


@contextmanager
def sandbox(folder: Path, purpose: str, token: str) -> Iterator[Path]:
    """Create a working directory, and delete it at the end of the block, also after an error.

    A killed process cannot delete its directory, but its lock ends with the process, so the next call for the
    same folder deletes the directory. Each call lists the folder once.

    Args:
        folder: The parent directory; created if missing. Hard links require that it is on the same disk.
        purpose: The purpose, which becomes a part of the directory's name.
        token: A string that is unique among processes.

    Raises:
        Unavailable: The directory cannot be created.
    """
    try:
        make_folder(folder)  # what is published in it must outlive a power failure
        clear(folder)
        lock = folder / f"{_PREFIX}{purpose}-{token}{_LOCK}"
        descriptor = _locked(lock)
        place = lock.with_suffix("")
        place.mkdir(mode=0o700)
    except OSError as error:
        raise Unavailable(
            "a working directory cannot be created",
            code="HF-E5046",
            where=str(folder),
            found=error.strerror,
            hint=_LET_WRITE,
        ) from error
    try:
        yield place
    finally:
        _remove(place, lock)
        os.close(descriptor)
        with suppress(OSError):  # a power failure must not bring back what an erasure has removed
            flush_folder(folder)


def clear(folder: Path) -> None:
    """Delete working directories left by killed processes of this user."""
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
    """Delete a directory, then its lock; until the lock is deleted, a later `sandbox` can finish the work."""
    # On very deep directories rmtree raises a RecursionError; the rest may stay.
    with suppress(OSError, RecursionError):
        if _is_own(place, stat.S_ISDIR):
            shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):
        if not os.path.lexists(place):
            lock.unlink(missing_ok=True)


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Return whether a path exists, has this type and belongs to this user."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return kind(found.st_mode) and found.st_uid == os.geteuid()


def _locked(lock: Path) -> int:
    """Create and lock a lock file; until it is locked, a different process may delete it as unused."""
    for _ in range(_TRIES):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        os.close(descriptor)
    raise OSError(0, "its lock file is removed repeatedly")
