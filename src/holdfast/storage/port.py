"""The interface of storage, and its guarantees.

A storage is rooted at a directory. Paths are relative to it, with `/` between their parts; none starts
with `/` or holds `..`. Errors are Holdfast's: `NotFound` for what is missing, `Conflict` for what exists
and should not be, `Unavailable` for a storage that does not answer or refuses. Their `where` is the full
address.
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
    """Let all that is done in this block, and in threads that inherit its context, end with an event."""
    token = _GIVEN_UP.set(given_up)
    try:
        yield
    finally:
        _GIVEN_UP.reset(token)


def go_on() -> None:
    """Do nothing, at the cost of a glance, as long as somebody waits.

    Raises:
        Unavailable: Nobody does any more.
    """
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise Unavailable(
            "this took too long and was given up", code="HF-E5049", hint="ask for less at a time"
        )


class Listing(Protocol):
    """The content of a directory.

    The names are those of one moment, at the latest when they are first asked for. A name may be gone by the
    time it is looked at: a running query deletes what it no longer needs.
    """

    @property
    def names(self) -> Sequence[str]:
        """Names of files and directories, in no order, hidden ones included."""

    def size(self, name: str) -> int | None:
        """The bytes of a file; None for a directory and for what is gone.

        Object stores have told the sizes with the names. A local disk is asked here, once for each call, so
        a few sizes cost less than all names.
        """


@runtime_checkable
class Storage(Protocol):
    """Bytes at an address.

    Safe to use from several threads. Nothing is cached: each call sees what exists now.
    """

    @property
    def uri(self) -> str:
        """The address of the root, as messages show it."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it.

        A part that begins or ends behind the file's end is as long as what exists. A file that is
        replaced meanwhile gives its old or its new bytes; files of a checkpoint are put in place whole.

        Raises:
            NotFound: The file does not exist.
            Corrupt: It is a symbolic link or a special file, or below a link.
            Unavailable: It cannot be read at the moment.
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
        """Put a whole file in place: after it, or after a crash in it, the file is old or new, never part.

        Directories above it are made. When the call returns, the bytes outlive a crash of the machine,
        as far as the storage can promise that. Without `replace`, of several writers one wins.

        Raises:
            Conflict: The file exists, and `replace` was not asked for.
            Corrupt: It is below a symbolic link.
            Unavailable: It cannot be written; the old file, if there was one, is still there. Or it was
                written and a crash of the machine may undo that, which the message says.
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
        """Copy a file into place, as `write` does, from here or from another storage.

        The cheapest way there is: a local disk makes a hard link, so the copy must not be changed in place
        (nothing here changes a file in place); an object store copies on its side where it can.

        Raises:
            NotFound: The source does not exist.
            Conflict: The target exists.
            Corrupt: The source is a symbolic link or a special file, or one of the two is below a link.
            Unavailable: One of the two cannot be reached.
        """

    def delete(self, path: str) -> None:
        """Delete a file; one that is missing is not an error. Directories left empty may stay.

        Raises:
            Unavailable: It cannot be deleted at the moment.
        """


class Names:
    """A listing whose sizes came with the names."""

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
    """The error for a file that is missing."""
    hint = "check the address; a running query deletes files that it no longer needs"
    return NotFound("there is no such file", code="HF-E3003", where=full(uri, path), hint=hint)


def file_exists(uri: str, path: str) -> Conflict:
    """The error for a file that exists, and that must not be replaced."""
    hint = "name another place, or remove the file if nobody needs it"
    return Conflict("the file exists", code="HF-E4062", where=full(uri, path), hint=hint)


def full(uri: str, path: str) -> str:
    """The address of a path, for messages."""
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
