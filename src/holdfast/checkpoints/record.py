"""The record of good batches: what a checkpoint's files were when their batches were committed.

It lies in a state home and not in the checkpoint: what puts an old copy over a checkpoint would put the old
record there with it, and copies would carry one that is not theirs. Each line is JSON and a checksum of it:

```
{"format":1,"checkpoint":URI,"query_id":ID,"origin":SHA-256 of _holdfast/origin.json}   whose record it is
{"batch":41,"files":{"state/0/0/42.delta":[512,"9f86…"]},"spark":"4.2.0"}              what was noted
{"from":40}                                                                            40 and later ran again
{"behind":39}                                                                          the log went back
{"sealed":41}                                                                          the query had ended
```

Lines are added at the end. One that a crash has torn is passed over; losing lines only means to know less.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast import layout
from holdfast.config.private_files import make_directory, open_file
from holdfast.errors import Conflict, Corrupt, HoldfastError, NotFound, Unavailable
from holdfast.external.view import is_external
from holdfast.formats.logs.query import parse_query
from holdfast.storage.file_lock import FileLock
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import Storage

FORMAT: Final = 1
_READABLE: Final = "let this user read the file, or name another state home with --home"
_WRITABLE: Final = "make room on that disk, or let this user write into the state home"
_FOLDER: Final = "records"

# Size and SHA-256 of a file.
Noted: TypeAlias = "tuple[int, str]"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose record it is.

    Attributes:
        checkpoint: The checkpoint's address.
        query_id: Its query; None where that cannot be read.
        origin: What tells a restored checkpoint from what was there before it.
    """

    checkpoint: str
    query_id: str | None
    origin: str | None


@dataclass(slots=True)
class Record:
    """What is known of the good batches of a checkpoint.

    Attributes:
        identity: Whose record it is.
        batch_id: The newest batch that was noted.
        files: What was noted, by path.
        behind: The newest committed batch, when the commit log was seen to have gone back.
        sealed: Whether the query had ended when the record was last written, so that no file is missing in
            it.
        spark: The version of Spark that ran the newest batch of which it was noted; None where it was not.
    """

    identity: Identity
    batch_id: int | None = None
    files: dict[str, Noted] = field(default_factory=dict)
    behind: int | None = None
    sealed: bool = False
    spark: str | None = None

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take in a line.

        Raises:
            KeyError: It is none that is known.
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
        """What tells a file from what was noted of it; None if nothing does, or nothing was noted."""
        noted = self.files.get(path)
        if noted is None:
            return None
        sha256 = hash_of(data)
        return None if sha256 == noted[1] else self.difference(path, len(data), sha256)

    def difference(self, path: str, size: int, sha256: str) -> str:
        """The words for a file that is not what was noted."""
        other = next((path for path, (_, known) in self.files.items() if known == sha256), None)
        if other is not None:
            return f"it has the bytes of {other}, and not those that it had when its batch was committed"
        return (
            f"it is not what it was when its batch was committed: {size} bytes with SHA-256 {sha256[:12]}…, "
            f"recorded were {self.files[path][0]} with {self.files[path][1][:12]}…"
        )

    def belongs_to(self, identity: Identity, storage: Storage) -> bool:
        """Whether it is of this checkpoint, and not of one that was at the same place before."""
        if (identity.checkpoint, identity.origin) != (self.identity.checkpoint, self.identity.origin):
            return False
        if identity.query_id == self.identity.query_id:
            return True
        # The file with the id may be what is damaged. When a batch was planned is told by nothing but itself.
        for path in (path for path in self.files if path.startswith(f"{layout.OFFSETS}/")):
            with suppress(NotFound):
                if self.mismatch(path, storage.read(path)) is None:
                    return True
        return False

    def entries(self) -> list[dict[str, Any]]:
        """The lines that give it back."""
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
        """A batch and all after it have run again: what they left may be other files of the same names."""
        self.batch_id = min(self.batch_id, batch_id - 1) if self.batch_id is not None else None
        self.behind = None
        for path in [path for path in self.files if _is_from(layout.parse(path), batch_id)]:
            del self.files[path]


def identity_of(storage: Storage) -> Identity:
    """Whose record a checkpoint's would be.

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
    """The file of a record.

    Args:
        path: Where it is; `record_path` says where that should be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"))
        self._good_bytes = 0
        self._known = 0

    def lock(self) -> bool:
        """Become the one who writes; False if somebody is. No crash leaves it behind."""
        try:
            return self._lock.take()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def unlock(self) -> None:
        """Let another one write."""
        self._lock.release()

    def read(self) -> Record | None:
        """The record, or None if there is none.

        Raises:
            Corrupt: The file is damaged.
            Unavailable: It cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(
                "the record of good batches cannot be read",
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
                    "the record of good batches is damaged",
                    where=f"{self.path}, line {number}",
                    hint="if the checkpoint is good, begin a new record with `holdfast watch --anew`",
                ) from error
        self._good_bytes = len(whole)
        return record

    def append(self, record: Record, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to what was read, and take them into the record; written anew when most of it is past.

        Raises:
            Unavailable: It cannot be written; the record in memory is then ahead of the file.
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
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._good_bytes += len(data)

    def rewrite(self, record: Record) -> None:
        """Put a whole record in the place of what is there.

        Raises:
            Unavailable: It cannot be written.
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
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._good_bytes, self._known = len(data), len(record.files)

    def forget(self) -> None:
        """Have the next line begin the file anew."""
        self._good_bytes = self._known = 0

    def delete(self) -> None:
        """Take the file away."""
        self.path.unlink(missing_ok=True)
        self.forget()


# So many entries that are past do not make it worth writing the file anew.
_SLACK: Final = 1000


def record_path(home: Path, checkpoint: str) -> Path:
    """Where the record of a checkpoint is in a state home.

    Args:
        home: The state home.
        checkpoint: The checkpoint's canonical URI.
    """
    return home / _FOLDER / f"{hashlib.sha256(checkpoint.encode()).hexdigest()[:24]}.jsonl"


def find_record(home: Path, storage: Storage) -> tuple[Record | None, str]:
    """The record that a state home has of a checkpoint; else why there is none to compare with.

    Raises:
        Unavailable: The storage does not answer.
    """
    if is_external(storage):
        return None, "its state is in a database, and a record is of files"
    try:
        record = RecordFile(record_path(home, storage.uri)).read()
    except HoldfastError as error:
        return None, f"{error.fact} ({error.where})"
    if record is None or record.batch_id is None:
        return None, f"{home} has no record of its good batches"
    if not record.belongs_to(identity_of(storage), storage):
        return None, f"the record in {home} is of another query, or of what was here before a restore"
    return record, ""


def in_use(path: Path) -> Conflict:
    """The error for a record that somebody else writes."""
    return Conflict(
        "another process records the batches of this checkpoint",
        where=str(path),
        hint="a job under `holdfast run` is recorded by itself; one `holdfast watch` at a time is enough",
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
        "the record of good batches cannot be written",
        where=str(path),
        found=error.strerror or str(error),
        hint=_WRITABLE,
    )
