"""The folders of a checkpoint, each listed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

from holdfast import layout
from holdfast.errors import Internal
from holdfast.layout import Place
from holdfast.storage.port import Listing, Names, Storage, full
from holdfast.storage.read_only import ReadOnly

_IN_ROOT = frozenset({layout.OFFSETS, layout.COMMITS, layout.SOURCES, layout.STATE, layout.OWN})
_IN_STORE = frozenset({layout.OPERATOR_METADATA, layout.SSTS, layout.LOGS})


class Tree:
    """Every folder that Spark's grammar knows, and what is in it.

    Args:
        storage: The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self._listings: dict[str, Listing] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._walk(storage, "")

    def has(self, path: str) -> bool:
        """Whether a file was there."""
        folder, name = layout.split(path)
        return name in self._names.get(folder, ())

    def names(self, folder: str) -> frozenset[str]:
        """The names in a folder."""
        return self._names.get(folder, frozenset())

    def listing(self, folder: str) -> Listing | None:
        """A folder's listing."""
        return self._listings.get(folder)

    def size(self, path: str) -> int | None:
        """A file's bytes; None if it is gone."""
        folder, name = layout.split(path)
        listing = self._listings.get(folder)
        return None if listing is None or name not in self._names[folder] else listing.size(name)

    def places(self) -> Iterator[tuple[str, Place]]:
        """Every file, and what it is; folders are left out."""
        for folder, names in self._names.items():
            inner = frozenset(subfolders(folder, names))
            for name in sorted(names - inner):
                path = layout.join(folder, name)
                yield path, layout.parse(path)

    def _walk(self, storage: Storage, folder: str) -> None:
        listing = self._listings[folder] = storage.list(folder)
        names = self._names[folder] = frozenset(listing.names)
        for name in sorted(subfolders(folder, names)):
            self._walk(storage, layout.join(folder, name))


class ListedCheckpoint(ReadOnly):
    """A checkpoint as it was listed once, for questions about many batches.

    No folder is listed a second time, and each file is read at most once: only small files are asked for.

    Args:
        storage: The checkpoint.
        tree: Its listing.
    """

    def __init__(self, storage: Storage, tree: Tree) -> None:
        self._storage = storage
        self._tree = tree
        self._read: dict[str, bytes] = {}

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._storage.uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        data = self._read.get(path)
        if data is None:
            data = self._read[path] = self._storage.read(path)
        return data[start:] if length is None else data[start : start + length]

    def list(self, path: str = "") -> Listing:
        """See `Storage`."""
        listing = self._tree.listing(path)
        return Names({}) if listing is None else listing

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        return self._tree.size(path)

    def _refuse(self, path: str) -> NoReturn:
        raise Internal("a listing of a checkpoint is never written", where=full(self.uri, path))


def subfolders(folder: str, names: Iterable[str]) -> Iterator[str]:
    """The names in a folder that are folders, by the grammar; nothing is asked of the storage."""
    parts = folder.split("/") if folder else []
    for name in names:
        if _is_folder(parts, name):
            yield name


def _is_folder(parts: list[str], name: str) -> bool:
    if not parts:
        return name in _IN_ROOT
    if parts[0] == layout.SOURCES:
        return len(parts) == 1 and not name.startswith(".")
    return parts[0] == layout.STATE and _is_state_folder(parts[1:], name)


def _is_state_folder(parts: list[str], name: str) -> bool:
    number = layout.number(name) is not None
    if len(parts) <= 1:
        return number or (len(parts) == 1 and name in (layout.OPERATOR_METADATA, layout.STATE_SCHEMA))
    if parts[1] == layout.OPERATOR_METADATA:
        return len(parts) == 2 and name == "v2"
    if parts[1] == layout.STATE_SCHEMA:
        return len(parts) == 2 and not name.startswith(".")
    if parts[-1] in _IN_STORE:
        return False
    return name in _IN_STORE or (len(parts) == 2 and "." not in name)
