"""The logs of Spark's sources and of its file sink.

A streaming query that writes files lists the files of each batch in `_spark_metadata`, with one log file per
batch. A file that is not listed belongs to a failed batch. Spark reads the log; a reader with a `*.parquet`
glob does not, and may read the rows of such a batch twice.

The files of the log are named by batch id. Every few batches a file is named `N.compact` and repeats all
earlier entries. The first line is the version, and each further line is one JSON entry.

Spark compacts at every batch N where N + 1 is a multiple of the interval, and then reads the compacted entry
before N and every entry since. If one is missing, the query fails permanently, up to an interval after the
missing batch. The interval is the distance between the two newest compacted entries. With one compacted entry
N it is a divisor of N + 1; without any it is the session's
`spark.sql.streaming.fileSink.log.compactInterval`, by default 10.

A file source lists the files that it has read, entry by entry; every few entries a file named `N.compact`
repeats all earlier entries. Kafka records its initial offsets, and a rate source its start time. Each of
these files has a version line and lines of JSON; Kafka writes a zero byte before the version.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, overload
from urllib.parse import unquote, urlsplit

from holdfast.config.checks import SCHEME, canonical_uri, local_path, parse_storage
from holdfast.errors import Corrupt, NotFound, Unavailable, Unsupported
from holdfast.formats.text import damaged, decoded, json_value, version_of
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage
from holdfast.storage.remote import HDFS_OVER_HTTP

LOG_DIRECTORY: Final = "_spark_metadata"
VERSION: Final = "v1"
INTERVAL: Final = 10
_BATCH_FILE = re.compile(r"(\d+)(\.compact)?")


@overload
def committed_files(path: Path) -> list[Path]: ...


@overload
def committed_files(path: str | Path) -> list[Path] | list[str]: ...


def committed_files(path: str | Path) -> list[Path] | list[str]:
    """Return the files that a streaming query has committed under `path`, in the order of their batches.

    The newest compacted log file and the ones after it are read, but no data file. A path is returned as
    recorded by the writer, so a table that was moved must be read at its original path. The function does not
    check that the files exist.

    For a table on S3 or HDFS the result contains addresses, because a `Path` cannot hold one. Files below the
    table begin with the address given, for example `s3://` although Spark recorded `s3a://`.

    Args:
        path: The directory to which the query writes: a path or a URI.

    Raises:
        NotFound: The directory has no sink log.
        Corrupt: A log file is missing or malformed.
        Unsupported: The log has a newer version, or that of a local table lists files elsewhere.
        Unavailable: The storage of a log file does not answer.

    Example:
        query = (
            hf.sink(events)
            .parquet("tables/sales")
            .start(checkpoint="checkpoints/sales", trigger=hf.available_now())
        )
        query.awaitTermination()
        [file] = hf.committed_files("tables/sales")
        assert file.suffix == ".parquet"
    """
    place = _place(path)
    if place is None:
        table = os.fspath(path).rstrip("/")
        log = f"{table}/{LOG_DIRECTORY}"
        storage = open_storage(log, "path")
        names = storage.list().names
        if not names:
            raise _no_log(table, None)
        return [_address(uri, table, log) for uri in _committed(storage, names, log)]
    folder = place / LOG_DIRECTORY
    if folder.is_symlink() or not folder.is_dir():
        raise _no_log(os.fspath(path), f"a symbolic link at {LOG_DIRECTORY}" if folder.is_symlink() else None)
    names = [file.name for file in folder.iterdir()]
    return [_local(uri, folder) for uri in _committed(LocalStorage(folder), names, str(folder))]


def newest_batch(names: Iterable[str]) -> int | None:
    """Return the newest batch in a log, given the names of its files, or None for an empty log.

    Spark writes nothing for batches up to this one, whatever the checkpoint says.
    """
    found = (_BATCH_FILE.fullmatch(name) for name in names)
    return max((int(name.group(1)) for name in found if name), default=None)


def missing_batch(names: Iterable[str], first: int) -> int | None:
    """Return the first batch that Spark needs from a log but that is missing, or None.

    Args:
        names: The names of the log's files.
        first: The batch with which the query resumes.
    """
    found = [name for name in map(_BATCH_FILE.fullmatch, names) if name]
    plain = {int(name.group(1)) for name in found if not name.group(2)}
    compacted = max((int(name.group(1)) for name in found if name.group(2)), default=-1)
    return next((batch_id for batch_id in range(compacted + 1, first) if batch_id not in plain), None)


def empty_log(batch_id: int) -> dict[str, bytes]:
    """Return the log of a table without files for a query that resumes after a batch, as content by file
    name.

    From batch 19, two compacted entries fix the interval at 10. Before batch 9 there is no compacted entry,
    and a session with an interval of 9 or less may lack an entry; from batch 9 to 18, a session with an
    interval of 4 or less may lack one.

    Args:
        batch_id: The newest batch that the checkpoint has committed.
    """
    entry = VERSION.encode()
    newest = (batch_id + 1) // INTERVAL * INTERVAL - 1  # the newest batch at which Spark compacts
    compacted = [number for number in (newest - INTERVAL, newest) if number >= 0]
    plain = range(newest + 1, batch_id + 1)
    return {f"{number}.compact": entry for number in compacted} | {str(number): entry for number in plain}


def _place(path: str | Path) -> Path | None:
    """Return the path of a local table; None for a table on other storage."""
    if isinstance(path, Path) or not SCHEME.match(path):
        return Path(path)
    return local_path(canonical_uri(parse_storage(path, "path"), Path.cwd()))


def _no_log(table: str, found: str | None) -> NotFound:
    return NotFound(
        "the table has no log of a streaming file sink",
        code="HF-E3042",
        where=table,
        found=found,
        expected=f"a directory {LOG_DIRECTORY}",
        hint="give the directory that a streaming query writes with a file sink; read the files of any"
        " other directory with spark.read",
    )


def _committed(log: Storage, names: Iterable[str], where: str) -> list[str]:
    """Return the URIs of the committed files, as recorded."""
    added: dict[str, None] = {}
    deleted: set[str] = set()
    for name in _batches(names, where):
        for action, uri in _entries(log, name, f"{where}/{name}"):
            if action == "add":
                added[uri] = None
            else:
                deleted.add(uri)
    return [uri for uri in added if uri not in deleted]


def _batches(names: Iterable[str], log: str) -> list[str]:
    """Return the names of the log files to read, oldest first."""
    plain: dict[int, str] = {}
    compact: dict[int, str] = {}
    for file in names:
        name = _BATCH_FILE.fullmatch(file)
        if name:
            (compact if name.group(2) else plain)[int(name.group(1))] = file
    if not plain and not compact:
        return []
    last = max([*plain, *compact])
    first = max(compact, default=0)
    files = [compact[first]] if compact else [_batch(plain, 0, log)]
    files += [_batch(plain, batch_id, log) for batch_id in range(first + 1, last + 1)]
    return files


def _batch(files: dict[int, str], batch_id: int, log: str) -> str:
    if batch_id not in files:
        raise Corrupt(
            f"the sink log has no entry for batch {batch_id}",
            code="HF-E6026",
            where=f"{log}/{batch_id}",
            expected="an entry for every batch since the newest compacted one",
            hint="restore the file from a copy: it lists committed data files",
        )
    return files[batch_id]


def _entries(log: Storage, name: str, file: str) -> list[tuple[str, str]]:
    try:
        version, *lines = log.read(name).decode().split("\n")
    except UnicodeDecodeError as error:
        raise _damaged(file, 1, "invalid text") from error
    except Unavailable as error:
        raise Unavailable(
            "the sink log cannot be read",
            code="HF-E5022",
            where=file,
            found=error.found,
            hint="check that the storage is reachable and that this user can read the table's directory",
        ) from error
    if version != VERSION:
        if re.fullmatch(r"v\d+", version):
            raise Unsupported(
                "unknown sink log version",
                code="HF-E7068",
                where=file,
                found=version,
                expected=VERSION,
                hint="read the table with the newer Spark that wrote it",
            )
        raise _damaged(file, 1, repr(version[:40]), expected=f"the version line `{VERSION}`")
    return [_entry(file, number, line) for number, line in enumerate(lines, start=2)]


def _entry(file: str, number: int, line: str) -> tuple[str, str]:
    try:
        entry = json.loads(line)
        action, uri = entry["action"], entry["path"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(file, number, repr(line[:80])) from error
    if not isinstance(action, str) or action not in {"add", "delete"} or not isinstance(uri, str):
        raise _damaged(file, number, f"action {action!r}", expected="`add` or `delete`")
    return action, uri


def _damaged(file: str, line: int, found: str, *, expected: str | None = None) -> Corrupt:
    return Corrupt(
        "a file of the sink log is damaged",
        code="HF-E6027",
        where=f"{file}, line {line}",
        found=found,
        expected=expected or "JSON with `path` and `action`",
        hint="restore the file from a copy: it lists committed data files",
    )


def _parts(uri: str, log: str) -> tuple[str, str, str]:
    """Return the scheme, host and path of a recorded URI.

    Hadoop percent-encodes the path of a URI, in addition to Spark's escapes in partition names.
    """
    try:
        parts = urlsplit(uri)
        uri.encode()
    except ValueError as error:
        raise _damaged(log, 2, repr(uri[:80]), expected="a file address") from error
    return parts.scheme, parts.netloc, unquote(parts.path)


def _local(uri: str, log: Path) -> Path:
    scheme, _, path = _parts(uri, str(log))
    if scheme not in {"", "file"}:
        raise Unsupported(
            "the sink log of a local table lists files outside the local disk",
            code="HF-E7069",
            where=str(log),
            found=uri,
            expected="paths on the local disk, such as file:///data/part-0.parquet",
            hint="give the table's original address; or read the table with Spark, which uses the same log",
        )
    return Path(path)


def _address(uri: str, table: str, log: str) -> str:
    """Return the address of a file, below the table as it was given, if the file is below the table.

    Spark records `s3a:` for `s3:`, and the native address for a table that is given as `webhdfs:`.
    """
    scheme, host, path = _parts(uri, log)
    given = urlsplit(table)
    same_host = given.netloc == host or given.scheme == HDFS_OVER_HTTP
    folder = f"{given.path.rstrip('/')}/"
    if same_host and path.startswith(folder):
        return f"{table}/{path.removeprefix(folder)}"
    return f"{scheme}://{host}{path}" if scheme else path


VERSIONS: Final = (1,)
DEFAULT_INTERVAL: Final = 10
_LONGEST_INTERVAL: Final = 100_000
_WHAT = "a source's log"


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that a file source has read, and the entry of its log that lists the file."""

    path: str
    timestamp_ms: int
    entry: int


