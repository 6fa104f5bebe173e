"""Storage on a local disk, which does not follow symbolic links.

The root directory is named by the user and may be reached through links. Its content may come from others,
and a link in it could refer to any file of this user. Replacing a directory by a link during a call has no
effect: the kernel resolves the complete path at once if it can; otherwise the directories are opened one at a
time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeVar, runtime_checkable

from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.storage.port import Storage, file_exists, full, go_on, no_file

# A directory opened only as the base of paths does not require the permission to list it.
FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Opening a FIFO without O_NONBLOCK would wait for its writer.
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_ROOT: Final = FOLDER & ~os.O_NOFOLLOW
# openat2(2), which the C library does not wrap; its number is the same on all processors that Spark supports.
_OPENAT2: Final = 437
_HERE: Final = -100  # AT_FDCWD: paths are absolute
_NO_SYMLINKS: Final = 0x04


def open_beneath(root: str, path: str, flags: int) -> int:
    """Open a file or a directory without following links; the caller closes the descriptor.

    Args:
        root: An absolute path, which may contain links.
        path: A path below `root`, with `/` as separator; empty for the root itself.
        flags: One of `FOLDER`, `LISTED` and `FILE`. With `FILE`, the result may be any type of file except a
            link; check the descriptor.

    Raises:
        OSError: The path cannot be opened. A link in it raises `ELOOP` or `ENOTDIR`.
    """
    resolve = _resolver()
    if resolve is not None:
        descriptor = resolve(f"{root}/{path}" if path else root, flags)
        if descriptor >= 0:
            return descriptor
        # The cause is determined below; if only the root contains a link, there is no error.
    here = os.open(root, _ROOT)
    folder, _, name = path.rpartition("/")
    for part in folder.split("/") if folder else ():
        here = _instead(here, part, FOLDER)
    return _instead(here, name or ".", flags)


def _instead(here: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


@cache
def _resolver() -> Callable[[str, int], int] | None:
    """Return a function that opens an absolute path without links, or returns -1.

    The result is None if the kernel has no such call or a sandbox forbids it.
    """
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None).syscall
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    call.restype = ctypes.c_long
    # The kernel's `struct open_how`: flags, mode, and the rules for resolving the path.
    how = {
        flags: struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _NO_SYMLINKS) for flags in (FOLDER, LISTED, FILE)
    }
    size = len(how[FILE])
    encoding = sys.getfilesystemencoding()

    def resolve(path: str, flags: int) -> int:
        name = path.encode(encoding, "surrogateescape")
        # C would use only the part before a NUL.
        return -1 if b"\0" in name else call(_OPENAT2, _HERE, name, how[flags], size)

    descriptor = resolve("/", FOLDER)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return resolve


# The errors of a file system that cannot create a hard link although it can copy.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES})
# The errors for a path at which no file can exist, so that a retry does not help.
_NO_PATH = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
# The errors for a link that is not followed, a special file, and a file in place of a directory.
_IRREGULAR = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.ENXIO})
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
T = TypeVar("T")


class LocalListing:
    """A listing whose names are read once, at the first access, and whose sizes are read at each call."""

    __slots__ = ("_names", "_path", "_storage")

    def __init__(self, storage: LocalStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._names: Sequence[str] | None = None

    @property
    def names(self) -> Sequence[str]:
        """See `Listing`."""
        if self._names is None:
            self._names = self._storage.names(self._path)
        return self._names

    def size(self, name: str) -> int | None:
        """See `Listing`."""
        return self._storage.size(f"{self._path}/{name}" if self._path else name)


class LocalStorage:
    """A directory of this machine.

    The root is named by the user and may be reached through symbolic links. Below it links are never
    followed, and only regular files are read, so a checkpoint or a catalog cannot refer to other files of
    this user or to an endless pipe.

    A file is written under a hidden name next to the target, flushed to disk, and renamed. A file that must
    not replace the target is hard linked instead, which fails if the target exists. A killed write leaves a
    hidden `.tmp` file, which is never read. A write, copy or deletion is on disk when the call returns, so it
    outlives a power failure, and so does everything before it.
    """

    __slots__ = ("_root",)

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)  # links are resolved by the caller, if at all

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return f"file://{self._root}"

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        go_on()
        try:
            # Without a file object, which makes three more system calls; most files are small.
            descriptor = self._open(path)
            try:
                return _read(descriptor, start, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._error(error, path) from error

    def list(self, path: str = "") -> LocalListing:
        """See `Storage`."""
        return LocalListing(self, path)

    def names(self, path: str) -> Sequence[str]:
        """Return the names in a directory, as in `list`."""
        try:
            folder = self._open(path, LISTED)
            try:
                return os.listdir(folder)
            finally:
                os.close(folder)
        except OSError as error:
            return self._missing(error, path, [])

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        try:
            # A linked parent directory is not detected here, because a size reveals no content.
            found = os.lstat(self._at(path))
        except OSError as error:
            return self._missing(error, path, None)
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        folder, _, name = path.rpartition("/")
        try:
            within = self._make(folder)
            try:
                self._put(within, name, data, replace=replace)
            finally:
                os.close(within)
        except OSError as error:
            raise self._error(error, path) from error
        self._flush_name(path)

    def require_exclusive_writes(self, path: str) -> None:
        """Do nothing; the kernel rejects the second write."""

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        if origin is not None and not isinstance(origin, LocalStorage):
            self.write(target, origin.read(source))
            return
        giver = self if origin is None else origin
        folder, _, name = target.rpartition("/")
        try:
            within = self._make(folder)
        except OSError as error:
            raise self._error(error, target) from error
        try:
            giver._link(source, within, name)
        except OSError as error:
            if error.errno in _NO_LINK and not _exists(name, within):
                self.write(target, giver.read(source))
                return
            if isinstance(error, FileExistsError):
                raise self._error(error, target) from error
            raise giver._error(error, source) from error
        finally:
            os.close(within)
        self._flush_name(target)

    def delete(self, path: str) -> None:
        """See `Storage`."""
        folder, _, name = path.rpartition("/")
        try:
            within = self._open(folder, FOLDER)
            try:
                os.unlink(name, dir_fd=within)
            finally:
                os.close(within)
        except OSError as error:
            self._missing(error, path, None)
            return
        self._flush_name(path)

    def file_of(self, path: str) -> Path:
        """Return the local path of a file."""
        return Path(self._at(path))

    def _put(self, within: int, name: str, data: bytes, *, replace: bool) -> None:
        """Write a hidden file in an open directory, then rename it to the target's name."""
        beside = f".{name}.{uuid.uuid4()}.tmp"
        descriptor = os.open(beside, _NEW, 0o666, dir_fd=within)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                self._flush_file(file)
            if replace:
                os.replace(beside, name, src_dir_fd=within, dst_dir_fd=within)
            else:
                _take_place(beside, name, within)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=within)
            raise

    def _link(self, source: str, within: int, name: str) -> None:
        """Link a regular file of this storage into an open directory."""
        folder, _, file = source.rpartition("/")
        giver = self._open(folder, FOLDER)
        try:
            os.link(file, name, src_dir_fd=giver, dst_dir_fd=within, follow_symlinks=False)
        finally:
            os.close(giver)
        # The linked file is checked, not the source, because the link cannot be replaced any more.
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            os.unlink(name, dir_fd=within)
            raise _special_file()

    def _open(self, path: str, flags: int = FILE) -> int:
        """Open a file or a directory; the caller closes the descriptor."""
        return open_beneath(self._root, path, flags)

    def _make(self, folder: str) -> int:
        """Open a directory, created if missing; the caller closes the descriptor.

        Raises:
            Conflict: A part of the path is a file.
            Invalid: The system does not allow directories in this location.
            Corrupt: A part of the path is a symbolic link.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            return self._open(folder, FOLDER)
        here, done = self._make_root(), ""
        for name in folder.split("/") if folder else ():
            above, done = done, f"{done}/{name}" if done else name
            try:
                there = self._make_one(name, here, above)
            except NotADirectoryError as error:
                raise self._irregular(done) or _file_there(self._at(done)) from error
            finally:
                os.close(here)
            here = there
        return here

    def _make_one(self, name: str, within: int, above: str) -> int:
        try:
            os.mkdir(name, dir_fd=within)
        except FileExistsError:
            pass
        else:
            self._flush_folder(above)
        return os.open(name, FOLDER, dir_fd=within)

    def _make_root(self) -> int:
        """Open the root, created with its parent directories if missing; in `/proc` none can be created."""
        try:
            make_folder(Path(self._root))
            return self._open("", FOLDER)
        except (FileExistsError, NotADirectoryError) as error:
            raise _file_there(_file_above(self._root)) from error
        except FileNotFoundError as error:
            raise Invalid(
                "the directory cannot be created",
                code="HF-E2114",
                where=error.filename or self._root,
                hint="name a directory that this user can create",
            ) from error

    def _flush_file(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def _flush_name(self, path: str) -> None:
        """Flush the directory of a file, which makes the file's name durable.

        Raises:
            Unavailable: The flush failed, although the file has been written.
        """
        folder = path.rpartition("/")[0]
        try:
            self._flush_folder(folder)
        except OSError as error:
            raise Unavailable(
                (
                    "the directory of a file could not be flushed to disk, so a crash of the machine may undo"
                    " the writing or deletion of the file"
                ),
                code="HF-E5047",
                where=full(self.uri, path),
                found=error.strerror,
                hint="check the disk, then write or delete the file again",
            ) from error

    def _flush_folder(self, folder: str) -> None:
        descriptor = self._open(folder, LISTED)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _missing(self, error: OSError, path: str, nothing: T) -> T:
        """Return `nothing` if an error means that a file is missing, otherwise raise the matching error."""
        told = self._error(error, path)
        if isinstance(told, NotFound):
            return nothing
        raise told from error

    def _irregular(self, path: str) -> Corrupt | None:
        """Return the error for a path with a link in it or of a special file, or None for any other path."""
        at = self._root
        for name in path.split("/"):
            at = f"{at}/{name}"
            try:
                mode = os.lstat(at).st_mode
            except OSError:
                return None
            if stat.S_ISLNK(mode):
                return Corrupt(
                    "refused to follow a symbolic link",
                    code="HF-E6054",
                    where=f"file://{at}",
                    expected=f"no symbolic links below {self._root}",
                    hint="replace the link with its target, or remove the link",
                )
            if not stat.S_ISDIR(mode):
                break
        else:
            return None
        if stat.S_ISREG(mode):
            return None
        return Corrupt(
            "refused to read a special file",
            code="HF-E6055",
            where=f"file://{at}",
            found=_KINDS.get(stat.S_IFMT(mode), "a device"),
            expected="a regular file",
            hint="remove the file; neither Spark nor Holdfast creates such files",
        )

    def _error(self, error: OSError, path: str) -> HoldfastError:
        if error.errno in _IRREGULAR and (irregular := self._irregular(path)) is not None:
            return irregular
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return no_file(self.uri, path)
        if isinstance(error, FileExistsError):
            return file_exists(self.uri, path)
        if error.errno in _NO_PATH:
            return Invalid(
                "invalid file path",
                code="HF-E2287",
                where=full(self.uri, path),
                found=error.strerror,
                hint="give a path that the file system allows",
            )
        return Unavailable(
            "a file or directory cannot be read or written",
            code="HF-E5048",
            where=full(self.uri, path),
            found=error.strerror,
            hint="check that the disk is mounted, has free space and is accessible to this user",
        )


@runtime_checkable
class Located(Protocol):
    """A storage whose files may have a local path."""

    def file_of(self, path: str) -> Path | None:
        """Return the local path of a file, or None if the file is not on this machine."""


def file_of(storage: Storage, path: str) -> Path | None:
    """Return the local path of a storage's file, or None if the file must be read through the storage."""
    return storage.file_of(path) if isinstance(storage, Located) else None


