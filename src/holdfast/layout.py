"""Parse and render the paths in a Spark checkpoint.

A path is relative to the checkpoint, with `/` between its parts. Only this module and `formats` know the
grammar. A path outside the grammar is an `UnknownFile`, never an error: a checkpoint may contain files of a
newer Spark, of Holdfast, or of a user.

```
metadata                                         QueryMetadataFile
offsets/N  commits/N                             LogFile
sources/<source>/N[.compact]                     SourceLogFile
state/<op>/_metadata/metadata | v2/<batch>       OperatorMetadataFile
state/<op>/_stateSchema/<store>/<batch>_<uuid>   SchemaFile
state/<op>/0[/<store>]/_metadata/schema          SchemaFile
state/<op>/<part>[/<store>]/V[_<uuid>].<kind>    StoreFile
state/<op>/<part>[/<store>]/SSTs|logs/<name>     SharedSstFile
_holdfast/origin.json | plan.json | ledger.json  OwnFile
_holdfast/operator-<name>.json | split-<name>.json   OwnFile
<path>.crc                                       SparkChecksumFile
<folder>/.<name>.crc                             HadoopChecksumFile
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from holdfast.json_shapes import json_as

METADATA: Final = "metadata"
OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
SOURCES: Final = "sources"
STATE: Final = "state"
OWN: Final = "_holdfast"
_NOTE_BEGIN, _NOTE_END = "operator-", ".json"
# The file that describes the origin of a restored checkpoint.
ORIGIN: Final = f"{OWN}/origin.json"
# The name of the file with the query's plan.
PLAN: Final = "plan.json"
# The name of the file with the sinks that have a ledger.
LEDGER: Final = "ledger.json"
# The name of a keyed operator or of a split join, as a regular expression.
OPERATOR_NAME: Final = "[A-Za-z][A-Za-z0-9_.-]*"
OPERATOR_METADATA: Final = "_metadata"
STATE_SCHEMA: Final = "_stateSchema"
SSTS: Final = "SSTs"
LOGS: Final = "logs"
DEFAULT_STORE: Final = "default"
# The suffixes of directories next to a checkpoint: its savepoints, and a fork of it.
SAVEPOINTS_BESIDE: Final = ".savepoints"
FORK_BESIDE: Final = "-fork"
# The prefix of an address: `file:///`, or `s3://` with the name of a bucket.
_ROOT_SLASHES: Final = 2
CRC: Final = ".crc"

# The version of a store's state after batch N is N plus this.
FIRST_VERSION: Final = 1


class Log(str, Enum):
    """A log of a query, named by its folder."""

    OFFSETS = OFFSETS
    COMMITS = COMMITS


class FileKind(str, Enum):
    """The kind of a store's file, by suffix.

    A base file contains the whole state of a version. A change file contains the changes of one batch to the
    previous version.
    """

    DELTA = "delta"
    SNAPSHOT = "snapshot"
    CHANGELOG = "changelog"
    ZIP = "zip"

    @property
    def whole(self) -> bool:
        """Return whether the file contains a whole version."""
        return self in (FileKind.SNAPSHOT, FileKind.ZIP)


@dataclass(frozen=True, slots=True, order=True)
class StoreId:
    """The identity of a state store: operator, partition and name.

    Attributes:
        operator_id: The number of the operator in the plan.
        partition: The number of the partition.
        name: The name of the store; `default` if the operator has only one.
    """

    operator_id: int
    partition: int
    name: str = field(default=DEFAULT_STORE, metadata=json_as("store"))

    @property
    def folder(self) -> str:
        """The folder of the store's files, relative to the checkpoint."""
        base = f"{STATE}/{self.operator_id}/{self.partition}"
        return base if self.name == DEFAULT_STORE else f"{base}/{self.name}"


@dataclass(frozen=True, slots=True)
class QueryMetadataFile:
    """The file that holds the query's id."""

    def render(self) -> str:
        """Return the path."""
        return METADATA


@dataclass(frozen=True, slots=True)
class LogFile:
    """The file of a batch in the offset log or in the commit log."""

    log: Log
    batch_id: int

    def render(self) -> str:
        """Return the path."""
        return f"{self.log.value}/{self.batch_id}"


@dataclass(frozen=True, slots=True)
class SourceLogFile:
    """A file of a source's log.

    Attributes:
        source: The number of the source in the query, or its name.
        entry: The number of the entry, which differs from the batch id.
        compact: Whether the file contains all earlier entries.
    """

    source: str
    entry: int
    compact: bool = False

    def render(self) -> str:
        """Return the path."""
        return f"{SOURCES}/{self.source}/{self.entry}{'.compact' if self.compact else ''}"


