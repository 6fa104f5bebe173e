"""RocksDB's snapshots, opened where they lie in a checkpoint, with RocksDB itself and no JVM."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.problems import SEE_DAMAGE, other_size
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.snapshot import SharedFile, SnapshotMetadata, parse_snapshot, snapshot_entries
from holdfast.formats.files.sst import UNREADABLE, check_sst
from holdfast.formats.text import damaged
from holdfast.layout import StoreFile
from holdfast.storage.local import file_of
from holdfast.storage.port import Storage, full

# What RocksDB calls its files; `CURRENT` holds the name of one.
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SST: Final = re.compile(r"[0-9]{1,18}\.sst")
_CURRENT: Final = re.compile(rb"MANIFEST-[0-9]{1,18}\n")
# RocksDB looks at a block of rows when it reads it. Of as much as this, each is looked at before: a small
# file may say that it unpacks to gigabytes. It takes 50 milliseconds.
_LOOKED_THROUGH: Final = 64 << 20
# RocksDB makes a merge operator only from such a file. Spark's own file leaves out what stands between merged
# values, and would have RocksDB take memory for writing.
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
    """An open snapshot. Rows come in the order of their keys."""

    def __init__(self, database: Any, metadata: SnapshotMetadata, file: StoreFile, storage: Storage) -> None:
        self._database = database
        self._file = file
        self._storage = storage
        self.metadata = metadata

    def chunks(self, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Every key with its value, so many at a time. Cost: less than half a microsecond a row.

        Raises:
            Corrupt: A data file is damaged.
        """
        last: bytes | None = None
        with _naming_damage(self._storage, self._file, self.metadata):
            rows = self._database.items()
            while chunk := list(islice(rows, size)):
                last = chunk[-1][0]  # before it is given away: who has it may change it
                yield chunk
            # At a damaged block the rows just end; then they have not ended with the last one.
            end = self._database.iter()
            end.seek_to_last()
            end.status()
            if (bytes(end.key()) if end.valid() else None) != last:
                raise EOFError("its rows end before its last one")

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None.

        Raises:
            Corrupt: A data file is damaged.
        """
        with _naming_damage(self._storage, self._file, self.metadata):
            value = self._database.get(key)
        return None if value is None else bytes(value)

    def starting_with(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin with these bytes, with their values, in order. Cost: a search, and each row.

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
def opened(storage: Storage, file: StoreFile, delimiter: bytes) -> Iterator[Snapshot]:
    """Open a snapshot in a temporary folder, which is gone at the end.

    Data files are linked where the checkpoint is on this machine, else copied, so that a remote one takes as
    much room on the disk as the store has. Cost: about 10 milliseconds, and what is copied.

    Args:
        storage: The checkpoint.
        file: The snapshot's zip.
        delimiter: What stands between values that RocksDB merges.

    Raises:
        Corrupt: The snapshot is damaged.
        NotFound: One of its files is gone.
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
    """Lay the files of a snapshot out in a new directory, as RocksDB knows them.

    Data files are linked where the checkpoint is on this machine, else copied. RocksDB never changes one.

    Raises:
        Corrupt: The snapshot is damaged.
        NotFound: One of its files is gone.
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
    """The options under which snapshots are opened, of the database and of its column families.

    Args:
        folder: A directory that is made for them, and may be removed when the database is open.
        delimiter: What stands between values that RocksDB merges.
        files: How many data files the snapshot has.
    """
    from rocksdict import Cache, Options

    folder.mkdir()
    (folder / "OPTIONS-000001").write_text(_OPTIONS.format(delimiter=delimiter.decode()))
    options, families = Options.load_latest(str(folder), cache=Cache(_CACHE_BYTES))
    # To start its sixteen threads takes longer than to open a few files.
    options.set_max_file_opening_threads(1 + min(files // _FILES_A_THREAD, 15))
    return options, families


def _bring(storage: Storage, file: StoreFile, shared: SharedFile, place: Path, *, blocks: bool) -> None:
    """Put a data file under the name by which RocksDB knows it, and look at it before RocksDB does."""
    path = layout.SharedFile(file.store, shared.folder, shared.name).render()
    size = storage.size(path)
    if size is None:
        raise NotFound(
            "a data file of a snapshot is not there", where=full(storage.uri, path), hint=SEE_DAMAGE
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
        storage.read(path, 0, 1)  # refuses a link or a special file
        try:
            os.link(origin, target, follow_symlinks=False)
        except OSError:
            # Another disk: RocksDB opens every data file at once, and keeps it open.
            target.symlink_to(origin)
    with target.open("rb", buffering=0) as opened_file:

        def read(start: int, length: int) -> bytes:
            return os.pread(opened_file.fileno(), length, start)

        try:
            check_sst(read, size, full(storage.uri, path), blocks=blocks)
        except Unsupported as error:
            if error.found in UNREADABLE:
                raise
            # RocksDB may know a version that is not known here.


@contextmanager
def _naming_damage(storage: Storage, file: StoreFile, metadata: SnapshotMetadata) -> Iterator[None]:
    """Say within the block what RocksDB says, with the name that a data file has in the checkpoint.

    Raises:
        Corrupt: RocksDB says something.
    """
    try:
        yield
    except Exception as error:  # rocksdict raises nothing more special
        text = str(error)
        named = _IN_MESSAGE.search(text)
        names = {shared.local_name: shared for shared in metadata.shared}
        shared = names.get(named[1]) if named is not None else None
        where = file.render()
        if shared is not None:
            where = layout.SharedFile(file.store, shared.folder, shared.name).render()
        found = text.splitlines()[0] if text else type(error).__name__
        raise Corrupt(
            "RocksDB cannot read a snapshot",
            where=full(storage.uri, where),
            found=re.sub(r"/\S*/", "", found)[:200],
            hint=SEE_DAMAGE,
        ) from error
