"""The interface of storage, and its guarantees.

A storage is rooted at a directory. Paths are relative to it, separated by `/`, without a leading `/` and
without `..`. Errors are Holdfast's: `NotFound` for a missing file, `Conflict` for an unexpected existing one,
and `Unavailable` for a storage that does not answer or denies access. Their `where` is the full address.
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
    """End the work in this block, and in threads that inherit its context, when an event is set."""
    token = _GIVEN_UP.set(given_up)
    try:
        yield
    finally:
        _GIVEN_UP.reset(token)


def go_on() -> None:
    """Raise an error if the event of `until` is set; cheap enough for inner loops.

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
    """The content of a directory.

    The names are a snapshot, taken at the latest when they are first read. A file may be deleted later,
    because a running query deletes files that it no longer needs.
    """

    @property
    def names(self) -> Sequence[str]:
        """Return the names of files and directories, unordered, including hidden ones."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None for a directory or a missing file.

        Object stores return sizes with the names. A local disk is read here, once per call, so a few sizes
        cost less than all names.
        """


@runtime_checkable
class Storage(Protocol):
    """Bytes at an address.

    Safe to use from several threads. Nothing is cached: each call sees what exists now.
    """

    @property
    def uri(self) -> str:
        """Return the address of the root, for messages."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or of a part of it.

        A part that extends beyond the file's end is shortened. For a file that is replaced during the call,
        the old or the new content is returned; files of a checkpoint are written atomically.

        Raises:
            NotFound: The file does not exist.
            Corrupt: The file is a symbolic link or a special file, or is below a link.
            Unavailable: The file cannot be read at the moment.
        """

    def list(self, path: str = "") -> Listing:
        """List a directory; a missing one, and a file, is empty.

        Object stores know no directories, so an empty one and a missing one cannot be told apart there,
        and are not told apart anywhere.

        Raises:
            Corrupt: It is a symbolic link or a special file, or below a link.
            Unavailable: It cannot be listed at the moment.
        """

    def size(self, path: str) -> int | None:
        """The bytes of a file; None if the file does not exist.

        Raises:
            Unavailable: The storage cannot be asked at the moment.
        """

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """Write a file atomically: also after a crash the file is the old or the new one, never a part.

        Missing parent directories are created. When the call returns, the file survives a crash of the
        machine, as far as the storage can guarantee it. Without `replace`, one of several concurrent writers
        succeeds.

        Raises:
            Conflict: The file exists, and `replace` is not set.
            Corrupt: The file is below a symbolic link.
            Unavailable: The file cannot be written, and an old file is unchanged; or it was written but may
                be lost if the machine crashes, as the message says.
        """

    def require_exclusive_writes(self, path: str) -> None:
        """Check that the storage refuses a second `write` of a new file, as a lease needs it.

        Args:
            path: A file that does not exist. It may be written, and is deleted again.

        Raises:
            Unsupported: The storage has replaced the file.
            Unavailable: The storage does not answer.
        """

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """Copy a file atomically, as `write` does, from this or a different storage.

        A local disk creates a hard link, so the copy must not be changed in place (no code here does that);
        an object store makes a server-side copy if it can.

        Raises:
            NotFound: The source does not exist.
            Conflict: The target exists.
            Corrupt: The source is a symbolic link or a special file, or one of the paths is below a link.
            Unavailable: One of the storages cannot be reached.
        """

    def delete(self, path: str) -> None:
        """Delete a file; one that is missing is not an error. Directories left empty may stay.

        Raises:
            Unavailable: It cannot be deleted at the moment.
        """


class Names:
    """A listing that includes the sizes."""

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
    """Return the address of a path, for messages."""
    return f"{uri.rstrip('/')}/{path}" if path else uri


class ReadOnly(ABC):
    """Refuses every change; what it is, and what to do instead, says the kind of storage."""

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:  # noqa: ARG002 - the port's
        """Refused."""
        self._refuse(path)

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:  # noqa: ARG002 - the port's
        """Refused."""
        self._refuse(target)

    def require_exclusive_writes(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    def delete(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    @abstractmethod
    def _refuse(self, path: str) -> NoReturn:
        """Raise the error for a change of this path."""
