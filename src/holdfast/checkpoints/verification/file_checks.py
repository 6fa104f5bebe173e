"""Read files to their end and compare them with their checksums."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from holdfast import layout
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.state.replay import key_of
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification.findings import Problem, Remark, said
from holdfast.checkpoints.verification.record_checks import UNLIKE
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.checksums import parse_hadoop_checksum, parse_spark_checksum
from holdfast.formats.files.compression import READABLE, beginning, decompressed
from holdfast.formats.files.records import HEAD_BYTES, Lineage, parse_head, records_of
from holdfast.formats.files.snapshot import SST_MAGIC, SnapshotMetadata, parse_snapshot
from holdfast.formats.files.sst import check_sst, sst_sample
from holdfast.formats.logs.commit_log import parse_commit
from holdfast.formats.logs.offset_log import parse_offsets
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.logs.query import parse_query
from holdfast.formats.logs.source_log import parse_source
from holdfast.formats.logs.state_schema import parse_schema
from holdfast.formats.rows.row_forms import ValueForm
from holdfast.formats.text import decoded, json_object
from holdfast.layout import Kind, Place, StoreFile
from holdfast.storage.port import Storage

RESTORE = (
    "put back the file from a copy, or go back to a batch that is whole; do not start the query on this one"
)
CHECKSUM = "delete the checksum if the file itself is known to be right; Hadoop and Spark go on without it"
# Keys of a file, or of a block of a data file, that are compared with the partition of the file.
KEYS: Final = 16
_LOGS: Final = {layout.OFFSETS: parse_offsets, layout.COMMITS: parse_commit}
# What reads a whole file, by what the file is; state has readers of its own, by its kind.
PARSERS: Final[Mapping[type[Place], Callable[[bytes, str], object]]] = {
    layout.QueryMetadata: parse_query,
    layout.LogFile: lambda data, path: _LOGS[layout.split(path)[0]](data, path),
    layout.SourceLogFile: lambda data, path: parse_source(data, path).seen(path),
    layout.OperatorMetadataFile: parse_operator,
    layout.SchemaFile: parse_schema,
}


@dataclass(slots=True)
class Content:
    """What reading the files has brought to light.

    Attributes:
        problems: Damage, at most one for each file.
        misleading: Damaged files that can be read all the same: Spark uses them without an error.
        remarks: What could not be looked into.
        lineages: The lineage of each changelog that has one, by path.
        snapshots: What each snapshot of RocksDB is made of, by path.
        files: How many files were read.
        size_bytes: Their bytes.
        compared: How many of them were compared with a record of good batches.
        keys: A sample of the keys in each file of state, as they are stored, by path.
    """

    problems: dict[str, Problem] = field(default_factory=dict)
    misleading: set[str] = field(default_factory=set)
    remarks: list[Remark] = field(default_factory=list)
    lineages: dict[str, tuple[Lineage, ...]] = field(default_factory=dict)
    snapshots: dict[str, SnapshotMetadata] = field(default_factory=dict)
    files: int = 0
    size_bytes: int = 0
    compared: int = 0
    keys: dict[str, tuple[bytes, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ContentCheck:
    """Checks files one by one.

    Attributes:
        storage: The checkpoint.
        tree: What is in it.
        codec: The compression of its state files.
        known: Files whose bytes are known to be right. They are read only for what others are compared with.
        unpack: Whether changes of state are unpacked also where a checksum vouches for the file.
        record: What the files were when their batches were committed.
        placed: Files whose keys are known to be in the right partition.
        values: How the values of each operator are put into bytes, by its number; files of others are not
            sampled.
        found: What reading them has brought to light.
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

    def __post_init__(self) -> None:
        if self.codec not in READABLE:
            what = (
                f"state files are compressed with {self.codec}, which is not read here; only checksums tell"
            )
            self.found.remarks.append(Remark(layout.STATE, what))

    def check(self, path: str, place: Place) -> None:
        """Read a file, compare its checksums, and read its content to the end.

        A file that is gone by now is left alone: a running query deletes what it no longer needs.
        """
        if path in self.known and not _tells(place):
            return
        try:
            data = self._read(path)
        except Corrupt as error:  # a database that has not all of it
            self._problem(path, said(error, path), error.hint or RESTORE)
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
            self._problem(path, said(error, path), error.hint or RESTORE)

    def _readable(self, path: str, place: Place, data: bytes) -> bool:
        """Whether Spark reads a file that is not the recorded one without noticing."""
        if self._sums(path, data) is None:
            return False
        try:
            self._content(path, place, data, checked=False)
        except (Corrupt, Unsupported):
            return False
        return True

    def check_data_file(self, path: str, size: int) -> str | None:
        """Look at a data file of RocksDB: its size, its end, its checksum where there is one.

        Returns:
            What is wrong with it. Whether that is damage depends on who needs it.
        """
        found = self.tree.size(path)
        if found is None:
            return "it is not there"
        if found != size:
            return f"it has {found} bytes, and the snapshot that needs it says {size}"
        recorded = self.record is not None and path in self.record.files
        summed = path not in self.known and self.tree.has(layout.HadoopChecksum(path).render())
        looked_through = self.unpack and path not in self.known
        if not recorded and not summed and not looked_through:
            end = self._read(path, max(size - len(SST_MAGIC), 0))
            self.found.files += end is not None
            return self._end(path, end)
        data = self._read(path)
        if data is None:
            return "it is not there"
        self.found.files += 1
        self.found.size_bytes += len(data)
        what = self._unlike(path, data) or self._end(path, data[-len(SST_MAGIC) :])
        if what is None and self._sums(path, data) is None:
            what = self.found.problems.pop(path).what if path in self.found.problems else None
        if what is None and looked_through:
            what = self._blocks(path, data)
        return what

    def sample_data_file(self, place: layout.SharedFile, size: int) -> tuple[bytes, ...]:
        """Return some keys of a data file of RocksDB; none of one that cannot be read."""
        path = place.render()
        if path in self.placed or place.store.operator_id not in self.values or not path.endswith(".sst"):
            return ()
        if path not in self.found.keys:
            self.found.keys[path] = ()
            with suppress(Corrupt, Unsupported, NotFound):
                read = partial(self.storage.read, path)
                self.found.keys[path] = tuple(sst_sample(read, size, path, KEYS))
        return self.found.keys[path]

    def _unlike(self, path: str, data: bytes) -> str | None:
        if self.record is None or path not in self.record.files:
            return None
        self.found.compared += 1
        return self.record.mismatch(path, data)

    @staticmethod
    def _end(path: str, end: bytes | None) -> str | None:
        if end is None:
            return "it is not there"
        if path.endswith(".sst") and end != SST_MAGIC:
            return "it does not end as a data file of RocksDB does"
        return None

    @staticmethod
    def _blocks(path: str, data: bytes) -> str | None:
        if not path.endswith(".sst"):
            return None
        try:
            check_sst(lambda start, size: data[start : start + size], len(data), path)
        except Corrupt as error:
            return said(error, path)
        except Unsupported:
            return None  # of a newer RocksDB: nothing can be told of it here
        return None

    def _read(self, path: str, start: int = 0) -> bytes | None:
        try:
            return self.storage.read(path, start)
        except NotFound:
            return None

    def _sums(self, path: str, data: bytes) -> bool | None:
        """Compare a file's checksums: whether there was one, or None if it did not fit."""
        hadoop = self._fits(path, data, layout.HadoopChecksum(path), RESTORE)
        if hadoop is False:
            return None
        spark = self._fits(path, data, layout.SparkChecksum(path), RESTORE)
        return None if spark is False else bool(hadoop or spark)

    def _fits(
        self, path: str, data: bytes, by: layout.HadoopChecksum | layout.SparkChecksum, hint: str
    ) -> bool | None:
        """Whether a file fits a checksum of it; None without one. Spark's has one of Hadoop's itself."""
        sums = by.render()
        beside = self._read(sums) if self.tree.has(sums) else None
        if beside is None:
            return None
        try:
            if isinstance(by, layout.HadoopChecksum):
                mismatch = parse_hadoop_checksum(beside, sums).mismatch(data)
            elif self._fits(sums, beside, layout.HadoopChecksum(sums), CHECKSUM) is False:
                return False
            else:
                mismatch = parse_spark_checksum(beside, sums).mismatch(data)
        except (Corrupt, Unsupported) as error:
            self._problem(sums, said(error, sums), CHECKSUM)
            return False
        if mismatch is not None:
            self._problem(path, f"it does not fit {sums}: {mismatch}", hint)
        return mismatch is None

    def _content(self, path: str, place: Place, data: bytes, checked: bool) -> None:
        if isinstance(place, StoreFile):
            self._state(path, place, data, checked)
        elif type(place) in PARSERS:
            PARSERS[type(place)](data, path)
        elif isinstance(place, layout.OwnFile) and path.endswith(".json"):
            json_object(decoded(data, "a note of Holdfast's", path), "a note of Holdfast's", path)

    def _state(self, path: str, place: StoreFile, data: bytes, checked: bool) -> None:
        if place.kind is Kind.ZIP:
            self.found.snapshots[path] = parse_snapshot(data, path, whole=path not in self.known)
            return
        if self.codec not in READABLE:
            return
        whole = path not in self.known and (self.unpack or not checked)
        tells = place.kind is Kind.CHANGELOG and _tells(place)
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
    """The keys of the first records; of the file there may be no more than its beginning."""
    with suppress(Corrupt):
        yield from (key_of(record, values) for record in islice(records_of(place.kind, stream, path), KEYS))


def _tells(place: Place) -> bool:
    """Whether other files are compared with what this one says; most state says nothing of others."""
    if not isinstance(place, StoreFile):
        return True
    return place.kind is Kind.ZIP or (place.kind is Kind.CHANGELOG and place.unique_id is not None)
