"""A storage with simulated failures, for tests of crashes at any step."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import Unavailable
from holdfast.storage.port import Listing, Storage, full


class Killed(BaseException):
    """The simulated death of the process; no `except Exception` catches it."""


class FaultyStorage:
    """A wrapper of a storage that fails at the n-th change.

    A change is a `write`, a `copy` or a `delete`, counted from 1. At step `at` it fails or kills; after a
    kill every call raises `Killed`.

    Args:
        inner: The storage with the bytes.
        at: The change at which to fail; 0 never fails, and only counts the steps.
        kill: Raise `Killed` and stay dead; otherwise raise `Unavailable` once.
        late: Make the change before failing, so that the caller does not know of it.
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
            "simulated storage failure",
            code="HF-E5067",
            where=full(self.uri, path),
            hint="handle the failure in the tested code: the test simulates it",
        )

    def _alive(self) -> None:
        if self.dead:
            raise Killed("the process is dead")
