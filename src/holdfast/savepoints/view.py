"""A savepoint as the checkpoint that it would become: a storage to read from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from holdfast import layout
from holdfast.errors import Unsupported
from holdfast.formats.savepoint.manifest import SavedFile
from holdfast.savepoints.catalog.catalog import object_path
from holdfast.storage.local import file_of
from holdfast.storage.port import Names, Storage, full, no_file
from holdfast.storage.read_only import ReadOnly


class SavepointView(ReadOnly):
    """The files of a savepoint under their paths in the checkpoint.

    What reads a checkpoint reads a savepoint through this, at its batch.

    Args:
        catalog: Where the bytes are.
        files: The files.
        uri: The address that messages show.
    """

    def __init__(self, catalog: Storage, files: Iterable[SavedFile], uri: str) -> None:
        self._catalog = catalog
        self._uri = uri
        self._files = {file.path: file for file in files}
        self._folders: dict[str, dict[str, int | None]] = {}
        for path, file in self._files.items():
            folder, name = layout.split(path)
            self._folders.setdefault(folder, {})[name] = file.size_bytes
            while folder:
                folder, name = layout.split(folder)
                self._folders.setdefault(folder, {}).setdefault(name, None)

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        file = self._files.get(path)
        if file is None:
            raise no_file(self._uri, path)
        return self._catalog.read(object_path(file.sha256), start, length)

    def sha256(self, path: str) -> str:
        """The hash that a file had when it was saved."""
        return self._files[path].sha256

    def list(self, path: str = "") -> Names:
        """See `Storage`."""
        return Names(self._folders.get(path, {}))

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        file = self._files.get(path)
        return None if file is None else file.size_bytes

    def file_of(self, path: str) -> Path | None:
        """Where a file is on this machine; None if the catalog is not on it."""
        file = self._files.get(path)
        return None if file is None else file_of(self._catalog, object_path(file.sha256))

    def _refuse(self, path: str) -> NoReturn:
        raise Unsupported(
            "a savepoint is never changed",
            where=full(self._uri, path),
            hint="make a checkpoint of it with `holdfast restore` or `holdfast fork`",
        )
