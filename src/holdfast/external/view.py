"""A checkpoint with state in a database, shown as a checkpoint with state in files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from holdfast import layout
from holdfast.config.checks import local_path
from holdfast.config.spark_defaults import EXTERNAL_PROVIDERS
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.external.databases import Databases
from holdfast.external.store_port import ExternalStore, StoreLook, rows_of
from holdfast.formats.files.compression import codec_name, compressed
from holdfast.formats.files.records import RecordKind, StateRecord, render_records
from holdfast.formats.logs.batch_logs import CODEC, ROW_CHECKSUM, OffsetLog, parse_offsets
from holdfast.formats.providers import ExternalState, check_read, provider_class
from holdfast.formats.text import json_object
from holdfast.layout import DEFAULT_STORE, FileKind, Log, LogFile, StoreFile, StoreId
from holdfast.storage import open_storage
from holdfast.storage.local import SteadyFolder, file_of
from holdfast.storage.port import ReadOnly, Storage, full, no_file
from holdfast.storage.successors import current_address

# The file in a partition's directory that names the store with its state.
DESCRIPTION: Final = "external.json"
_WHAT: Final = "the location of the state"
# The default compression of Spark's memory provider, if the checkpoint fixes none.
_DEFAULT_CODEC: Final = "lz4"


def open_checkpoint(address: str | os.PathLike[str]) -> Storage:
    """Open the storage of a checkpoint, or of its newest successor; state in a database is shown as files.

    The offset log and one of its files are read. No database is contacted.

    Raises:
        Invalid: The address is malformed.
        Unsupported: The library for this storage is not installed, or only Spark can read the database.
        Unavailable: The storage does not answer.
    """
    return with_state(open_current(address))


def open_steady(address: str | os.PathLike[str]) -> Storage:
    """Open a checkpoint as `open_checkpoint` does, to read one state of it in several calls.

    On a local disk, a call after the checkpoint was replaced raises `Conflict`: files of both are never
    combined.
    """
    storage = open_current(address)
    place = local_path(storage.uri)
    return with_state(storage if place is None else SteadyFolder(place))


def open_current(address: str | os.PathLike[str]) -> Storage:
    """Open the storage of a checkpoint, or of the newest one that has replaced it.

    Raises:
        Invalid: The address is malformed.
        Unsupported: The library for this storage is not installed.
        Unavailable: The storage does not answer.
    """
    storage = open_storage(address)
    current = current_address(storage.uri)
    return storage if current == storage.uri else open_storage(current)


def with_state(storage: Storage) -> Storage:
    """Return a storage that shows a checkpoint's state in a database as files; return other storages
    unchanged.

    Raises:
        Unsupported: Only Spark can read the database.
    """
    provider = _pinned(storage)
    if provider is None:
        return storage
    check_read(provider, storage.uri)
    return ExternalView(storage, provider)


def is_external(storage: Storage) -> bool:
    """Return whether a storage shows state in a database."""
    return isinstance(storage, ExternalView)


def description_path(store: StoreId) -> str:
    """Return the path of the file that names the database store of a partition."""
    return layout.join(store.folder, DESCRIPTION)


def parse_description(data: bytes, where: str) -> tuple[str, str]:
    """Return the database and the store named in a partition's description file.

    Raises:
        Corrupt: The file is not valid JSON, or lacks the database or the store.
    """
    fields = json_object(data.decode(errors="replace"), _WHAT, where)
    database, name = fields.get("database"), fields.get("store")
    if not isinstance(database, str) or not isinstance(name, str):
        raise Corrupt(
            "the file that names the database and the store of a state is incomplete",
            code="HF-E6023",
            where=where,
            expected="the text fields `database` and `store`",
            hint="restore the file from a copy of the checkpoint, or restore a savepoint",
        )
    return database, name


def render_description(database: str, store: str) -> bytes:
    """Return the content of a partition's description file."""
    return json.dumps({"database": database, "store": store}, separators=(",", ":")).encode() + b"\n"


