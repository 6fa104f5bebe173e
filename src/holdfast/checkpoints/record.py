"""The integrity record of a checkpoint: hashes of the files of its committed batches.

The record is stored in a state home and not in the checkpoint, because restoring an old copy over a
checkpoint would also restore the old record, and copies would contain the record of a different checkpoint.
Each line is JSON with a checksum:

```
{"format":1,"checkpoint":URI,"query_id":ID,"origin":SHA-256 of _holdfast/origin.json}   the checkpoint
{"batch":41,"files":{"state/0/0/42.delta":[512,"9f86…"]},"spark":"4.2.0"}              recorded files
{"from":40}                                                                            40 and later ran again
{"behind":39}                                                                          the log went back
{"sealed":41}                                                                          the query had ended
```

Lines are appended and flushed to disk. After a power failure the record is therefore never behind what it
reported, and shows which files of a checkpoint the failure took: Spark flushes none. A line truncated by a
crash is ignored; if lines are lost, fewer files can be compared.

A checkpoint does not record its Spark version. However, each batch of the offset log contains the pinned
settings of the query, and newer versions of Spark pin more settings. An older Spark ignores settings that it
does not know, and may fail to read state that was written with them, or misread it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast import layout
from holdfast.checkpoints.checkpoint import Tree
from holdfast.checkpoints.logs import Logs, readable
from holdfast.checkpoints.naming import PINNED
from holdfast.checkpoints.problems import no_checkpoint
from holdfast.config.installed_spark import InstalledSpark
from holdfast.config.settings import flush_directory, make_directory, open_file
from holdfast.config.spark_versions import minor
from holdfast.errors import Conflict, Corrupt, HoldfastError, NotFound, Unavailable, Unsupported
from holdfast.external.view import is_external
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.logs.batch_logs import log_offset, parse_query
from holdfast.formats.manifest import Manifest
from holdfast.json_shapes import JsonShape, in_json
from holdfast.layout import FileKind, Place, StoreFile
from holdfast.storage import open_storage
from holdfast.storage.file_lock import FileLock
from holdfast.storage.hashing import hash_file, hash_of
from holdfast.storage.port import Storage
from holdfast.storage.successors import current_address

FORMAT: Final = 1
_READABLE: Final = (
    "give the current user read permission on the file, or give a different state home with --home"
)
_WRITABLE: Final = "free space on the disk of the state home, or give the current user write permission there"
_FOLDER: Final = "records"

# The size and SHA-256 of a file.
Noted: TypeAlias = "tuple[int, str]"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a recorded checkpoint.

    Attributes:
        checkpoint: The address of the checkpoint.
        query_id: The id of the query; None if it cannot be read.
        origin: A hash that distinguishes a restored checkpoint from an earlier checkpoint at the same
            address.
    """

    checkpoint: str
    query_id: str | None
    origin: str | None