@dataclass(frozen=True, slots=True)
class OperatorMetadataFile:
    """The file of a stateful operator's metadata; version 2 has one file for each batch that changed it."""

    operator_id: int
    batch_id: int | None = None

    def render(self) -> str:
        """Return the path."""
        file = METADATA if self.batch_id is None else f"v2/{self.batch_id}"
        return f"{STATE}/{self.operator_id}/{OPERATOR_METADATA}/{file}"


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema file of a store: one for each change (`unique_id`), or one in partition 0."""

    operator_id: int
    store: str = DEFAULT_STORE
    batch_id: int | None = None
    unique_id: str | None = None

    def render(self) -> str:
        """Return the path."""
        if self.unique_id is not None:
            folder = f"{STATE}/{self.operator_id}/{STATE_SCHEMA}/{self.store}"
            return f"{folder}/{self.batch_id}_{self.unique_id}"
        return f"{StoreId(self.operator_id, 0, self.store).folder}/{OPERATOR_METADATA}/schema"


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file with a version of a store; `unique_id` is set in state-checkpoint format 2."""

    store: StoreId
    version: int
    kind: FileKind
    unique_id: str | None = None

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        unique = f"_{self.unique_id}" if self.unique_id is not None else ""
        return f"{self.version}{unique}.{self.kind.value}"

    def render(self) -> str:
        """Return the path."""
        return f"{self.store.folder}/{self.name}"


@dataclass(frozen=True, slots=True)
class SharedSstFile:
    """A RocksDB file that several versions of a store may share."""

    store: StoreId
    folder: str
    name: str

    def render(self) -> str:
        """Return the path."""
        return f"{self.store.folder}/{self.folder}/{self.name}"


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that Holdfast writes into a checkpoint; any other name in `_holdfast` is an `UnknownFile`."""

    name: str

    def render(self) -> str:
        """Return the path."""
        return f"{OWN}/{self.name}"


@dataclass(frozen=True, slots=True)
class SparkChecksumFile:
    """The checksum that Spark writes for a file."""

    of: str

    def render(self) -> str:
        """Return the path."""
        return f"{self.of}{CRC}"


@dataclass(frozen=True, slots=True)
class HadoopChecksumFile:
    """The checksum that Hadoop writes for a file, only on the local file system."""

    of: str

    def render(self) -> str:
        """Return the path."""
        folder, name = split(self.of)
        return join(folder, f".{name}{CRC}")


@dataclass(frozen=True, slots=True)
class Temporary:
    """A temporary file: still being written, or left behind by a killed process."""

    path: str

    def render(self) -> str:
        """Return the path."""
        return self.path


@dataclass(frozen=True, slots=True)
class UnknownFile:
    """A file outside the known grammar."""

    path: str

    def render(self) -> str:
        """Return the path."""
        return self.path


Place = (
    QueryMetadataFile
    | LogFile
    | SourceLogFile
    | OperatorMetadataFile
    | SchemaFile
    | StoreFile
    | SharedSstFile
    | OwnFile
    | SparkChecksumFile
    | HadoopChecksumFile
    | Temporary
    | UnknownFile
)

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Java writes a number without leading zeros; "007" is not batch 7.
_NUMBER = r"0|[1-9][0-9]{0,18}"
_DIGITS: Final = 19
_VERSION_FILE = re.compile(rf"({_NUMBER})(?:_({_UUID}))?\.(delta|snapshot|changelog|zip)")
_TEMPORARY_FILE = re.compile(rf"\.(.+)\.{_UUID}(?:\.TID[0-9]+)?\.tmp")
_SOURCE_FILE = re.compile(rf"({_NUMBER})(\.compact)?")
_OWN_FILE = re.compile(
    rf"origin\.json|{re.escape(PLAN)}|{re.escape(LEDGER)}|(?:operator|split)-{OPERATOR_NAME}\.json"
)
_SCHEMA_FILE = re.compile(rf"({_NUMBER})_({_UUID})")
# Parts that are not allowed in a path, because they lead to a different directory.
_ELSEWHERE = frozenset({"", ".", ".."})
_KIND = {kind.value: kind for kind in FileKind}
# A path is parsed several times while a checkpoint is planned, copied and verified.
_PARSED: Final = 1 << 14


@lru_cache(_PARSED)
def parse(path: str) -> Place:
    """Parse a path; `parse(path).render() == path` for every path."""
    folder, name = split(path)
    if path.startswith("/") or not _ELSEWHERE.isdisjoint(path.split("/")):
        return UnknownFile(path)
    if name.endswith(".tmp"):
        return Temporary(path)
    if name.endswith(CRC):
        return _checksum(path, folder, name)
    return _place(path.split("/")) or UnknownFile(path)


def parse_covered(path: str) -> Place:
    """Parse a path; a checksum is parsed as the file that it covers."""
    place = parse(path)
    while isinstance(place, (SparkChecksumFile, HadoopChecksumFile)):
        place = parse(place.of)
    return place


def state_file(path: str) -> StoreFile | SharedSstFile | None:
    """Return the state file of a path or of a checksum's path; None for any other path."""
    place = parse_covered(path)
    return place if isinstance(place, (StoreFile, SharedSstFile)) else None


def left_state_file(place: Place) -> StoreFile | None:
    """Return the format 1 state file that a temporary file would have become; None for any other file."""
    if not isinstance(place, Temporary):
        return None
    folder, name = split(place.path)
    match = _TEMPORARY_FILE.fullmatch(name)
    target = None if match is None else parse(join(folder, match[1]))
    return target if isinstance(target, StoreFile) and target.unique_id is None else None