def make_folder(folder: Path) -> None:
    """Create a directory and its parents, unless they exist, so that they survive a crash of the machine.

    A parent directory that this user is not permitted to list is not flushed.
    """
    missing = [above for above in (folder, *folder.parents) if not os.path.lexists(above)]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        with suppress(PermissionError):
            flush_folder(made.parent)


def flush_folder(folder: str | Path) -> None:
    """Flush a directory, so that its entries survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SteadyFolder(LocalStorage):
    """A directory that is read only while its path still leads to it.

    A rescale, an upgrade or a fallback exchanges the directory of a checkpoint with a new one, and the files
    of both have the same names. Without the check, a reader would combine files of both.
    """

    __slots__ = ("_first",)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._first = self._identity()

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        found = super().size(path)
        self._require_same()
        return found

    def file_of(self, path: str) -> Path:
        """Return the local path of a file."""
        self._require_same()
        return super().file_of(path)

    def _open(self, path: str, flags: int = FILE) -> int:
        descriptor = super()._open(path, flags)
        try:
            # Only a check after the opening proves in which directory that was.
            self._require_same()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._root)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _require_same(self) -> None:
        if self._first is not None and self._identity() != self._first:
            raise Conflict(
                "the directory was replaced while it was read",
                code="HF-E4098",
                where=self.uri,
                found="a different directory at this path",
                expected="the directory that was opened",
                hint="repeat the call; a rescale, an upgrade or a fallback replaces a checkpoint's directory",
            )


def _read(descriptor: int, start: int, length: int | None) -> bytes:
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if not stat.S_ISREG(found.st_mode):
        raise _special_file()
    if length is None:
        length = max(found.st_size - start, 0)
    data = os.pread(descriptor, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]  # the system returns at most two gigabytes at once
    have = len(data)
    while have < length and (more := os.pread(descriptor, length - have, start + have)):
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def _special_file() -> OSError:
    """Return the error that the system raises when a socket is opened."""
    return OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def _take_place(beside: str, name: str, within: int) -> None:
    """Link a file to a new name; without hard links, two simultaneous writers are not detected."""
    try:
        os.link(beside, name, src_dir_fd=within, dst_dir_fd=within, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        if _exists(name, within):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
        os.rename(beside, name, src_dir_fd=within, dst_dir_fd=within)
        return
    os.unlink(beside, dir_fd=within)


def _exists(name: str, within: int) -> bool:
    try:
        os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _file_there(where: str) -> Conflict:
    return Conflict(
        "the path is a file, not a directory",
        code="HF-E4006",
        where=where,
        hint="name a different directory",
    )


def _file_above(folder: str) -> str:
    """Return the part of a path that is a file in place of a directory."""
    parts = (Path(folder), *Path(folder).parents)
    return next((str(part) for part in parts if os.path.lexists(part) and not part.is_dir()), folder)
