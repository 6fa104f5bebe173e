"""Storage in memory, for tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from holdfast.storage.port import Names, Storage, file_exists, no_file


class MemoryStorage:
    """A storage of files in a dictionary, by path.

    Args:
        files: The initial files, which are copied.
        uri: The address for error messages.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None, uri: str = "memory://checkpoint") -> None:
        self._files: dict[str, bytes] = {}
        # The content of each directory, so that a listing does not read all files.
        self._folders: dict[str, dict[str, int | None]] = {}
        self._uri = uri
        self._lock = threading.Lock()
        for path, data in (files or {}).items():
            self._put(path, data)

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._uri

    @property
    def files(self) -> dict[str, bytes]:
        """Return a copy of all files."""
        with self._lock:
            return dict(self._files)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        with self._lock:
            data = self._files.get(path)
        if data is None:
            raise no_file(self._uri, path)
        return data[start:] if length is None else data[start : start + length]

    def list(self, path: str = "") -> Names:
        """See `Storage`."""
        with self._lock:
            return Names(dict(self._folders.get(path, {})))

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        with self._lock:
            data = self._files.get(path)
        return None if data is None else len(data)

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        with self._lock:
            if not replace and path in self._files:
                raise file_exists(self._uri, path)
            self._put(path, bytes(data))

    def require_exclusive_writes(self, path: str) -> None:
        """Do nothing; `write` rejects the second write."""

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        self.write(target, (origin or self).read(source))

    def delete(self, path: str) -> None:
        """See `Storage`."""
        with self._lock:
            if self._files.pop(path, None) is not None:
                self._forget(path)

    def _put(self, path: str, data: bytes) -> None:
        self._files[path] = data
        folder, _, name = path.rpartition("/")
        self._folders.setdefault(folder, {})[name] = len(data)
        while folder:
            parent, _, name = folder.rpartition("/")
            names = self._folders.setdefault(parent, {})
            if names.get(name, 0) is None:
                return
            names[name] = None
            folder = parent

    def _forget(self, path: str) -> None:
        """Remove a path from its directory, and each parent directory that becomes empty."""
        folder, _, name = path.rpartition("/")
        names = self._folders[folder]
        names.pop(name, None)
        if folder and not names:
            del self._folders[folder]
            self._forget(folder)
