"""Storage in memory: for tests of everything above the port, and of a user's own tools."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from holdfast.errors import Conflict, NotFound
from holdfast.storage.port import Names, Storage, full


class MemoryStorage:
    """Files in a dictionary, by path.

    Args:
        files: What is there at first; copied.
        uri: The address that messages show.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None, uri: str = "memory://checkpoint") -> None:
        self._files = dict(files or {})
        self._uri = uri
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._uri

    @property
    def files(self) -> dict[str, bytes]:
        """A copy of everything there is."""
        with self._lock:
            return dict(self._files)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        with self._lock:
            data = self._files.get(path)
        if data is None:
            raise NotFound("there is no such file", where=full(self._uri, path))
        return data[start:] if length is None else data[start : start + length]

    def list(self, path: str = "") -> Names:
        """See `Storage`."""
        prefix = f"{path}/" if path else ""
        found: dict[str, int | None] = {}
        with self._lock:
            for file, data in self._files.items():
                if file.startswith(prefix):
                    name, below, _ = file[len(prefix) :].partition("/")
                    found[name] = None if below else len(data)
        return Names(found)

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        with self._lock:
            data = self._files.get(path)
        return None if data is None else len(data)

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        with self._lock:
            if not replace and path in self._files:
                raise Conflict("the file exists", where=full(self._uri, path))
            self._files[path] = bytes(data)

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        self.write(target, (origin or self).read(source))

    def delete(self, path: str) -> None:
        """See `Storage`."""
        with self._lock:
            self._files.pop(path, None)
