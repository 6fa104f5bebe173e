"""A storage that fails when it is told to: for tests of what must survive a crash at any step."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import Unavailable
from holdfast.storage.port import Listing, Storage, full


class Killed(BaseException):
    """Stands for the death of the process: no `except Exception` sees it, no clean-up may count on time."""


class FaultyStorage:
    """Passes everything on to another storage, until the n-th change.

    A change is a `write`, a `copy` or a `delete`, counted from 1. At step `at` it fails or kills; after a
    kill nothing more is passed on, as nothing more would be done by a dead process.

    Args:
        inner: Where the bytes are.
        at: The change to fail at; 0 never fails, which is how steps are counted.
        kill: Raise `Killed` and stay dead; otherwise raise `Unavailable` once.
        late: Do the change first, and fail then: it happened, but the caller does not know.
    """

    def __init__(self, inner: Storage, at: int = 0, *, kill: bool = True, late: bool = False) -> None:
        self._inner = inner
        self._at = at
        self._kill = kill
        self._late = late
        self.steps = 0
        self.dead = False

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._inner.uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        self._alive()
        return self._inner.read(path, start, length)

    def list(self, path: str = "") -> Listing:
        """See `Storage`."""
        self._alive()
        return self._inner.list(path)

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        self._alive()
        return self._inner.size(path)

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        self._change(path, lambda: self._inner.write(path, data, replace=replace))

    def require_exclusive_writes(self, path: str) -> None:
        """See `Storage`."""
        self._alive()
        self._inner.require_exclusive_writes(path)

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        self._change(target, lambda: self._inner.copy(source, target, origin=origin))

    def delete(self, path: str) -> None:
        """See `Storage`."""
        self._change(path, lambda: self._inner.delete(path))

    def _change(self, path: str, change: Callable[[], None]) -> None:
        self._alive()
        self.steps += 1
        if self.steps != self._at:
            change()
            return
        if self._late:
            change()
        if self._kill:
            self.dead = True
            raise Killed(f"at step {self.steps}: {path}")
        raise Unavailable(
            "the storage failed, as the test told it to",
            code="HF-E5067",
            where=full(self.uri, path),
            hint="this is the failure that the test asked for",
        )

    def _alive(self) -> None:
        if self.dead:
            raise Killed("the process is dead")