@dataclass(slots=True)
class Record:
    """The integrity record of a checkpoint's committed batches.

    Attributes:
        identity: The identity of the checkpoint.
        batch_id: The newest recorded batch.
        files: Size and SHA-256 of each recorded file, by path.
        behind: The newest committed batch when the commit log was found to be behind the record; None if it
            never was.
        sealed: Whether the query had ended when the record was last written, so that the record is complete.
        spark: The version of Spark in the newest batch that records one; None if unknown.
    """

    identity: Identity
    batch_id: int | None = None
    files: dict[str, Noted] = field(default_factory=dict)
    behind: int | None = None
    sealed: bool = False
    spark: str | None = None

    def take(self, entry: Mapping[str, Any]) -> None:
        """Apply a line of the file to the record.

        Raises:
            KeyError: The line has an unknown format.
        """
        self.sealed = False
        if "files" in entry:
            self.batch_id = int(entry["batch"])
            self.spark = entry.get("spark", self.spark)
            self.behind = None
            self.files.update(
                (path, (int(size), str(sha256))) for path, (size, sha256) in entry["files"].items()
            )
        elif "from" in entry:
            self._forget_from(int(entry["from"]))
        elif "behind" in entry:
            self.behind = int(entry["behind"])
        else:
            self.sealed = int(entry["sealed"]) == self.batch_id

    def mismatch(self, path: str, data: bytes) -> str | None:
        """Return the difference of a file from the record as text; None if it is equal or not recorded."""
        noted = self.files.get(path)
        if noted is None:
            return None
        sha256 = hash_of(data)
        return None if sha256 == noted[1] else self.difference(path, len(data), sha256)

    def difference(self, path: str, size: int, sha256: str) -> str:
        """Return the message for a file that differs from the record."""
        other = next((path for path, (_, known) in self.files.items() if known == sha256), None)
        if other is not None:
            return f"the file has the content of {other} instead of its own"
        return (
            f"the file differs from its committed content: {size} bytes with SHA-256 "
            f"{sha256[:12]}…, recorded {self.files[path][0]} with {self.files[path][1][:12]}…"
        )

    def belongs_to(self, identity: Identity, storage: Storage) -> bool:
        """Return whether the record is of this checkpoint and not of an earlier one at the same address."""
        if (identity.checkpoint, identity.origin) != (self.identity.checkpoint, self.identity.origin):
            return False
        if identity.query_id == self.identity.query_id:
            return True
        # The file with the id may be the damaged one. The planned time of a batch is recorded only in its own
        # file.
        for path in (path for path in self.files if path.startswith(f"{layout.OFFSETS}/")):
            with suppress(NotFound):
                if self.mismatch(path, storage.read(path)) is None:
                    return True
        return False

    def entries(self) -> list[dict[str, Any]]:
        """Return all lines of the record."""
        lines: list[dict[str, Any]] = [{"format": FORMAT, **asdict(self.identity)}]
        if self.batch_id is not None:
            spark = {} if self.spark is None else {"spark": self.spark}
            lines.append({"batch": self.batch_id, "files": self.files, **spark})
        if self.behind is not None:
            lines.append({"behind": self.behind})
        if self.sealed:
            lines.append({"sealed": self.batch_id})
        return lines

    def _forget_from(self, batch_id: int) -> None:
        """Remove a batch and all later ones, which have run again and may have rewritten their files."""
        self.batch_id = min(self.batch_id, batch_id - 1) if self.batch_id is not None else None
        self.behind = None
        for path in [path for path in self.files if _is_from(layout.parse(path), batch_id)]:
            del self.files[path]


def identity_of(storage: Storage) -> Identity:
    """Return the identity of a checkpoint, as its integrity record contains it.

    Raises:
        Unavailable: The storage does not answer.
    """
    query_id = origin = None
    with suppress(NotFound, Corrupt):
        query_id = parse_query(storage.read(layout.METADATA), layout.METADATA).query_id
    with suppress(NotFound):
        origin = hash_of(storage.read(layout.ORIGIN))
    return Identity(storage.uri, query_id, origin)


