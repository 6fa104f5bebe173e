"""Checks that read files completely and compare them with their checksums and the integrity record.

Spark cleans up each store on its own, in a maintenance thread that may pause or be killed between two
deletions (`HDFSBackedStateStoreProvider.cleanup` and `RocksDBFileManager.deleteOldVersions`, alike in Spark
3.5 to 4.3):

1. A run lists the folder, chooses a base to keep, and deletes files of versions below that base only.
  Therefore a base that is newer than any file deleted by Spark always exists. Which base a run keeps depends
  on
   `spark.sql.streaming.minBatchesToRetain`, which no file of a checkpoint records, and not on the unique ids
   of format 2.
2. The heap provider deletes one file of each version, in ascending order: the snapshot if the version has
  one, otherwise the delta. The delta of a version whose snapshot was deleted stays until a later run.
3. The RocksDB provider deletes data files first, then snapshots in ascending order, then changelogs in the
  arbitrary order of the listing, then checksums. It skips a file whose deletion fails.
4. Maintenance also uploads snapshots, in Spark 4.3 concurrently with the cleanup, so a snapshot may appear
  several batches after its changelog. An executor that has lost a partition may upload one after the files
  around it were deleted;
   the next run deletes it.

Therefore, before Spark deletes a file, the previous version can no longer be loaded from a base. A missing
file was not deleted by Spark if no newer base exists, or if the previous version can still be loaded. The
oldest base of a store, and changelogs of RocksDB older than every base, may have been deleted by Spark or
not; these are not reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import Tree
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.state.rocksdb import key_of
from holdfast.checkpoints.stores import NO_DAMAGE, DamagedFiles
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.formats.files.checksums import parse_hadoop_checksum, parse_spark_checksum
from holdfast.formats.files.compression import READABLE, beginning, decompressed
from holdfast.formats.files.records import HEAD_BYTES, VersionLineage, parse_head, records_of
from holdfast.formats.files.snapshot import SST_MAGIC, SnapshotMetadata, parse_snapshot
from holdfast.formats.files.sst import check_sst, sst_sample, sst_session
from holdfast.formats.logs.batch_logs import parse_commit, parse_offsets, parse_query
from holdfast.formats.logs.operator_metadata import parse_operator, parse_schema
from holdfast.formats.logs.table_logs import parse_source
from holdfast.formats.rows.row_forms import ValueForm
from holdfast.formats.text import decoded, json_object
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as
from holdfast.layout import FileKind, OperatorMetadataFile, Place, SchemaFile, StoreFile, StoreId
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class Problem(JsonShape):
    """Damage to one file.

    Attributes:
        file: The file, relative to the checkpoint's directory.
        what: The description of the damage.
        hint: The recommended action.
    """

    file: str
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Remark(JsonShape):
    """A finding that is not damage: a check that was not possible, or a risk.

    Attributes:
        file: The file, relative to the checkpoint's directory.
        what: The finding.
    """

    file: str
    what: str


@dataclass(frozen=True, slots=True)
class Verification(JsonShape):
    """The outcome of a verification.

    Attributes:
        uri: The checkpoint.
        batch_id: The newest committed batch, after which a restart continues.
        problems: The damage found, by file.
        remarks: Findings that are not damage.
        restorable: The committed batches that `holdfast savepoint take --batch` accepts, ascending: all files
            that these batches need exist and are undamaged.
        files: The number of files that were read.
        size_bytes: The size of these files in bytes.
        recorded_batch: The newest batch in the integrity record with which files were compared; None without
            a record.
        compared: The number of files that were compared with the record.
        stateful: Whether the query keeps state; None if there are no state files and they may have been lost.
        damage: The damaged files, for making a copy without them.

    Example:
        verification: hf.checkpoints.Verification = hf.checkpoints.verify("checkpoints/visits")
        assert verification.ok and verification.batch_id == 11
    """

    uri: str = field(metadata=json_as("checkpoint"))
    batch_id: int | None
    problems: tuple[Problem, ...]
    remarks: tuple[Remark, ...]
    restorable: tuple[int, ...]
    files: int
    size_bytes: int
    recorded_batch: int | None = None
    compared: int = 0
    stateful: bool | None = True
    damage: DamagedFiles = field(default=NO_DAMAGE, repr=False, metadata=NOT_IN_JSON)

    @property
    @in_json
    def ok(self) -> bool:
        """Return whether no damage was found."""
        return not self.problems


def in_short(problems: Sequence[Problem]) -> str:
    """Return a summary of several problems: the first one, and the number of others."""
    first, more = problems[0].what, len(problems) - 1
    return f"{first}; and {more} more" if more else first


def error_sentence(error: HoldfastError, file: str) -> str:
    """Return an error about a file as one sentence, without the file's name."""
    place = (error.where or "").removeprefix(file).lstrip(", ")
    parts = [error.fact, f" ({place})" if place else ""]
    if error.found is not None:
        parts.append(f": {error.found}")
    if error.expected is not None:
        parts.append(f", expected {error.expected}")
    return "".join(parts)


