"""Storage on a local disk."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.storage.giving_up import go_on
from holdfast.storage.port import Storage, file_exists, full, no_file

# What a file system says when it cannot make a hard link, though it could copy.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES})
# What it says of a path at which nothing can be, however often it is tried.
_NO_PATH = frozenset({errno.ENAMETOOLONG, errno.ELOOP})


class LocalListing:
    """Names when they are first asked for, and sizes each time."""

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

    A write goes to a hidden file beside the target, is flushed to the disk, and is then put in its place; a
    write that must not replace is linked into place, which fails if something is there. A killed write
    leaves a hidden `.tmp` file, which nothing reads.
    """

    __slots__ = ("_root",)

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)  # resolving links is for who gives the path

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return f"file://{self._root}"

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        go_on()
        try:
            # Without a file object, which asks the system three more questions; most files are small.
            descriptor = os.open(self._at(path), os.O_RDONLY)
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
        """The names in a directory, as `list` gives them."""
        try:
            return os.listdir(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._error(error, path) from error

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        try:
            return _size(self._at(path))
        except OSError as error:
            raise self._error(error, path) from error

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        target = self._at(path)
        folder, name = os.path.split(target)
        beside = f"{folder}/.{name}.{uuid.uuid4()}.tmp"
        try:
            self._make(folder)
            with open(beside, "xb") as file:
                file.write(data)
                self._flush_file(file)
            if replace:
                os.replace(beside, target)
            else:
                _take_place(beside, target)
            self._flush_folder(folder)
        except OSError as error:
            _unlink(beside)
            raise self._error(error, path) from error

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        if origin is not None and not isinstance(origin, LocalStorage):
            self.write(target, origin.read(source))
            return
        giver = self if origin is None else origin
        place = self._at(target)
        folder = os.path.dirname(place)
        try:
            self._make(folder)
            os.link(giver._at(source), place)
            self._flush_folder(folder)
        except OSError as error:
            if error.errno in _NO_LINK and not os.path.exists(place):
                self.write(target, giver.read(source))
            elif isinstance(error, FileNotFoundError):
                raise giver._error(error, source) from error
            else:
                raise self._error(error, target) from error

    def delete(self, path: str) -> None:
        """See `Storage`."""
        try:
            _unlink(self._at(path))
        except OSError as error:
            raise self._error(error, path) from error

    def file_of(self, path: str) -> Path:
        """Where a file is on this machine."""
        return Path(self._at(path))

    def _flush_file(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def _make(self, folder: str) -> None:
        """Make a folder, unless it is there: asking is much quicker than trying in vain."""
        if os.path.isdir(folder):
            return
        try:
            os.mkdir(folder)
        except FileNotFoundError:
            self._make_all(folder)
        except (FileExistsError, NotADirectoryError) as error:
            if not os.path.isdir(folder):
                raise Conflict(
                    "a file is where a directory should be",
                    where=_file_above(folder),
                    hint="name another directory",
                ) from error

    def _make_all(self, folder: str) -> None:
        """Make a folder and those above it; below some, such as `/proc`, the system knows no new ones."""
        try:
            os.makedirs(folder, exist_ok=True)
        except FileNotFoundError as error:
            raise Invalid(
                "the directory cannot be made",
                where=error.filename or folder,
                hint="name a place on a disk where this user may write",
            ) from error

    def _flush_folder(self, folder: str) -> None:
        """A file's name is safe only when its folder is."""
        flush_folder(folder)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _error(self, error: OSError, path: str) -> HoldfastError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return no_file(self.uri, path)
        if isinstance(error, FileExistsError):
            return file_exists(self.uri, path)
        if error.errno in _NO_PATH:
            return Invalid(
                "no file can be there",
                where=full(self.uri, path),
                found=error.strerror,
                hint="name another path",
            )
        return Unavailable(
            "the storage does not do what it was asked",
            where=full(self.uri, path),
            found=error.strerror,
            hint="see that the disk is there, has room, and that this user may use it",
        )


@runtime_checkable
class Located(Protocol):
    """A storage that knows where a file is on this machine."""

    def file_of(self, path: str) -> Path | None:
        """The file, or None if it is not on this machine."""


def file_of(storage: Storage, path: str) -> Path | None:
    """Where a storage has a file on this machine; None if its bytes have to be read from it."""
    return storage.file_of(path) if isinstance(storage, Located) else None


def flush_folder(folder: str | Path) -> None:
    """Have what is in a folder outlive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int, start: int, length: int | None) -> bytes:
    if length is None:
        length = max(os.fstat(descriptor).st_size - start, 0)
    data = os.pread(descriptor, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]  # the system gives at most two gigabytes at once
    have = len(data)
    while have < length and (more := os.pread(descriptor, length - have, start + have)):
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def _size(path: str) -> int | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if found.st_mode & 0o170000 == 0o100000 else None


def _take_place(beside: str, target: str) -> None:
    """Put a file where none is; where links are not possible, two writers at once are not told apart."""
    try:
        os.link(beside, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
        os.rename(beside, target)
        return
    os.unlink(beside)


def _file_above(folder: str) -> str:
    """Which part of a path is no directory."""
    parts = (Path(folder), *Path(folder).parents)
    return next((str(part) for part in parts if os.path.lexists(part) and not part.is_dir()), folder)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)
