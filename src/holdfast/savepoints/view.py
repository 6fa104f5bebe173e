"""A savepoint as the checkpoint that it would become, and the location of state at a batch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from holdfast import layout
from holdfast.config.checks import local_path
from holdfast.errors import Unavailable, Unsupported
from holdfast.formats.manifest import SavedFile
from holdfast.savepoints.catalog import object_path
from holdfast.storage.atomic_swap import sandbox
from holdfast.storage.local import file_of
from holdfast.storage.port import Names, ReadOnly, Storage, full, no_file


class SavepointView(ReadOnly):
    """The files of a savepoint under their paths in the checkpoint.

    Code that reads a checkpoint uses it to read a savepoint.

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
        """Return the hash of a file in the manifest."""
        return self._files[path].sha256

    def list(self, path: str = "") -> Names:
        """See `Storage`."""
        return Names(self._folders.get(path, {}))

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        file = self._files.get(path)
        return None if file is None else file.size_bytes

    def file_of(self, path: str) -> Path | None:
        """Return the local path of a file; None if the catalog is not on this machine."""
        file = self._files.get(path)
        return None if file is None else file_of(self._catalog, object_path(file.sha256))

    def _refuse(self, path: str) -> NoReturn:
        raise Unsupported(
            "a savepoint cannot be changed",
            code="HF-E7101",
            where=full(self._uri, path),
            hint="create a checkpoint from the savepoint with `holdfast restore SP CHECKPOINT` or"
            " `holdfast fork SP CHECKPOINT`",
        )


@dataclass(frozen=True, slots=True)
class StateLocation:
    """The state that an address names.

    Attributes:
        storage: A checkpoint, or a savepoint's view.
        batch_id: The batch; None for the newest of a checkpoint.
        name: The address, as messages show it.
        is_savepoint: Whether it is a savepoint.
    """

    storage: Storage
    batch_id: int | None
    name: str
    is_savepoint: bool = False


def workplace(target: Storage, purpose: str) -> AbstractContextManager[Path]:
    """Open a working directory for a new checkpoint or savepoint, on the same disk if that is local.

    Args:
        target: A checkpoint or a catalog.
        purpose: The purpose, a part of the directory's name.
    """
    local = local_path(target.uri)
    folder = Path(tempfile.gettempdir()) if local is None else local.parent
    return sandbox(folder, purpose, os.urandom(8).hex())


@contextmanager
def scratch(target: Storage) -> Iterator[Path]:
    """Open a temporary directory for reading state.

    It is next to the checkpoint, so that state files are linked and not copied, or among the temporary files
    if that location is not writable.

    Args:
        target: A checkpoint.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(workplace(target, "plan"))
        except Unavailable:
            elsewhere = sandbox(Path(tempfile.gettempdir()), "plan", os.urandom(8).hex())
            folder = stack.enter_context(elsewhere)
        yield folder
