"""Change several files or two directories in one step, and work in hidden directories."""

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
from holdfast.storage.local import LocalStorage, flush_folder
from holdfast.storage.port import Storage, full

_HERE: Final = -100  # AT_FDCWD: paths are absolute
_LINUX_EXCHANGE: Final = 2
_MAC_SWAP: Final = 2
_LOOK_AT_DISK: Final = "see that the disk is there and that this user may write to it, then try again"
_NOT_OFFERED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)


def exchange(one: Path, other: Path) -> None:
    """Let two directories of one file system change places; on disk when this returns.

    Raises:
        NotFound: One of them is missing.
        Unsupported: This machine or this file system has no such thing; both are where they were.
        Unavailable: It did not work; both are where they were.
    """
    call = _call()
    if call is None:
        raise _not_offered(one, f"no such call on {sys.platform}")
    ctypes.set_errno(0)
    if call(os.fsencode(one.absolute()), os.fsencode(other.absolute())) != 0:
        number = ctypes.get_errno()
        if number == errno.ENOENT:
            raise NotFound(
                "there is no such directory",
                code="HF-E3061",
                where=f"{one} or {other}",
                hint="check both addresses",
            )
        if number in _NOT_OFFERED:
            raise _not_offered(one, os.strerror(number))
        raise Unavailable(
            "two directories could not change places",
            code="HF-E5044",
            where=str(one),
            found=os.strerror(number),
            hint=_LOOK_AT_DISK,
        )
    for folder in {one.absolute().parent, other.absolute().parent}:
        flush_folder(folder)


def _call() -> Any:
    """The system's own call for it."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        return lambda one, other: library.renameat2(_HERE, one, _HERE, other, _LINUX_EXCHANGE)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return lambda one, other: library.renamex_np(one, other, _MAC_SWAP)
    return None


def _not_offered(where: Path, found: str) -> Unsupported:
    return Unsupported(
        "two directories cannot change places at one stroke here",
        code="HF-E7102",
        where=str(where),
        found=found,
        expected="a file system that can, such as ext4, xfs, btrfs or tmpfs on Linux",
        hint="write to a directory of another name, and start the query on that",
    )


# Flushing a file takes a few milliseconds; flushing all that anybody has written to a disk may take a second.
_FEW: Final = 100


@contextmanager
def in_bulk(storage: Storage) -> Iterator[Storage]:
    """Change many files, and have all of them last when the block ends well.

    Flushing after each of thousands of files takes many seconds, flushing all of them at the end a fraction
    of one. Until then a crash of the machine may take changes back, in any order: what makes them count has
    to be written after the block. Files that were linked are flushed too: who wrote them may not have done
    so. Storages that flush by themselves are used as they are.
    """
    quick = passing(storage)
    yield quick
    if isinstance(quick, _Unflushed):
        quick.flush()


def passing(storage: Storage) -> Storage:
    """The same storage, for what nobody needs after a crash of the machine, such as notes of who is at work.

    Each flush makes others wait who change files on the same disk.
    """
    here = isinstance(storage, LocalStorage)
    return _Unflushed(Path(storage.uri.removeprefix("file://"))) if here else storage


class _Unflushed(LocalStorage):
    """A directory whose changes are noted and not flushed."""

    __slots__ = ("_above", "_touched")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._touched: set[str] = {""}
        self._above: set[str] = set()

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
        """Flush what was touched; a whole file system at once where that is quicker.

        Raises:
            Unavailable: Something cannot be flushed, so what was written may be lost in a crash.
        """
        sync: Any = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        at_once = sync is not None and len(self._touched) > _FEW
        path = ""
        try:
            for folder in self._above:
                with suppress(FileNotFoundError):
                    super()._flush_above(folder)
            for path in ("",) if at_once else self._touched:
                with suppress(FileNotFoundError):
                    self._flush_one(path, sync if at_once else os.fsync)
        except OSError as error:
            raise Unavailable(
                "what was written may be lost in a crash of the machine",
                code="HF-E5045",
                where=full(self.uri, path),
                found=f"it cannot be flushed: {error.strerror}",
                hint="check the disk, then try again",
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

    def _flush_above(self, folder: str) -> None:
        self._above.add(folder)


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
            "a directory to work in cannot be made",
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