def version_file(store: StoreId, name: str) -> StoreFile | None:
    """Return the version file of a name in a store's folder, or None; faster than `parse`."""
    match = _VERSION_FILE.fullmatch(name)
    if match is None:
        return None
    version, unique_id, kind = match.groups()
    return StoreFile(store, int(version), _KIND[kind], unique_id)


def number(text: str) -> int | None:
    """Parse a batch id, operator id or partition as Spark writes it; None for any other text."""
    written = text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    return int(text) if written and len(text) <= _DIGITS else None


def split(path: str) -> tuple[str, str]:
    """Split a path into folder and name."""
    folder, _, name = path.rpartition("/")
    return folder, name


def operator_note(operator: str) -> str:
    """Return the name of the file that describes a keyed operator."""
    return f"{_NOTE_BEGIN}{operator}{_NOTE_END}"


def split_note(join: str) -> str:
    """Return the name of the file that describes a split join."""
    return f"split-{join}.json"


def noted_operator(name: str) -> str | None:
    """Return the keyed operator that a file of this name describes; None for any other file."""
    if not (name.startswith(_NOTE_BEGIN) and name.endswith(_NOTE_END)):
        return None
    return name.removeprefix(_NOTE_BEGIN).removesuffix(_NOTE_END)


def beside(checkpoint: str, ending: str) -> str | None:
    """Return the path next to a checkpoint with this ending; None if it is a whole bucket or disk."""
    place = checkpoint.rstrip("/")
    return f"{place}{ending}" if place.count("/") > _ROOT_SLASHES else None


def lease_beside(name: str) -> str:
    """Return the name of the folder next to a checkpoint that holds its owner's lease."""
    return f".{name}.holdfast.lease"


def successors_beside(name: str) -> str:
    """Return the name of the folder next to a checkpoint with a file for each of its successors."""
    return f".{name}.holdfast.successors"


def join(folder: str, name: str) -> str:
    """Join a folder and a name into a path."""
    return f"{folder}/{name}" if folder else name


def _checksum(path: str, folder: str, name: str) -> Place:
    if name.startswith(".") and len(name) > len(f".{CRC}"):
        return HadoopChecksumFile(join(folder, name[1 : -len(CRC)]))
    if len(name) > len(CRC):
        return SparkChecksumFile(path[: -len(CRC)])
    return UnknownFile(path)


def _place(parts: list[str]) -> Place | None:
    if parts == [METADATA]:
        return QueryMetadataFile()
    if len(parts) == 2 and parts[0] in (OFFSETS, COMMITS):
        batch_id = number(parts[1])
        return None if batch_id is None else LogFile(Log(parts[0]), batch_id)
    if len(parts) == 3 and parts[0] == SOURCES:
        entry = _SOURCE_FILE.fullmatch(parts[2])
        return SourceLogFile(parts[1], int(entry[1]), entry[2] is not None) if entry else None
    if parts[0] == OWN and len(parts) == 2 and _OWN_FILE.fullmatch(parts[1]):
        return OwnFile(parts[1])
    if len(parts) > 3 and parts[0] == STATE and (operator_id := number(parts[1])) is not None:
        return _in_operator(operator_id, parts[2:])
    return None


def _in_operator(operator_id: int, parts: list[str]) -> Place | None:
    if parts[0] == OPERATOR_METADATA:
        if parts[1:] == [METADATA]:
            return OperatorMetadataFile(operator_id)
        if len(parts) == 3 and parts[1] == "v2" and (batch_id := number(parts[2])) is not None:
            return OperatorMetadataFile(operator_id, batch_id)
        return None
    if parts[0] == STATE_SCHEMA:
        schema = _SCHEMA_FILE.fullmatch(parts[2]) if len(parts) == 3 else None
        return SchemaFile(operator_id, parts[1], int(schema[1]), schema[2]) if schema else None
    partition = number(parts[0])
    return None if partition is None else _in_partition(operator_id, partition, parts[1:])


# Folders of a store; anything else in a partition's folder is the folder of a named store.
_STORE_FOLDERS = frozenset({OPERATOR_METADATA, SSTS, LOGS})


def _in_partition(operator_id: int, partition: int, parts: list[str]) -> Place | None:
    named = len(parts) > 1 and parts[0] not in _STORE_FOLDERS
    if named and parts[0] == DEFAULT_STORE:
        return None  # the default store does not have its own folder
    store = StoreId(operator_id, partition, parts[0] if named else DEFAULT_STORE)
    rest = parts[1:] if named else parts
    if len(rest) == 1:
        return version_file(store, rest[0])
    if len(rest) != 2:
        return None
    if rest == [OPERATOR_METADATA, "schema"]:
        return SchemaFile(operator_id, store.name) if partition == 0 else None
    if rest[0] in (SSTS, LOGS):
        return SharedSstFile(store, rest[0], rest[1])
    return None