def unexplained(
    gone: Collection[StoreFile], present: Collection[StoreFile], incomplete: Container[str] = ()
) -> list[StoreFile]:
    """Return the missing files of one store that Spark's cleanup cannot have deleted.

    Args:
        gone: The missing files that were recorded.
        present: The files that exist.
        incomplete: Paths of existing snapshots that have lost data files and cannot be loaded.
    """
    changes = {file.version: file.kind for file in present if not file.kind.whole}
    with_changes = bool(changes) or any(not file.kind.whole for file in gone)

    def uploaded_late(base: StoreFile) -> bool:
        return with_changes and changes.keys().isdisjoint((base.version, base.version + 1))

    newest_base = max((file.version for file in present if file.kind.whole), default=0)
    bases = {
        file.version
        for file in present
        if file.kind.whole and file.render() not in incomplete and not uploaded_late(file)
    }
    # Changelogs are deleted in any order, so versions that consist only of changelogs prove nothing.
    loadable = {*bases} if FileKind.CHANGELOG in changes.values() else {0, *bases}
    for version in sorted(changes):
        if version - 1 in loadable:
            loadable.add(version)
    # The heap provider keeps the delta of a version whose snapshot it has deleted.
    left_behind = {file.version for file in gone if file.kind is FileKind.SNAPSHOT}
    spared = loadable - left_behind - {0}

    def is_unexplained(file: StoreFile) -> bool:
        beside_base = not file.kind.whole and file.version in bases
        return file.version >= newest_base or file.version - 1 in spared or beside_base

    first = min((file.version for file in gone if is_unexplained(file)), default=None)
    # Spark deletes newer versions after older ones, so it has not deleted newer files either.
    return [] if first is None else [file for file in gone if file.version >= first]


UNLIKE = (
    "restore the file from a savepoint or a copy before you start the query; if the change was "
    "intended, accept it with `holdfast watch CHECKPOINT --reset`"
)
# The checkpoint as a whole.
WHOLE = "."
_PUT_BACK = (
    "restore the file from a savepoint or a copy: a restart that needs it would fail, and older "
    "batches cannot be restored without it; if the deletion was intended, accept it with "
    "`holdfast watch CHECKPOINT --reset`"
)


# The maximum number of missing files of one store that are named.
_NAMED = 20