class RecordFile:
    """The file of an integrity record.

    Args:
        path: The path of the file, from `record_path`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"))
        self._good_bytes = 0
        self._known = 0

    def lock(self) -> bool:
        """Take the lock for writing; return False if a different process holds it. A crash releases it."""
        try:
            return self._lock.take()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def unlock(self) -> None:
        """Release the lock."""
        self._lock.release()

    def read(self) -> Record | None:
        """Return the record; None if the file does not exist.

        Raises:
            Corrupt: The file is damaged.
            Unavailable: The file cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(
                "the integrity record cannot be read",
                code="HF-E5005",
                where=str(self.path),
                found=error.strerror,
                hint=_READABLE,
            ) from error
        whole = data[: data.rfind(b"\n") + 1]
        record: Record | None = None
        self._known = 0
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = _parsed(line)
                if record is None:
                    record = Record(_identity(entry))
                else:
                    record.take(entry)
                    self._known += len(entry.get("files", ()))
            except (ValueError, TypeError, KeyError) as error:  # noqa: PERF203 - ends the loop
                raise Corrupt(
                    "the integrity record is damaged",
                    code="HF-E6013",
                    where=f"{self.path}, line {number}",
                    hint="if the checkpoint is undamaged, start a new record with"
                    " `holdfast watch CHECKPOINT --reset`",
                ) from error
        self._good_bytes = len(whole)
        return record

    def append(self, record: Record, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append lines and add them to the record; rewrite the file when most of its lines are obsolete.

        Raises:
            Unavailable: The file cannot be written; the record in memory is then ahead of the file.
        """
        given = list(entries)
        for entry in given:
            record.take(entry)
            self._known += len(entry.get("files", ()))
        if self._good_bytes == 0 or self._known > 2 * len(record.files) + _SLACK:
            self.rewrite(record)
            return
        data = b"".join(_rendered(entry) for entry in given)
        try:
            with self.path.open("r+b") as file:
                file.truncate(self._good_bytes)
                file.seek(self._good_bytes)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._good_bytes += len(data)

    def rewrite(self, record: Record) -> None:
        """Replace the file with a whole record.

        Raises:
            Unavailable: The file cannot be written.
        """
        data = b"".join(_rendered(entry) for entry in record.entries())
        beside = self.path.with_suffix(".tmp")
        try:
            make_directory(self.path.parent)
            with os.fdopen(open_file(beside, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            flush_directory(self.path.parent)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._good_bytes, self._known = len(data), len(record.files)

    def forget(self) -> None:
        """Make the next append rewrite the file."""
        self._good_bytes = self._known = 0

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
        self.forget()


# Up to this number of obsolete lines, the file is not rewritten.
_SLACK: Final = 1000


def record_path(home: Path, checkpoint: str) -> Path:
    """Return the path of a checkpoint's record in a state home.

    Args:
        home: The state home.
        checkpoint: The checkpoint's canonical URI.
    """
    return home / _FOLDER / f"{hashlib.sha256(checkpoint.encode()).hexdigest()[:24]}.jsonl"


def find_record(home: Path, storage: Storage) -> tuple[Record | None, str]:
    """Return a checkpoint's integrity record from a state home, or the reason why there is none.

    Raises:
        Unavailable: The storage does not answer.
    """
    if is_external(storage):
        return None, "the state is in a database, and an integrity record covers only files"
    try:
        record = RecordFile(record_path(home, storage.uri)).read()
    except HoldfastError as error:
        return None, f"{error.fact} ({error.where})"
    if record is None or record.batch_id is None:
        return None, f"no integrity record of this checkpoint in {home} (`holdfast watch` starts one)"
    if not record.belongs_to(identity_of(storage), storage):
        return None, f"the integrity record in {home} is of a different query, or from before a restore"
    return record, ""


def in_use(path: Path) -> Conflict:
    """Return the error for a record that a different process is writing."""
    return Conflict(
        "another process is writing the integrity record of this checkpoint",
        code="HF-E4005",
        where=str(path),
        hint="stop one of the two processes; do not run `holdfast watch` for a job under `holdfast run`,"
        " because the supervisor writes the record",
    )


def _is_from(place: layout.Place, batch_id: int) -> bool:
    if isinstance(place, layout.StoreFile):
        return place.version > batch_id
    if isinstance(place, (layout.LogFile, layout.SchemaFile, layout.OperatorMetadataFile)):
        return place.batch_id is not None and place.batch_id >= batch_id
    return False


def _identity(entry: Mapping[str, Any]) -> Identity:
    if entry["format"] != FORMAT:
        raise ValueError(entry["format"])
    return Identity(entry["checkpoint"], entry["query_id"], entry["origin"])


def _rendered(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%b\t%08x\n" % (text, zlib.crc32(text))


def _parsed(line: bytes) -> dict[str, Any]:
    text, _, checksum = line.rpartition(b"\t")
    if int(checksum, 16) != zlib.crc32(text):
        raise ValueError("checksum")
    entry: dict[str, Any] = json.loads(text)
    return entry


def _unwritable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        "the integrity record cannot be written",
        code="HF-E5006",
        where=str(path),
        found=error.strerror or str(error),
        hint=_WRITABLE,
    )


# Earlier releases cannot be distinguished, because their patch releases pin settings of later ones.
_OLDEST_TOLD: Final = "4.0"


@dataclass(frozen=True, slots=True)
class WrittenBy(JsonShape):
    """The version of Spark that wrote a checkpoint or savepoint.

    Attributes:
        checkpoint: The address of the checkpoint or savepoint.
        batch_id: The newest planned batch; None before the first.
        noted: The version that Holdfast recorded while watching the query; None if none was recorded.
        at_least: The lowest version that pins the recorded settings; None if the settings do not determine
            it.
        unknown_settings: The pinned settings that the installed Spark does not know.
        installed: The version of the installed Spark; None if Spark is not installed.
    """

    checkpoint: str
    batch_id: int | None
    noted: str | None
    at_least: str | None
    unknown_settings: tuple[str, ...]
    installed: str | None

    @property
    @in_json
    def newer(self) -> bool:
        """Return whether that version is newer than the installed one, which then must not continue."""
        if self.installed is None:
            return False
        noted = self.noted is not None and minor(self.noted) > minor(self.installed)
        return noted or bool(self.unknown_settings)

    @property
    def text(self) -> str:
        """Return a description of that version as text."""
        if self.noted is not None:
            return f"Spark {self.noted}, as recorded by Holdfast"
        if self.at_least is None:
            return "the Spark version is not recorded"
        return f"Spark {self.at_least} or newer; the exact version is not recorded"

    @property
    def remedy(self) -> str:
        """Return the recommended action if that version is newer than the installed one."""
        wanted = self.noted or self.at_least
        if wanted is None or self.installed is None or minor(wanted) <= minor(self.installed):
            return "install the Spark version that wrote the state, or a newer one"
        return "pip install 'pyspark~={}.{}.0', or a newer one".format(*minor(wanted))

    def refuse_newer(self) -> None:
        """Check that the writer is not newer than the installed Spark.

        Raises:
            Unsupported: The Spark that wrote the checkpoint is newer than the installed one.
        """
        if self.newer:
            settings = ", ".join(self.unknown_settings)
            raise Unsupported(
                (
                    "the Spark installed here is older than the Spark that wrote the state, and may not"
                    " be able to read the state"
                ),
                code="HF-E7035",
                where=self.checkpoint,
                found=self.text + (f"; Spark {self.installed} does not know {settings}" if settings else ""),
                expected=f"Spark {self.installed} or older",
                hint=self.remedy,
            )


def at_least(settings: Iterable[str]) -> str | None:
    """Return the lowest version of Spark that pins these settings; None if they do not determine it."""
    names = frozenset(settings)
    told = [setting.since for setting in PINNED if setting.name in names]
    return max((since for since in told if minor(since) >= minor(_OLDEST_TOLD)), key=minor, default=None)


def writer_of(storage: Storage, home: Path, spark: InstalledSpark) -> WrittenBy:
    """Return the version of Spark that wrote a checkpoint.

    Cost: lists the logs, and reads the newest file of the offset log and the integrity record.

    Args:
        storage: The checkpoint.
        home: The state home with the integrity record.
        spark: The installed Spark.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: The offset log is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    if not logs.offered and storage.size(layout.METADATA) is None:
        raise no_checkpoint(storage)
    newest = logs.offered[-1] if logs.offered else None
    offsets = None if newest is None else logs.offsets(newest)
    confs: Mapping[str, str] = {} if offsets is None else offsets.confs
    record, _ = find_record(home, storage)
    noted = None if record is None else record.spark
    return WrittenBy(storage.uri, newest, noted, at_least(confs), spark.unknown(confs), spark.version)


def savepoint_writer(address: str, manifest: Manifest, spark: InstalledSpark) -> WrittenBy:
    """Return the version of Spark that wrote a savepoint, from the settings in its manifest."""
    found = manifest.fields.get("confs")
    confs = found if isinstance(found, dict) else {}
    return WrittenBy(address, manifest.batch_id, None, at_least(confs), spark.unknown(confs), spark.version)


def refuse_newer(checkpoints: Iterable[str], home: Path) -> None:
    """Check that no checkpoint was written by a newer Spark, before a query is started on it.

    Checkpoints that do not exist yet, or whose logs cannot be read, are not checked here.

    Args:
        checkpoints: The addresses, each of which may contain the checkpoints of several queries of a job.
        home: The state home.

    Raises:
        Unsupported: A newer Spark wrote one of the checkpoints.
        Unavailable: The storage does not answer.
    """
    spark = InstalledSpark.here(os.environ)
    for address in dict.fromkeys(checkpoints):
        for storage in checkpoints_at(address):
            with suppress(NotFound, Corrupt):
                writer_of(storage, home, spark).refuse_newer()


def checkpoints_at(address: str) -> Iterator[Storage]:
    """Yield the checkpoint at an address, or those of a job's queries directly below it.

    Of a checkpoint that was replaced, its newest successor is yielded.
    """
    storage = open_storage(current_address(open_storage(address).uri))
    if storage.size(layout.METADATA) is not None:
        yield storage
        return
    names = [name for name in storage.list().names if storage.size(f"{name}/{layout.METADATA}") is not None]
    for uri in sorted({current_address(f"{storage.uri}/{name}") for name in names}):
        yield open_storage(uri)


@dataclass(frozen=True, slots=True)
class Noting(JsonShape):
    """The result of one update of a record.

    Attributes:
        batch_id: The newest committed batch; None before the first.
        batches: The number of batches added to the record.
        files: The number of files added.
        size_bytes: The size of these files in bytes.
        behind: Whether the commit log ends before a recorded batch. If so, nothing is recorded until the
            query commits again.
    """

    batch_id: int | None
    batches: int = 0
    files: int = 0
    size_bytes: int = 0
    behind: bool = False


class Recorder:
    """The writer of one checkpoint's integrity record.

    A file is recorded once, when its batch is committed, because Spark never writes to such a file again.
    Spark rewrites the files of a batch that runs again: an uncommitted batch has not been recorded yet, and a
    batch whose commit was deleted is recorded again.

    Args:
        storage: The checkpoint.
        file: The record of the checkpoint, locked by the caller.
        spark: The version of Spark that runs the query; None if unknown.
    """

    def __init__(self, storage: Storage, file: RecordFile, spark: str | None = None) -> None:
        self._storage = storage
        self._file = file
        self._record: Record | None = None
        self.spark = spark

    @property
    def batch_id(self) -> int | None:
        """The newest recorded batch, or None."""
        return None if self._record is None else self._record.batch_id

    def begin(self, *, anew: bool = False) -> bool:
        """Read the existing record, and return whether it applies to this checkpoint.

        Args:
            anew: Whether to discard the existing record.

        Raises:
            Unavailable: The storage does not answer, or the record cannot be read or written.
        """
        identity = identity_of(self._storage)
        before = None
        if not anew:
            with suppress(Corrupt):  # an unreadable record is useless
                before = self._file.read()
        if before is not None and before.belongs_to(identity, self._storage):
            self._record = before
            return before.batch_id is not None
        self._record = Record(identity)
        if anew:
            self._file.rewrite(self._record)
        else:
            self._file.forget()
        return False

    def discard(self) -> None:
        """Delete the record."""
        self._file.delete()
        self._record = None

    def ran_from(self, batch_id: int) -> None:
        """Remove the recorded files of this batch and later ones, after a run that started with it."""
        if self._record is None:
            self.begin()
        record = self._record
        if record is not None and record.batch_id is not None and batch_id <= record.batch_id:
            self._file.append(record, [{"from": batch_id}])

    def look(self, *, ended: bool = False) -> Noting:
        """Record every file of a committed batch that is not recorded yet.

        Cost: lists every folder, and reads each new file once.

        Args:
            ended: Whether the query has ended, so that files which appear later are not the query's.

        Raises:
            Unavailable: The storage does not answer, or the record cannot be written.
        """
        identity = identity_of(self._storage)
        logs = Logs(self._storage)
        newest = logs.newest
        if newest is None:
            return Noting(None)
        record = self._current(identity)
        entries: list[dict[str, Any]] = []
        if record.behind is not None and newest > record.behind:
            self._file.append(record, [{"from": record.behind + 1}])
        elif record.batch_id is not None and newest < record.batch_id:
            if record.behind is None:
                self._file.append(record, [{"behind": newest}])
            return Noting(newest, behind=True)
        before = record.batch_id
        tree = Tree(self._storage)
        found = dict(_Due(self._storage, tree, logs, record).files())
        if found or newest != before:
            spark = {} if self.spark is None else {"spark": self.spark}
            entries.append({"batch": newest, "files": found, **spark})
        if ended and logs.offered and logs.offered[-1] == newest and not (record.sealed and not entries):
            entries.append({"sealed": newest})
        _forget(record, tree, logs.committed[0])
        if entries:
            self._file.append(record, entries)
        return Noting(
            newest,
            batches=newest - before if before is not None else len(logs.committed),
            files=len(found),
            size_bytes=sum(size for size, _ in found.values()),
        )

    def _current(self, identity: Identity) -> Record:
        if self._record is None:
            self.begin()
        record = self._record
        if record is None or (identity != record.identity and not record.belongs_to(identity, self._storage)):
            # A different query has started at the same address, or a restore was made there.
            record = self._record = Record(identity)
            self._file.rewrite(record)
        elif record.identity.query_id is None and identity.query_id is not None:
            record.identity = replace(record.identity, query_id=identity.query_id)
            self._file.rewrite(record)
        return record


@dataclass(frozen=True, slots=True)
class _Due:
    """The files that one update must record."""

    storage: Storage
    tree: Tree
    logs: Logs
    record: Record

    def files(self) -> Iterator[tuple[str, Noted]]:
        """Yield each file with its size and hash."""
        newest = self.logs.newest or 0
        ends = self._source_ends(newest)
        for path, place in self.tree.places():
            if not _is_committed(place, newest, ends):
                continue
            if path in self.record.files and not self._may_change(place):
                continue
            noted = self._read_note(path)
            if noted is None or self.record.files.get(path) == noted:
                continue
            if isinstance(place, StoreFile) and place.kind is FileKind.ZIP:
                shared = self._shared(path, place)
                if shared is None:
                    continue
                yield from shared
            yield path, noted

    def _may_change(self, place: Place) -> bool:
        """Return whether Spark may have rewritten a file under the same name.

        A start of the query may update a schema or an operator's metadata. A batch that was planned but not
        committed may be planned again after its plan was deleted manually.
        """
        if isinstance(place, layout.LogFile):
            return self.record.batch_id is None or place.batch_id > self.record.batch_id
        return isinstance(place, (layout.SchemaFile, layout.OperatorMetadataFile)) and place.batch_id is None

    def _source_ends(self, newest: int) -> dict[str, int | None]:
        offsets = readable(lambda: self.logs.offsets(newest))
        if offsets is None:
            return {}
        return {source: log_offset(offsets.offsets.get(source)) for source in self.tree.names(layout.SOURCES)}

    def _shared(self, path: str, place: StoreFile) -> list[tuple[str, Noted]] | None:
        """Return the data files of a new snapshot; None if it is missing or damaged.

        The files are taken from the snapshot's list, because an existing file may be only partly uploaded.
        """
        try:
            snapshot = parse_snapshot(self.storage.read(path), path, whole=False)
        except (NotFound, Corrupt, Unsupported):
            return None
        found = []
        for shared in snapshot.shared:
            file = layout.SharedSstFile(place.store, shared.folder, shared.name).render()
            if file in self.record.files or self.tree.size(file) != shared.size_bytes:
                continue
            noted = self._read_note(file)
            if noted is not None and noted[0] == shared.size_bytes:
                found.append((file, noted))
        return found

    def _read_note(self, path: str) -> Noted | None:
        size = self.tree.size(path)
        if size is None:
            return None
        try:
            sha256, found = hash_file(self.storage, path, size)
        except NotFound:
            return None  # deleted by the query since the listing
        return found, sha256


def _is_committed(place: Place, newest: int, ends: dict[str, int | None]) -> bool:
    """Return whether a file belongs to a committed batch, or to the plan of the next one."""
    if isinstance(place, layout.QueryMetadataFile):
        return True
    if isinstance(place, layout.LogFile):
        return place.batch_id <= newest + (place.log is layout.Log.OFFSETS)
    if isinstance(place, layout.SourceLogFile):
        end = ends.get(place.source, -1)
        return end is None or place.entry <= end
    if isinstance(place, (layout.SchemaFile, layout.OperatorMetadataFile)):
        return (place.batch_id or 0) <= newest
    return isinstance(place, StoreFile) and place.version <= newest + 1


def _forget(record: Record, tree: Tree, oldest: int) -> None:
    """Remove files that the query has deleted, so that the record does not outgrow the checkpoint.

    A missing file that should exist stays in the record; otherwise, if it reappeared with different content,
    it would count as new.
    """
    gone = [path for path in record.files if not tree.has(path) and _is_past(layout.parse(path), oldest)]
    for path in gone:
        del record.files[path]


def _is_past(place: Place, oldest: int) -> bool:
    if isinstance(place, StoreFile):
        return place.version <= oldest
    if isinstance(place, layout.LogFile):
        return place.batch_id < oldest
    return not isinstance(place, layout.QueryMetadataFile)
