"""Reading of RocksDB snapshots in a checkpoint, with the later changelogs applied."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.problems import SEE_DAMAGE, other_size
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.records import RecordKind, StateRecord
from holdfast.formats.files.snapshot import SharedFile, SnapshotMetadata, parse_snapshot, snapshot_entries
from holdfast.formats.files.sst import UNREADABLE, check_sst
from holdfast.formats.rows.row_forms import FAMILY_BYTES, ValueForm
from holdfast.formats.text import damaged
from holdfast.layout import DEFAULT_STORE, FileKind, StoreFile
from holdfast.storage.local import file_of
from holdfast.storage.port import Storage, full

Pairs = list[tuple[bytes, bytes]]


class Families:
    """The column families of a store, by the prefix of a key.

    Args:
        numbers: The number of each family by name; None if the store has no families, so that keys have no
            prefix.
        most: The highest number ever assigned, which may be that of a deleted family.
    """

    def __init__(self, numbers: Mapping[str, int] | None, most: int = 0) -> None:
        self.numbers: Final = None if numbers is None else dict(numbers)
        self.most: Final = max([most, *(self.numbers or {}).values()])
        self.prefixes: Final[Mapping[str, bytes]] = (
            {DEFAULT_STORE: b""}
            if numbers is None
            else {name: number.to_bytes(FAMILY_BYTES, "little") for name, number in numbers.items()}
        )
        self.names: Final = {prefix: name for name, prefix in self.prefixes.items()}
        self._width: Final = 0 if numbers is None else FAMILY_BYTES

    @classmethod
    def of(
        cls, operator: OperatorStates, store: str, snapshot: SnapshotMetadata | None, *, marked: bool = False
    ) -> Families:
        """Return the families of a store.

        Args:
            operator: The store's operator.
            store: The name of the store.
            snapshot: The metadata of the base; None if it is not a RocksDB snapshot.
            marked: Whether a changelog shows that the store has families.

        Raises:
            ValueError: The mapping of families in the snapshot is not valid.
        """
        fields = {} if snapshot is None else snapshot.fields
        numbers = fields.get("columnFamilyMapping") or {}
        if not isinstance(numbers, dict):
            raise ValueError(f"`columnFamilyMapping` is {numbers!r}")
        if not numbers and not marked and not operator.has_families(store):
            return cls(None)
        named = {str(name): int(number) for name, number in numbers.items()}
        return cls(named, int(fields.get("maxColumnFamilyId") or 0))

    @classmethod
    def in_base(
        cls, storage: Storage, operator: OperatorStates, store: str, base: StoreFile | None
    ) -> Families:
        """Return the families of a store from the index of its base; only a RocksDB snapshot has families."""
        if base is None or base.kind is not FileKind.ZIP:
            return cls.of(operator, store, None)
        path = base.render()
        return cls.of(operator, store, parse_snapshot(storage.read(path), path, whole=False))

    @property
    def forgotten(self) -> bool:
        """Return whether the number of a deleted family is known, whose rows may still be in the files."""
        return self.most > len(self.prefixes)

    def split(self, stored: bytes) -> tuple[str | None, bytes]:
        """Return the family and key of a stored key; the family is None if its number is unknown."""
        return self.names.get(stored[: self._width]), stored[self._width :]

    def sorted_out(self, rows: Pairs) -> Iterator[tuple[bytes, Pairs]]:
        """Yield the rows grouped by the prefix of their keys, with the prefix removed."""
        width = self._width
        if not width:
            yield b"", rows
            return
        found: dict[bytes, Pairs] = {}
        for key, value in rows:
            found.setdefault(key[:width], []).append((key[width:], value))
        yield from found.items()

    def counted(self, keys: Iterable[bytes]) -> Mapping[bytes, int]:
        """Return the number of keys by prefix."""
        width = self._width
        return Counter(key[:width] for key in keys)

    def with_names(self, names: Iterable[str]) -> Families:
        """Return these families with further ones, numbered as in Spark: the default family is the first."""
        numbers = dict(self.numbers or {})
        most = self.most
        for name in [DEFAULT_STORE, *sorted(names)]:
            if name not in numbers:
                most += 1
                numbers[name] = most
        return Families(numbers, most)


NO_FAMILIES: Final = Families(None)


_ABSENT = object()

Row = tuple[bytes, bytes]


def key_of(record: StateRecord, values: ValueForm) -> bytes:
    """Return the key of a record; in the record of a deletion, a checksum may precede the key."""
    return values.deleted(record.key) if record.change is RecordKind.DELETE else record.key


@dataclass(slots=True)
class _Appended:
    """Values that RocksDB would merge: appended to those of the base, or to none."""

    parts: list[bytes]
    onto_base: bool


class Overlay:
    """The last change of each key since the base, in memory.

    Args:
        values: The encoding of values.
    """

    def __init__(self, values: ValueForm) -> None:
        self._values = values
        self._entries: dict[bytes, bytes | _Appended | None] = {}

    def add(self, records: Iterable[StateRecord]) -> None:
        """Add the changes of a batch, in order."""
        entries = self._entries
        for record in records:
            if record.change is RecordKind.PUT:
                entries[record.key] = record.value
            elif record.change is RecordKind.DELETE:
                entries[self._values.deleted(record.key)] = None
            elif record.value is not None:
                self._append(record.key, record.value)

    def over(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the base's rows with the changes applied, then the rows of new keys. Callable only once."""
        entries = self._entries
        for row in rows:
            found = self._changed(row) if row[0] in entries else row
            if found is not None:
                yield found
        yield from self._remaining_rows()

    def over_chunks(self, chunks: Iterable[list[Row]], size: int) -> Iterator[list[Row]]:
        """Yield the rows of `over` in chunks, which are modified in place; fast if few rows have changed."""
        entries = self._entries
        for chunk in chunks:
            gone = []
            for at in [at for at, row in enumerate(chunk) if row[0] in entries]:
                found = self._changed(chunk[at])
                if found is None:
                    gone.append(at)
                else:
                    chunk[at] = found
            for at in reversed(gone):
                del chunk[at]
            if chunk:
                yield chunk
        left = self._remaining_rows()
        while new := list(islice(left, size)):
            yield new

    def _changed(self, row: Row) -> Row | None:
        """Return a row of the base with its change applied; None if the change deletes the row."""
        entry = self._entries.pop(row[0])
        if isinstance(entry, _Appended):
            return row[0], self._joined(entry, row[1])
        return None if entry is None else (row[0], entry)

    def _remaining_rows(self) -> Iterator[Row]:
        for key, left in self._entries.items():
            if isinstance(left, bytes):
                yield key, left
            elif left is not None:
                yield key, self._joined(left, None)

    def changed(self, base: Callable[[bytes], bytes | None]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each changed key with its new value; None if it is deleted.

        Args:
            base: A function that returns a key's value in the base; called for keys with appended values.
        """
        for key, entry in self._entries.items():
            if isinstance(entry, _Appended):
                yield key, self._joined(entry, base(key) if entry.onto_base else None)
            else:
                yield key, entry

    def _append(self, key: bytes, value: bytes) -> None:
        entry = self._entries.get(key, _ABSENT)
        if isinstance(entry, _Appended):
            entry.parts.append(value)
        elif isinstance(entry, bytes):
            self._entries[key] = _Appended([entry, value], onto_base=False)
        else:
            self._entries[key] = _Appended([value], onto_base=entry is _ABSENT)

    def _joined(self, entry: _Appended, base: bytes | None) -> bytes:
        parts = [base, *entry.parts] if entry.onto_base and base is not None else entry.parts
        return self._values.delimiter.join(parts)


# The names of RocksDB's files; `CURRENT` contains the name of one.
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SST: Final = re.compile(r"[0-9]{1,18}\.sst")
_CURRENT: Final = re.compile(rb"MANIFEST-[0-9]{1,18}\n")
# RocksDB checks a block of rows when reading it. Blocks up to this total size are checked in advance, because
# a small file may claim to decompress to gigabytes. This takes 50 milliseconds.
_LOOKED_THROUGH: Final = 64 << 20
# RocksDB creates a merge operator only from such a file. Spark's own file omits the delimiter of merged
# values, and would make RocksDB reserve memory for writing.
_OPTIONS: Final = """[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
[CFOptions "default"]
  merge_operator={{id=StringAppendOperator;delimiter={delimiter}}}
"""
_CACHE_BYTES: Final = 8 << 20
_FILES_A_THREAD: Final = 32
_IN_MESSAGE: Final = re.compile(r"(\d+\.sst)")


class Snapshot:
    """An open snapshot, which returns rows in the order of their keys."""

    def __init__(self, database: Any, metadata: SnapshotMetadata, file: StoreFile, storage: Storage) -> None:
        self._database = database
        self._file = file
        self._storage = storage
        self.metadata = metadata

    def chunks(self, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield all keys with their values in chunks of `size` rows. Cost: under half a microsecond per row.

        Raises:
            Corrupt: A data file is damaged.
        """
        last: bytes | None = None
        with _naming_damage(self._storage, self._file, self.metadata):
            rows = self._database.items()
            while chunk := list(islice(rows, size)):
                last = chunk[-1][0]  # before it is yielded, because the caller may change it
                yield chunk
            # At a damaged block the iteration just ends, before the last row.
            end = self._database.iter()
            end.seek_to_last()
            end.status()
            if (bytes(end.key()) if end.valid() else None) != last:
                raise EOFError("the rows end before the last one")

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            Corrupt: A data file is damaged.
        """
        with _naming_damage(self._storage, self._file, self.metadata):
            value = self._database.get(key)
        return None if value is None else bytes(value)

    def starting_with(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys with a prefix, and their values, in order.

        Cost: one search, and the matching rows.

        Raises:
            Corrupt: A data file is damaged.
        """
        with _naming_damage(self._storage, self._file, self.metadata):
            rows = self._database.iter()
            rows.seek(start)
            while rows.valid():
                key = bytes(rows.key())
                if not key.startswith(start):
                    return
                yield key, bytes(rows.value())
                rows.next()
            rows.status()


@contextmanager
def open_snapshot(storage: Storage, file: StoreFile, delimiter: bytes) -> Iterator[Snapshot]:
    """Open a snapshot in a temporary folder, which is deleted at the end.

    Data files are linked if the checkpoint is on a local disk, otherwise copied; a remote store therefore
    needs local disk space of its own size. Cost: about 10 milliseconds, and the time for copying.

    Args:
        storage: The checkpoint.
        file: The zip file of the snapshot.
        delimiter: The bytes between values that RocksDB merges.

    Raises:
        Corrupt: The snapshot is damaged.
        NotFound: A file of the snapshot is missing.
    """
    from rocksdict import AccessType, Rdict

    with tempfile.TemporaryDirectory(prefix="holdfast-rows-", ignore_cleanup_errors=True) as temporary:
        place = Path(temporary, "db")
        metadata = laid_out(storage, file, place)
        with _naming_damage(storage, file, metadata):
            known, families = database_options(Path(temporary, "options"), delimiter, len(metadata.shared))
            database = Rdict(
                str(place),
                options=known,
                column_families=families,
                access_type=AccessType.read_only(error_if_log_file_exist=False),
            )
        try:
            yield Snapshot(database, metadata, file, storage)
        finally:
            database.close()


def laid_out(storage: Storage, file: StoreFile, place: Path) -> SnapshotMetadata:
    """Write the files of a snapshot to a new directory, in RocksDB's layout.

    Data files are linked if the checkpoint is on a local disk, otherwise copied. RocksDB never changes a data
    file.

    Raises:
        Corrupt: The snapshot is damaged.
        NotFound: A file of the snapshot is missing.
    """
    path = file.render()
    data = storage.read(path)
    metadata = parse_snapshot(data, path)
    place.mkdir()
    for name, content in snapshot_entries(data, path):
        if name == "CURRENT" and not _CURRENT.fullmatch(content):
            raise damaged("a snapshot", full(storage.uri, path), f"{name} is {content!r}", "a MANIFEST")
        if _NAME.fullmatch(name) and not _SST.fullmatch(name):
            (place / name).write_bytes(content)
    blocks = metadata.size_bytes <= _LOOKED_THROUGH
    for shared in metadata.shared:
        if shared.folder == layout.SSTS:
            _bring(storage, file, shared, place, blocks=blocks)
    return metadata


def database_options(folder: Path, delimiter: bytes, files: int) -> tuple[Any, Any]:
    """Return the options of the database and of its column families, for opening snapshots.

    Args:
        folder: A directory to create for the options, which may be deleted once the database is open.
        delimiter: The bytes between values that RocksDB merges.
        files: The number of the snapshot's data files.
    """
    from rocksdict import Cache, Options

    folder.mkdir()
    (folder / "OPTIONS-000001").write_text(_OPTIONS.format(delimiter=delimiter.decode()))
    options, families = Options.load_latest(str(folder), cache=Cache(_CACHE_BYTES))
    # Starting its sixteen threads takes longer than opening a few files.
    options.set_max_file_opening_threads(1 + min(files // _FILES_A_THREAD, 15))
    return options, families


def _bring(storage: Storage, file: StoreFile, shared: SharedFile, place: Path, *, blocks: bool) -> None:
    """Link or copy a data file to its RocksDB name, and check its content."""
    path = layout.SharedSstFile(file.store, shared.folder, shared.name).render()
    size = storage.size(path)
    if size is None:
        raise NotFound(
            "a data file of a RocksDB snapshot is missing",
            code="HF-E3021",
            where=full(storage.uri, path),
            hint=SEE_DAMAGE,
        )
    if not _SST.fullmatch(shared.local_name):
        raise damaged("a snapshot", full(storage.uri, file.render()), shared.local_name, "000123.sst")
    if size != shared.size_bytes:
        raise other_size(path, size, shared.size_bytes)
    target = place / shared.local_name
    origin = file_of(storage, path)
    if target.exists():
        raise damaged("a snapshot", full(storage.uri, file.render()), f"{shared.local_name} twice")
    if origin is None:
        target.write_bytes(storage.read(path))
    else:
        storage.read(path, 0, 1)  # refuses a symbolic link or a special file
        try:
            os.link(origin, target, follow_symlinks=False)
        except OSError:
            # A different disk: RocksDB opens all data files at once and keeps them open.
            target.symlink_to(origin)
    with target.open("rb", buffering=0) as opened_file:

        def read(start: int, length: int) -> bytes:
            return os.pread(opened_file.fileno(), length, start)

        try:
            check_sst(read, size, full(storage.uri, path), blocks=blocks)
        except Unsupported as error:
            if error.found in UNREADABLE:
                raise
            # RocksDB may support a version that this module does not.


@contextmanager
def _naming_damage(storage: Storage, file: StoreFile, metadata: SnapshotMetadata) -> Iterator[None]:
    """Convert RocksDB's errors within the block to `Corrupt`, with the data file's name in the checkpoint.

    Raises:
        Corrupt: RocksDB cannot read the snapshot.
    """
    try:
        yield
    except Exception as error:  # rocksdict raises no specific exception
        text = str(error)
        named = _IN_MESSAGE.search(text)
        names = {shared.local_name: shared for shared in metadata.shared}
        shared = names.get(named[1]) if named is not None else None
        where = file.render()
        if shared is not None:
            where = layout.SharedSstFile(file.store, shared.folder, shared.name).render()
        found = text.splitlines()[0] if text else type(error).__name__
        raise Corrupt(
            "RocksDB cannot read a snapshot",
            code="HF-E6016",
            where=full(storage.uri, where),
            found=re.sub(r"/\S*/", "", found)[:200],
            hint=SEE_DAMAGE,
        ) from error