class ExternalView(ReadOnly):
    """A checkpoint whose state is in a database, with that state as files of Spark's memory provider.

    Each version that the database has is shown as a snapshot. A snapshot is created when it is read, at the
    cost of reading a partition's state; its rows are ordered by key, so equal states have equal bytes. The
    size in a listing is an estimate, the size of the state in the database. The offset log shows the memory
    provider, and also has the address of the actual database. All other files are those of the checkpoint.

    Args:
        storage: The storage of the checkpoint.
        provider: The provider class that the newest batch fixes.
    """

    def __init__(self, storage: Storage, provider: str) -> None:
        self.storage = storage
        self._provider = provider
        self._databases = Databases()
        self._stores: dict[StoreId, ExternalStore] = {}
        self._state: ExternalState | None = None
        self._codec: str | None = None

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self.storage.uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        place = layout.parse(path)
        if isinstance(place, StoreFile):
            data = self._snapshot(path, place)
        elif isinstance(place, LogFile) and place.log is Log.OFFSETS:
            data = self._offsets(path)
        elif _hidden(place):
            raise no_file(self.uri, path)
        else:
            return self.storage.read(path, start, length)
        return data[start:] if length is None else data[start : start + length]

    def list(self, path: str = "") -> _StoreNames:
        """List a directory; see `Storage`. For the directory of a store, the database is queried."""
        listing = self.storage.list(path)
        names = [name for name in listing.names if not _hidden(layout.parse(layout.join(path, name)))]
        store = self._store_of_folder(path, names)
        if store is not None:
            return _StoreNames(names, listing.size, store.look())
        if path == layout.OFFSETS:
            return _StoreNames(names, lambda name: self.size(layout.join(path, name)))
        return _StoreNames(names, listing.size)

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        place = layout.parse(path)
        if isinstance(place, StoreFile) and (store := self._store(place.store)) is not None:
            look = store.look()
            return look.size_bytes if _is_listed(place) and place.version in look.attempts else None
        if isinstance(place, LogFile) and place.log is Log.OFFSETS:
            try:
                return len(self._offsets(path))
            except NotFound:
                return None
        return None if _hidden(place) else self.storage.size(path)

    def file_of(self, path: str) -> Path | None:
        """Return the local path of a file, or None for a generated file or a remote checkpoint."""
        place = layout.parse(path)
        made = isinstance(place, StoreFile) or (isinstance(place, LogFile) and place.log is Log.OFFSETS)
        return None if made or not path or _hidden(place) else file_of(self.storage, path)

    def _refuse(self, path: str) -> NoReturn:
        raise Unsupported(
            "a checkpoint with state in a database cannot be changed in place",
            code="HF-E7061",
            where=full(self.uri, path),
            hint="take a savepoint, change the savepoint, and write it to the database with"
            " `holdfast restore SP CHECKPOINT`",
        )

    def _offsets(self, path: str) -> bytes:
        offsets = parse_offsets(self.storage.read(path), path)
        if provider_class(offsets.confs) not in EXTERNAL_PROVIDERS:
            return self.storage.read(path)
        external = self._external(provider_class(offsets.confs))
        return with_confs(offsets, {**external.noted(offsets.confs), ROW_CHECKSUM: "false"}).render()

    def _external(self, provider: str) -> ExternalState:
        """Return the database with the state, as named in the description of the first partition."""
        if self._state is None:
            first = f"{layout.STATE}/0/0"
            named = [
                name for name in sorted(self.storage.list(first).names) if "." not in name and name[0] != "_"
            ]
            for name in (DEFAULT_STORE, *named):
                with suppress(HoldfastError):
                    database, store = self._description(StoreId(0, 0, name))
                    self._state = ExternalState(provider, database, store.partition(":{")[0])
                    break
        return self._state or ExternalState(provider, "", "")

    def _snapshot(self, path: str, file: StoreFile) -> bytes:
        store = self._store(file.store)
        if store is None or not _is_listed(file):
            return self.storage.read(path)
        look, fields = store.scan(file.version)
        rows = sorted(rows_of(fields, look.encoder, store.where))
        if self._codec is None:
            newest = _newest(self.storage)
            self._codec = codec_name((newest.confs if newest else {}).get(CODEC, _DEFAULT_CODEC))
        return compressed(
            render_records([StateRecord(RecordKind.PUT, key, value) for key, value in rows]), self._codec
        )

    def _store_of_folder(self, path: str, names: Sequence[str]) -> ExternalStore | None:
        if DESCRIPTION not in names:
            return None
        place = layout.parse(layout.join(path, f"{layout.FIRST_VERSION}.{FileKind.SNAPSHOT.value}"))
        return self._store(place.store) if isinstance(place, StoreFile) else None

    def _store(self, store: StoreId) -> ExternalStore | None:
        """Return the store of a partition, or None if the checkpoint does not name one."""
        if store not in self._stores:
            try:
                database, name = self._description(store)
            except NotFound:
                return None
            self._stores[store] = self._databases.store(
                database, name, full(self.uri, description_path(store))
            )
        return self._stores[store]

    def _description(self, store: StoreId) -> tuple[str, str]:
        path = description_path(store)
        return parse_description(self.storage.read(path), full(self.uri, path))


class _StoreNames:
    """A listing of a directory; for the directory of a store, with the versions in the database."""

    def __init__(
        self, names: Sequence[str], size: Callable[[str], int | None], look: StoreLook | None = None
    ) -> None:
        versions = () if look is None else (version for version in look.attempts if version > 0)
        self._made = {f"{version}.{FileKind.SNAPSHOT.value}" for version in versions}
        self._names = [*names, *self._made]
        self._size = size
        self._bytes = 0 if look is None else look.size_bytes

    @property
    def names(self) -> Sequence[str]:
        """See `Listing`."""
        return self._names

    def size(self, name: str) -> int | None:
        """See `Listing`."""
        return self._bytes if name in self._made else self._size(name)


def with_confs(offsets: OffsetLog, confs: Mapping[str, str]) -> OffsetLog:
    """Return a batch of the offset log with its fixed settings replaced."""
    return replace(offsets, fields={**(offsets.fields or {}), "conf": dict(confs)})


def _pinned(storage: Storage) -> str | None:
    """Return the provider class that the newest batch fixes, or None if the state is in files."""
    offsets = _newest(storage)
    provider = None if offsets is None else provider_class(offsets.confs)
    return provider if provider in EXTERNAL_PROVIDERS else None


def _newest(storage: Storage) -> OffsetLog | None:
    """Return the newest readable batch of the offset log; `verify` reports malformed ones."""
    numbers = (layout.number(name) for name in storage.list(layout.OFFSETS).names)
    for batch_id in sorted((number for number in numbers if number is not None), reverse=True):
        path = LogFile(Log.OFFSETS, batch_id).render()
        with suppress(NotFound, Corrupt, Unsupported):
            return parse_offsets(storage.read(path), path)
    return None


def _is_listed(file: StoreFile) -> bool:
    return file.kind is FileKind.SNAPSHOT and file.unique_id is None and file.version > 0


def _hidden(place: layout.Place) -> bool:
    """Return whether a file is Hadoop's checksum of a file that is shown with different content."""
    if not isinstance(place, layout.HadoopChecksumFile):
        return False
    of = layout.parse(place.of)
    return isinstance(of, LogFile) and of.log is Log.OFFSETS
