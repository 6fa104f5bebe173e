"""A storage with simulated failures, for tests of crashes at each step."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import Unavailable
from holdfast.storage.port import Listing, Storage, full


class Killed(BaseException):
    """An exception that simulates the death of the process; `except Exception` does not catch it."""


class FaultyStorage:
    """A wrapper of a storage that fails at the n-th change.

    A change is a `write`, a `copy` or a `delete`. Changes are counted from 1. The change number `at` fails;
    after a simulated kill, every call raises `Killed`.

    Args:
        inner: The wrapped storage, which contains the files.
        at: The number of the change that fails; 0 for none, to count the changes.
        kill: Whether to raise `Killed` at this and every later call; otherwise `Unavailable` is raised once.
        late: Whether to make the change before failing, so that the caller cannot know whether it was made.
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