@dataclass(frozen=True, slots=True)
class SourceLog:
    """One file in the log of a source.

    Attributes:
        version: The version of the file format; so far always 1.
        lines: The lines after the version line.
        zero: Whether the file begins with a zero byte.
    """

    version: int
    lines: tuple[str, ...]
    zero: bool = False

    def list_files(self, where: str) -> tuple[SeenFile, ...]:
        """Return the files that a file source has recorded in this file; empty for other sources.

        Raises:
            Corrupt: Some lines have a file and others do not.
        """
        values = [json_value(line, _WHAT, where) for line in self.lines]
        files = [value for value in values if isinstance(value, dict) and "path" in value]
        if not files:
            return ()
        if len(files) != len(values):
            raise damaged(_WHAT, where, "lines without a file", "a file in each line")
        try:
            return tuple(
                SeenFile(str(file["path"]), int(file["timestamp"]), int(file["batchId"])) for file in files
            )
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(_WHAT, where, f"a file without {error}", "path, timestamp and batchId") from error

    def render(self) -> bytes:
        """Return the bytes of the file."""
        return b"\0" * self.zero + "\n".join([f"v{self.version}", *self.lines]).encode()

    def between(self, first: int, last: int, where: str) -> SourceLog:
        """Return the log with only the entries from `first` to `last`.

        Raises:
            Corrupt: A line is malformed.
        """
        lines = zip(self.lines, self.list_files(where), strict=True)
        return replace(self, lines=tuple(line for line, seen in lines if first <= seen.entry <= last))


def parse_source(data: bytes, where: str) -> SourceLog:
    """Parse a file of a source's log.

    Raises:
        Corrupt: The file is not in the format that Spark writes.
        Unsupported: The version of the file is unknown.
    """
    zero = data[:1] == b"\0"
    version_line, *lines = decoded(data[zero:], _WHAT, where).split("\n")
    version = version_of(version_line, VERSIONS, _WHAT, where)
    if not lines:
        raise damaged(_WHAT, where, "a version line only", "entries of the source")
    for number, line in enumerate(lines, start=2):
        json_value(line, _WHAT, f"{where}, line {number}")
    return SourceLog(version, tuple(lines), zero)


def compact_interval(compacted: Iterable[int]) -> int:
    """Return the number of entries from one compacted entry to the next, computed as in Spark.

    Args:
        compacted: The numbers of the existing compacted entries.
    """
    newest = sorted(compacted, reverse=True)
    if not newest:
        return DEFAULT_INTERVAL
    if len(newest) > 1:
        return newest[0] - newest[1]
    entries = newest[0] + 1
    most = min(entries // 2, _LONGEST_INTERVAL)
    divisors = (interval for interval in range(DEFAULT_INTERVAL, most + 1) if entries % interval == 0)
    return next(divisors, entries)