def check_record(
    record: Record, tree: Tree, logs: Logs, snapshots: Mapping[str, SnapshotMetadata]
) -> Iterator[Problem | Remark]:
    """Compare a checkpoint's batches and files with its integrity record.

    Args:
        record: The record, read before the checkpoint was listed.
        tree: The checkpoint's files.
        logs: The checkpoint's logs.
        snapshots: The content of each RocksDB snapshot, by path.

    Yields:
        A problem or a remark for each difference.
    """
    recorded, newest = record.batch_id, logs.newest
    if recorded is None:
        return
    if newest is None or newest < recorded:
        file = layout.LogFile(layout.Log.COMMITS, recorded).render()
        end = "is empty" if newest is None else f"ends at batch {newest}"
        what = f"batch {recorded} was committed, but the commit log {end}"
        hint = (
            "restore the missing files from a savepoint or a copy; otherwise the query repeats batches "
            "that its sink already has; if this is intended, accept it with "
            "`holdfast watch CHECKPOINT --reset`"
        )
        yield Problem(file, what, hint)
    elif newest > recorded:
        what = f"the integrity record ends at batch {recorded}; files of later batches are not compared"
        yield Remark(WHOLE, what)
    yield from _gone(record, tree, snapshots)
    unknown = [
        path
        for path, place in tree.places()
        if isinstance(place, StoreFile) and place.version <= recorded + 1 and path not in record.files
    ]
    if record.sealed and newest == recorded and logs.offered[-1:] == (recorded,):
        for path in unknown:
            what = f"the file did not exist when the query ended after batch {recorded}"
            hint = (
                "delete the file, which the query did not write; if it is intended, accept it with "
                "`holdfast watch CHECKPOINT --reset`"
            )
            yield Problem(path, what, hint)
    elif unknown:
        what = f"{len(unknown)} state files, such as {unknown[0]}, are not in the integrity record"
        yield Remark(WHOLE, what)


def unlike_recorded(record: Record, files: Iterable[tuple[str, int, str]]) -> Iterator[Problem]:
    """Yield the files that differ from the integrity record.

    Args:
        record: The record.
        files: The path, size and SHA-256 of each file.
    """
    for path, size, sha256 in files:
        noted = record.files.get(path)
        if noted is not None and noted[1] != sha256:
            yield Problem(path, record.difference(path, size, sha256), UNLIKE)


def _gone(
    record: Record, tree: Tree, snapshots: Mapping[str, SnapshotMetadata]
) -> Iterator[Problem | Remark]:
    """Yield a problem or remark for each missing recorded file, except those that Spark may have deleted."""
    gone: dict[StoreId, list[StoreFile]] = {}
    for path in record.files:
        place = layout.parse(path)
        if tree.has(path):
            continue
        if isinstance(place, StoreFile):
            gone.setdefault(place.store, []).append(place)
        elif isinstance(place, (SchemaFile, OperatorMetadataFile)) and place.batch_id is None:
            yield Problem(path, "the file is missing, but a committed batch had it", _PUT_BACK)
    for store in sorted(gone):
        present = _present(tree, store)
        incomplete = {file.render() for file in present if _lacks_data_files(file, tree, snapshots)}
        lost = unexplained(gone[store], present, incomplete)
        files = sorted(lost, key=lambda file: (-file.version, file.name))
        more = len(files) - _NAMED
        for file in files[:_NAMED]:
            what = f"the file is missing, but committed batch {file.version - 1} had it"
            if more > 0 and file is files[_NAMED - 1]:
                what += f"; {more} older files are missing too"
            yield Problem(file.render(), what, _PUT_BACK)


def _present(tree: Tree, store: StoreId) -> list[StoreFile]:
    files = (layout.version_file(store, name) for name in tree.names(store.folder))
    return [file for file in files if file is not None]


def _lacks_data_files(file: StoreFile, tree: Tree, snapshots: Mapping[str, SnapshotMetadata]) -> bool:
    snapshot = snapshots.get(file.render())
    return snapshot is not None and not all(
        tree.has(layout.SharedSstFile(file.store, shared.folder, shared.name).render())
        for shared in snapshot.shared
    )


