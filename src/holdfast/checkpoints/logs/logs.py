"""The logs and operators of a checkpoint, each file read when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from holdfast import layout
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.logs.commit_log import CommitLog, parse_commit
from holdfast.formats.logs.offset_log import OffsetLog, parse_offsets
from holdfast.formats.logs.operator_metadata import OperatorMetadata, parse_operator
from holdfast.storage.local import file_of
from holdfast.storage.port import Storage

T = TypeVar("T")


class Logs:
    """The offset log and the commit log, listed once.

    List them before anything of the state: what is said of batches must not be newer than what is said of it.
    The commit log is listed first: Spark writes a batch's offsets before its commit, so what is committed
    here has been offered, however fast the query is.

    Args:
        storage: The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.committed = tuple(numbers(storage.list(layout.COMMITS).names))
        self.offered = tuple(numbers(storage.list(layout.OFFSETS).names))
        self._known = frozenset(self.committed)
        self._commits: dict[int, CommitLog | None] = {}
        self._offsets: dict[int, OffsetLog | None] = {}

    @property
    def newest(self) -> int | None:
        """The newest committed batch."""
        return self.committed[-1] if self.committed else None

    def commit(self, batch_id: int) -> CommitLog | None:
        """A batch's commit, or None if it is not there.

        Raises:
            Corrupt: The file is damaged.
        """
        if batch_id not in self._commits:
            path = layout.LogFile(layout.Log.COMMITS, batch_id).render()
            data = _read(self.storage, path)
            self._commits[batch_id] = None if data is None else parse_commit(data, path)
        return self._commits[batch_id]

    def offsets(self, batch_id: int) -> OffsetLog | None:
        """A batch's offsets, or None if they are not there.

        Raises:
            Corrupt: The file is damaged.
        """
        if batch_id not in self._offsets:
            path = layout.LogFile(layout.Log.OFFSETS, batch_id).render()
            data = _read(self.storage, path)
            self._offsets[batch_id] = None if data is None else parse_offsets(data, path)
        return self._offsets[batch_id]

    def offsets_up_to(self, batch_id: int) -> list[OffsetLog]:
        """The offsets of the batches up to one, as far as they are kept.

        Raises:
            Corrupt: A file is damaged.
        """
        planned = (self.offsets(planned_id) for planned_id in self.offered if planned_id <= batch_id)
        return [offsets for offsets in planned if offsets is not None]

    def unique_id(self, store: layout.StoreId, index: int, version: int) -> str | None:
        """The unique id under which a store's version was committed.

        Args:
            store: The store.
            index: Its place among its operator's stores.
            version: The version.

        Returns:
            None under state-checkpoint format 1, and where the commit log no longer tells.
        """
        commit = self.commit(version - 1) if version - 1 in self._known else None
        if commit is None or commit.state_ids is None:
            return None
        partitions = commit.state_ids.get(store.operator_id, ())
        stores = partitions[store.partition] if store.partition < len(partitions) else ()
        return stores[index] if index < len(stores) else None


@dataclass(frozen=True, slots=True)
class OperatorFolder:
    """An operator's folder.

    Attributes:
        operator_id: Its number.
        metadata_path: Where its metadata is; None if there is none.
        partitions: The partitions that have a folder, ascending.
    """

    operator_id: int
    metadata_path: str | None
    partitions: tuple[int, ...]


def operator_folders(storage: Storage, newest: int | None) -> list[OperatorFolder]:
    """The operators that have a folder, by number. Three listings each.

    Args:
        storage: The checkpoint.
        newest: The newest batch whose metadata counts; that of a batch which is not committed is left out
            where there is an older one.
    """
    folders = []
    for operator_id in numbers(storage.list(layout.STATE).names):
        partitions = numbers(storage.list(f"{layout.STATE}/{operator_id}").names)
        path = _metadata_path(storage, operator_id, newest)
        folders.append(OperatorFolder(operator_id, path, tuple(partitions)))
    return folders


def read_operator(storage: Storage, path: str | None) -> OperatorMetadata | None:
    """An operator's metadata, or None if there is none.

    Raises:
        Corrupt: The file is damaged.
    """
    data = None if path is None else _read(storage, path)
    return None if data is None or path is None else parse_operator(data, path)


def readable(ask: Callable[[], T]) -> T | None:
    """Return what a file says, or None where it is damaged: verification reports that damage by itself."""
    try:
        return ask()
    except (Corrupt, Unsupported, NotFound):
        return None


def numbers(names: Iterable[str]) -> list[int]:
    """The names that are numbers as Spark writes them, ascending."""
    found = (layout.number(name) for name in names)
    return sorted(number for number in found if number is not None)


def written_ms(storage: Storage, log: layout.Log, batch_id: int) -> int | None:
    """When a batch's file of a log was written; None where it is gone or not on this machine."""
    file = file_of(storage, layout.LogFile(log, batch_id).render())
    try:
        return None if file is None else file.lstat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def _metadata_path(storage: Storage, operator_id: int, newest: int | None) -> str | None:
    folder = f"{layout.STATE}/{operator_id}/{layout.OPERATOR_METADATA}"
    names = storage.list(folder).names
    if layout.METADATA in names:
        return layout.OperatorMetadataFile(operator_id).render()
    if "v2" not in names:
        return None
    versions = numbers(storage.list(f"{folder}/v2").names)
    usable = [version for version in versions if newest is None or version <= newest] or versions[:1]
    return layout.OperatorMetadataFile(operator_id, usable[-1]).render() if usable else None


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except NotFound:
        return None
