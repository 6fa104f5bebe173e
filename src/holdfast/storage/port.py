"""The interface of storage, and its guarantees.

A storage has a directory as its root. Paths are relative to the root, separated by `/`, without a leading `/`
and without `..`. Errors are Holdfast's: `NotFound` for a missing file, `Conflict` for a file that exists
unexpectedly, and `Unavailable` for a storage that does not answer or denies access. Their `where` is the
complete address.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NoReturn, Protocol, runtime_checkable

from holdfast.errors import Conflict, NotFound, Unavailable

_GIVEN_UP: Final[ContextVar[threading.Event | None]] = ContextVar("holdfast_given_up", default=None)


@contextmanager
def until(given_up: threading.Event) -> Iterator[None]:
    """Stop the work in this block, and in threads that inherit its context, when an event is set."""
    token = _GIVEN_UP.set(given_up)
    try:
        yield
    finally:
        _GIVEN_UP.reset(token)


def go_on() -> None:
    """Raise an error if the event of `until` is set; fast enough for inner loops.

    Raises:
        Unavailable: The event is set.
    """
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise Unavailable(
            "the operation exceeded its time limit and was stopped",
            code="HF-E5049",
            hint="select one operator or fewer rows",
        )


class Listing(Protocol):
    """The names in a directory and the sizes of its files.

    The names are read at the latest at the first access, and do not change afterwards. A file may be deleted
    later, because a running query deletes files that it does not need any more.
    """

    @property
    def names(self) -> Sequence[str]:
        """Return the names of files and directories, unordered, including hidden ones."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None for a directory or a missing file.

        Object stores return sizes with the names. On a local disk each call reads one size, so a few sizes
        cost less than all of them.
        """


@runtime_checkable
class Storage(Protocol):
    """The files below an address.

    A storage may be used by several threads. Nothing is cached, so each call returns the current content.
    """

    @property
    def uri(self) -> str:
        """Return the address of the root, for error messages."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or of a part of the file.

        A part that extends beyond the end of the file is shortened. If a file is replaced during the call,
        the old or the new content is returned, because files of a checkpoint are written atomically.

        Raises:
            NotFound: The file does not exist.
            Corrupt: The file is a symbolic link or a special file, or is below a link.
            Unavailable: The file cannot be read at the moment.
        """

    def list(self, path: str = "") -> Listing:
        """Return the listing of a directory; that of a missing directory or of a file is empty.

        Object stores have no directories and cannot distinguish an empty one from a missing one, so no
        storage distinguishes them.

        Raises:
            Corrupt: The path is a symbolic link or a special file, or is below a link.
            Unavailable: The directory cannot be listed at the moment.
        """

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or None if the file does not exist.

        Raises:
            Unavailable: The storage does not answer.
        """

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """Write a file atomically: after a crash the file has the old or the new content, never a part.

        Missing parent directories are created. After the call the file survives a crash of the machine, as
        far as the storage can guarantee it. Without `replace`, only one of several concurrent writers
        succeeds.

        Raises:
            Conflict: The file exists, and `replace` is not set.
            Corrupt: The file is below a symbolic link.
            Unavailable: The file cannot be written, and an old file is unchanged; or the file was written but
                may be lost if the machine crashes, as stated in the message.
        """

    def require_exclusive_writes(self, path: str) -> None:
        """Check that the storage rejects a second `write` of a new file, which a lease requires.

        Args:
            path: The path of a file that does not exist. The check may write the file and then deletes it.

        Raises:
            Unsupported: The storage replaced the file.
            Unavailable: The storage does not answer.
        """

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """Copy a file atomically, as `write` does, from this or a different storage.

        On a local disk the copy is a hard link, so it must not be changed in place, which no code in this
        package does. An object store copies on the server if it can.

        Raises:
            NotFound: The source does not exist.
            Conflict: The target exists.
            Corrupt: The source is a symbolic link or a special file, or one of the paths is below a link.
            Unavailable: One of the storages cannot be reached.
        """

    def delete(self, path: str) -> None:
        """Delete a file; a missing file is not an error. Directories that become empty may stay.

        Raises:
            Unavailable: The file cannot be deleted at the moment.
        """


def files_below(storage: Storage, folder: str = "") -> Iterator[str]:
    """Yield the paths of all files below a folder, of whatever name.

    Cost: lists each directory.
    """
    yield from (path for path, _ in sizes_below(storage, folder))


def sizes_below(storage: Storage, folder: str = "") -> Iterator[tuple[str, int]]:
    """Yield the path and the size of each file below a folder, of whatever name.

    Cost: lists each directory.
    """
    listing = storage.list(folder)
    for name in listing.names:
        path = f"{folder}/{name}" if folder else name
        size = listing.size(name)
        if size is None:
            yield from sizes_below(storage, path)
        else:
            yield path, size


class Names:
    """A listing with names and sizes from one request."""

    __slots__ = ("_sizes",)

    def __init__(self, sizes: Mapping[str, int | None]) -> None:
        self._sizes = sizes

    @property
    def names(self) -> Sequence[str]:
        """See `Listing`."""
        return list(self._sizes)

    def size(self, name: str) -> int | None:
        """See `Listing`."""
        return self._sizes.get(name)


def no_file(uri: str, path: str) -> NotFound:
    """Return the error for a missing file."""
    hint = "check the address; a running query deletes files that it no longer needs"
    return NotFound("the file does not exist", code="HF-E3003", where=full(uri, path), hint=hint)


def file_exists(uri: str, path: str) -> Conflict:
    """Return the error for an existing file that must not be replaced."""
    hint = "name a different path, or remove the file if it is not needed"
    return Conflict("the file already exists", code="HF-E4062", where=full(uri, path), hint=hint)


def full(uri: str, path: str) -> str:
    """Return the complete address of a path, for error messages."""
    return f"{uri.rstrip('/')}/{path}" if path else uri


class ReadOnly(ABC):
    """The base class of a storage that rejects every change; a subclass defines the error."""

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:  # noqa: ARG002 - the port's
        """Raise the error for a change."""
        self._refuse(path)

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:  # noqa: ARG002 - the port's
        """Raise the error for a change."""
        self._refuse(target)

    def require_exclusive_writes(self, path: str) -> None:
        """Raise the error for a change."""
        self._refuse(path)

    def delete(self, path: str) -> None:
        """Raise the error for a change."""
        self._refuse(path)

    @abstractmethod
    def _refuse(self, path: str) -> NoReturn:
        """Raise the error for a change of this path."""