RESTORE = (
    "restore the file from a copy, or restore a savepoint or an undamaged batch; do not start the query"
    " on this checkpoint"
)
CHECKSUM = (
    "delete the checksum if the file itself is known to be correct; Hadoop and Spark can read it without one"
)
# The number of keys of a file, or of a data file's block, whose partition is checked.
KEYS: Final = 16
# What is read of a data file without a checksum: its footer and, in front of it, the properties.
_END_BYTES: Final = 4096
_LOGS: Final = {layout.OFFSETS: parse_offsets, layout.COMMITS: parse_commit}
# The reader of a whole file, by the type of file; state files have their own readers.
PARSERS: Final[Mapping[type[Place], Callable[[bytes, str], object]]] = {
    layout.QueryMetadataFile: parse_query,
    layout.LogFile: lambda data, path: _LOGS[layout.split(path)[0]](data, path),
    layout.SourceLogFile: lambda data, path: parse_source(data, path).list_files(path),
    layout.OperatorMetadataFile: parse_operator,
    layout.SchemaFile: parse_schema,
}


@dataclass(slots=True)
class Content:
    """The findings of reading the files.

    Attributes:
        problems: The damage found, at most one problem per file.
        misleading: Damaged files that Spark reads without an error.
        remarks: Remarks about checks that were not possible.
        lineages: The lineage of each changelog that has one, by path.
        snapshots: The content of each RocksDB snapshot, by path.
        files: The number of files that were read.
        size_bytes: The size of these files in bytes.
        compared: The number of files that were compared with the integrity record.
        keys: A sample of the stored keys in each state file, by path.
    """

    problems: dict[str, Problem] = field(default_factory=dict)
    misleading: set[str] = field(default_factory=set)
    remarks: list[Remark] = field(default_factory=list)
    lineages: dict[str, tuple[VersionLineage, ...]] = field(default_factory=dict)
    snapshots: dict[str, SnapshotMetadata] = field(default_factory=dict)
    files: int = 0
    size_bytes: int = 0
    compared: int = 0
    keys: dict[str, tuple[bytes, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ContentCheck:
    """A check of the content of files, one by one.

    Attributes:
        storage: The checkpoint.
        tree: The files of the checkpoint.
        codec: The compression codec of state files.
        known: Files whose content is known to be undamaged. They are read only if other files are compared
            with them.
        unpack: Whether to decompress change files even if they have a valid checksum.
        record: The integrity record of committed batches.
        placed: Files whose keys are known to be in the correct partition.
        values: The encoding of each operator's values, by operator number; files of other operators are not
            sampled.
        found: The findings.
    """

    storage: Storage
    tree: Tree
    codec: str
    known: Container[str]
    unpack: bool
    record: Record | None
    placed: Container[str]
    values: Mapping[int, ValueForm]
    found: Content = field(default_factory=Content, init=False)
    _sessions: dict[str, int | None] = field(default_factory=dict, init=False)
    # The end of the RocksDB data file that was read last: its path, where the end starts, and the bytes.
    _last: tuple[str, int, bytes] = field(default=("", 0, b""), init=False)

    def __post_init__(self) -> None:
        if self.codec not in READABLE:
            what = (
                f"state files are compressed with {self.codec}, which Holdfast does not read; only "
                "their checksums are verified"
            )
            self.found.remarks.append(Remark(layout.STATE, what))

    def check(self, path: str, place: Place) -> None:
        """Read a file completely and compare it with its checksums.

        A missing file is skipped, because a running query deletes files that it no longer needs.
        """
        if path in self.known and not _tells(place):
            return
        try:
            data = self._read(path)
        except Corrupt as error:  # a database that does not have all rows
            self._problem(path, error_sentence(error, path), error.hint or RESTORE)
            return
        if data is None:
            return
        self.found.files += 1
        self.found.size_bytes += len(data)
        unlike = self._unlike(path, data)
        if unlike is not None:
            self._problem(path, unlike, UNLIKE)
            if self._readable(path, place, data):
                self.found.misleading.add(path)
            return
        checked = path in self.known or self._sums(path, data)
        if checked is None:
            return
        try:
            self._content(path, place, data, checked)
        except (Corrupt, Unsupported) as error:
            self._problem(path, error_sentence(error, path), error.hint or RESTORE)

    def _readable(self, path: str, place: Place, data: bytes) -> bool:
        """Return whether Spark reads a file that differs from the recorded one without an error."""
        if self._sums(path, data) is None:
            return False
        try:
            self._content(path, place, data, checked=False)
        except (Corrupt, Unsupported):
            return False
        return True

    def check_data_file(self, path: str, size: int) -> str | None:
        """Check a RocksDB data file: its size, its end, and its checksum if it has one.

        Returns:
            A description of the problem, or None. Whether the problem is damage depends on the snapshots that
            need the file.
        """
        found = self.tree.size(path)
        if found is None:
            return "the file is missing"
        if found != size:
            return f"the file has {found} bytes instead of the {size} in the snapshot that needs it"
        recorded = self.record is not None and path in self.record.files
        summed = path not in self.known and self.tree.has(layout.HadoopChecksumFile(path).render())
        looked_through = self.unpack and path not in self.known
        if not recorded and not summed and not looked_through:
            end = self._end_of(path, size)
            self.found.files += end is not None
            return self._end(path, end)
        data = self._read(path)
        if data is None:
            return "the file is missing"
        self.found.files += 1
        self.found.size_bytes += len(data)
        self._last = (path, max(len(data) - _END_BYTES, 0), data[-_END_BYTES:])
        what = self._unlike(path, data) or self._end(path, data)
        if what is None and self._sums(path, data) is None:
            what = self.found.problems.pop(path).what if path in self.found.problems else None
        if what is None and looked_through:
            what = self._blocks(path, data)
        return what

    def sample_data_file(self, place: layout.SharedSstFile, size: int) -> tuple[bytes, ...]:
        """Return some keys of a RocksDB data file; empty if it cannot be read."""
        path = place.render()
        if path in self.placed or place.store.operator_id not in self.values or not path.endswith(".sst"):
            return ()
        if path not in self.found.keys:
            self.found.keys[path] = ()
            with suppress(Corrupt, Unsupported, NotFound):
                read = partial(self.storage.read, path)
                self.found.keys[path] = tuple(sst_sample(read, size, path, KEYS))
        return self.found.keys[path]

    def session_of(self, path: str, size: int) -> int | None:
        """Return the session of RocksDB that wrote a data file; None if the file cannot be read."""
        if path not in self._sessions:
            self._sessions[path] = None
            if self._last[0] != path:
                self._end_of(path, size)
            with suppress(Corrupt, Unsupported, NotFound):
                self._sessions[path] = sst_session(partial(self._read_end, path), size, path)
        return self._sessions[path]

    def _end_of(self, path: str, size: int) -> bytes | None:
        start = max(size - _END_BYTES, 0)
        end = self._read(path, start, size - start)
        self._last = (path, start, end or b"")
        return end

    def _read_end(self, path: str, start: int, length: int) -> bytes:
        """Read from the end of the data file that was read last, or else from the storage."""
        _, at, data = self._last
        return (
            data[start - at : start - at + length] if at <= start else self.storage.read(path, start, length)
        )

    def _unlike(self, path: str, data: bytes) -> str | None:
        if self.record is None or path not in self.record.files:
            return None
        self.found.compared += 1
        return self.record.mismatch(path, data)

    @staticmethod
    def _end(path: str, end: bytes | None) -> str | None:
        if end is None:
            return "the file is missing"
        if path.endswith(".sst") and not end.endswith(SST_MAGIC):
            return "the file does not end as a RocksDB data file does"
        return None

    @staticmethod
    def _blocks(path: str, data: bytes) -> str | None:
        if not path.endswith(".sst"):
            return None
        try:
            check_sst(lambda start, size: data[start : start + size], len(data), path)
        except Corrupt as error:
            return error_sentence(error, path)
        except Unsupported:
            return None  # written by a newer RocksDB, so it cannot be checked
        return None

    def _read(self, path: str, start: int = 0, length: int | None = None) -> bytes | None:
        try:
            return self.storage.read(path, start, length)
        except NotFound:
            return None

    def _sums(self, path: str, data: bytes) -> bool | None:
        """Compare a file with its checksums; return whether it has any, or None on a mismatch."""
        hadoop = self._fits(path, data, layout.HadoopChecksumFile(path), RESTORE)
        if hadoop is False:
            return None
        spark = self._fits(path, data, layout.SparkChecksumFile(path), RESTORE)
        return None if spark is False else bool(hadoop or spark)

    def _fits(
        self, path: str, data: bytes, by: layout.HadoopChecksumFile | layout.SparkChecksumFile, hint: str
    ) -> bool | None:
        """Return whether a file matches its checksum; None without a checksum.

        Spark's checksum file itself has a checksum file of Hadoop's.
        """
        sums = by.render()
        beside = self._read(sums) if self.tree.has(sums) else None
        if beside is None:
            return None
        try:
            if isinstance(by, layout.HadoopChecksumFile):
                mismatch = parse_hadoop_checksum(beside, sums).mismatch(data)
            elif self._fits(sums, beside, layout.HadoopChecksumFile(sums), CHECKSUM) is False:
                return False
            else:
                mismatch = parse_spark_checksum(beside, sums).mismatch(data)
        except (Corrupt, Unsupported) as error:
            self._problem(sums, error_sentence(error, sums), CHECKSUM)
            return False
        if mismatch is not None:
            self._problem(path, f"checksum mismatch with {sums}: {mismatch}", hint)
        return mismatch is None

    def _content(self, path: str, place: Place, data: bytes, checked: bool) -> None:
        if isinstance(place, StoreFile):
            self._state(path, place, data, checked)
        elif type(place) in PARSERS:
            PARSERS[type(place)](data, path)
        elif isinstance(place, layout.OwnFile) and path.endswith(".json"):
            json_object(decoded(data, "a Holdfast note", path), "a Holdfast note", path)

    def _state(self, path: str, place: StoreFile, data: bytes, checked: bool) -> None:
        if place.kind is FileKind.ZIP:
            self.found.snapshots[path] = parse_snapshot(
                data, path, whole=path not in self.known, live=path not in self.placed
            )
            return
        if self.codec not in READABLE:
            return
        whole = path not in self.known and (self.unpack or not checked)
        tells = place.kind is FileKind.CHANGELOG and _tells(place)
        sampled = path not in self.placed and place.store.operator_id in self.values
        if not whole and not tells and not sampled:
            return
        stream = (
            decompressed(data, self.codec, path) if whole else beginning(data, self.codec, path, HEAD_BYTES)
        )
        if sampled:
            values = self.values[place.store.operator_id]
            self.found.keys[path] = tuple(_first_keys(place, stream, values, path))
        if tells:
            self.found.lineages[path] = parse_head(stream, path).lineage
        if whole:
            deque(records_of(place.kind, stream, path), maxlen=0)

    def _problem(self, path: str, what: str, hint: str) -> None:
        self.found.problems.setdefault(path, Problem(path, what, hint))


def _first_keys(place: StoreFile, stream: bytes, values: ValueForm, path: str) -> Iterator[bytes]:
    """Yield the keys of the first records of a file, of which only the beginning may be available."""
    with suppress(Corrupt):
        yield from (key_of(record, values) for record in islice(records_of(place.kind, stream, path), KEYS))


def _tells(place: Place) -> bool:
    """Return whether other files are compared with a file of this type, which is rare for state files."""
    if not isinstance(place, StoreFile):
        return True
    return place.kind is FileKind.ZIP or (place.kind is FileKind.CHANGELOG and place.unique_id is not None)
