"""The records of state files: RocksDB changelogs, and deltas and snapshots of the memory provider.

All of these are compressed streams of keys and values with their lengths. A changelog of version 2 or 4 marks
each record with a byte. Changelogs of version 3 and 4 begin with the lineage: the unique ids of the earlier
versions back to a base. A changelog of version 1 has no header, and deltas and snapshots have none either.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from holdfast.formats.files.compression import decode_utf
from holdfast.formats.text import damaged, is_plain, json_value
from holdfast.layout import FileKind

CHANGELOG_VERSIONS: Final = (1, 2, 3, 4)
# The maximum length of a header: two strings, each of up to 65,535 bytes, with their lengths.
HEAD_BYTES: Final = 2 * (2 + 0xFFFF)
_WHAT = "a changelog"
_MARKED: Final = (2, 4)
_WITH_LINEAGE: Final = (3, 4)
_INT: Final = struct.Struct(">i")
_END: Final = -1


class RecordKind(IntEnum):
    """The kind of a record; the values are the bytes in a changelog."""

    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11


# The byte of the record that ends a stream.
_LAST: Final = 0x00


class StateRecord(NamedTuple):
    """One change of a key; a delete has no value."""

    change: RecordKind
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class VersionLineage:
    """One version of a store, and the unique id of the file with which it was committed."""

    version: int
    unique_id: str


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a changelog.

    Attributes:
        version: The version of the changelog format, 1 to 4.
        lineage: The earlier versions since the base, the oldest first; empty without unique ids.
        size: The size of the header in bytes.
    """

    version: int
    lineage: tuple[VersionLineage, ...]
    size: int


def parse_head(stream: bytes, where: str) -> Head:
    """Parse the header of a changelog; a stream without a header has version 1.

    Raises:
        Corrupt: The header is malformed or truncated.
    """
    version_text, at = _utf(stream, 0)
    number = version_text[1:] if version_text is not None and version_text[:1] == "v" else ""
    # As in Spark: a string that is not a version belongs to the first record of a stream without a header.
    if not (number.isascii() and number.isdigit()):
        return Head(1, (), 0)
    version = int(number)
    if version not in CHANGELOG_VERSIONS or version == 1:
        raise damaged(_WHAT, where, f"version {version_text}", "v2, v3 or v4")
    if version not in _WITH_LINEAGE:
        return Head(version, (), at)
    text, at = _utf(stream, at)
    if text is None:
        raise damaged(_WHAT, where, "no lineage after the version")
    return Head(version, _lineage(json_value(text, _WHAT, where), where), at)


def records_of(kind: FileKind, stream: bytes, where: str) -> Iterator[StateRecord]:
    """Yield the records of a changelog, a delta or a snapshot in order, up to the end mark.

    Raises:
        Corrupt: A record is malformed, the end mark is missing, or bytes follow it.
    """
    head = parse_head(stream, where) if kind is FileKind.CHANGELOG else Head(1, (), 0)
    return _marked(stream, head.size, where) if head.version in _MARKED else _plain(stream, head.size, where)


def render_records(records: Sequence[StateRecord], version: int = 1) -> bytes:
    """Return the bytes of records with the end mark, without a header."""
    parts = []
    for record in records:
        mark = bytes([record.change]) if version in _MARKED else b""
        value = _INT.pack(_END) if record.value is None else _INT.pack(len(record.value)) + record.value
        parts.append(mark + _INT.pack(len(record.key)) + record.key + value)
    parts.append(bytes([_LAST]) if version in _MARKED else _INT.pack(_END))
    return b"".join(parts)


def without_keys(
    stream: bytes,
    records: Iterable[StateRecord],
    keys: Container[bytes],
    deleted: Callable[[bytes], bytes],
    head: Head | None = None,
) -> bytes:
    """Return a stream without the records of some keys, and otherwise unchanged.

    Args:
        stream: The bytes of the complete stream.
        records: All records of the stream.
        keys: The keys to remove.
        deleted: Returns the key that a delete record refers to.
        head: The header of a changelog, or None for a delta or a snapshot.

    Raises:
        Corrupt: A record is malformed.
    """
    lengths = 9 if head is not None and head.version in _MARKED else 8
    kept, begin, at = [], 0, 0 if head is None else head.size
    for _, key, value in records:
        after = at + lengths + len(key) + (0 if value is None else len(value))
        if (deleted(key) if value is None else key) in keys:
            kept.append(stream[begin:at])
            begin = after
        at = after
    return b"".join([*kept, stream[begin:]])


def _plain(stream: bytes, at: int, where: str) -> Iterator[StateRecord]:
    read, put = _INT.unpack_from, RecordKind.PUT
    end = len(stream)
    while at + 4 <= end:
        (length,) = read(stream, at)
        at += 4
        if length == _END:
            _nothing_behind(stream, at, where)
            return
        after = at + length
        if length < 0 or after + 4 > end:
            raise damaged(_WHAT, where, f"a key of {length} bytes at {at} of {end}")
        key = stream[at:after]
        (length,) = read(stream, after)
        at = after + 4
        if length == _END:
            yield StateRecord(RecordKind.DELETE, key, None)
            continue
        after = at + length
        if length < 0 or after > end:
            raise damaged(_WHAT, where, f"a value of {length} bytes at {at} of {end}")
        yield StateRecord(put, key, stream[at:after])
        at = after
    raise damaged(_WHAT, where, f"end of file at byte {end}", "an end record")


def _marked(stream: bytes, at: int, where: str) -> Iterator[StateRecord]:
    read, changes = _INT.unpack_from, {int(change): change for change in RecordKind}
    end = len(stream)
    while at < end:
        mark = stream[at]
        at += 1
        if mark == _LAST:
            _nothing_behind(stream, at, where)
            return
        change = changes.get(mark)
        if change is None or at + 4 > end:
            raise damaged(_WHAT, where, f"a record of kind {mark} at {at - 1} of {end}")
        (length,) = read(stream, at)
        at += 4
        after = at + length
        if length < 0 or after + 4 > end:
            raise damaged(_WHAT, where, f"a key of {length} bytes at {at} of {end}")
        key = stream[at:after]
        (length,) = read(stream, after)
        at = after + 4
        after = at + length
        if (length == _END) != (change is RecordKind.DELETE) or length < _END or after > end:
            raise damaged(_WHAT, where, f"a value of {length} bytes at {at} of {end}")
        if length == _END:
            yield StateRecord(change, key, None)
            continue
        yield StateRecord(change, key, stream[at:after])
        at = after
    raise damaged(_WHAT, where, f"end of file at byte {end}", "an end record")


def _nothing_behind(stream: bytes, at: int, where: str) -> None:
    if at != len(stream):
        raise damaged(_WHAT, where, f"{len(stream) - at} bytes after its last record")


def _utf(stream: bytes, at: int) -> tuple[str | None, int]:
    """Return the string written by `writeUTF` at an offset and its end, or None if it is not valid."""
    end = at + 2 + int.from_bytes(stream[at : at + 2], "big")
    if len(stream) < at + 2 or len(stream) < end:
        return None, at
    try:
        return decode_utf(stream[at + 2 : end]), end
    except UnicodeDecodeError:
        return None, at


def _lineage(value: Any, where: str) -> tuple[VersionLineage, ...]:
    try:
        found = tuple(
            VersionLineage(int(entry["version"]), str(entry["checkpointUniqueId"])) for entry in value
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(_WHAT, where, f"the lineage {value!r}", "versions and unique ids") from error
    if not all(is_plain(link.unique_id) for link in found):
        raise damaged(_WHAT, where, f"the lineage {value!r}", "unique ids")
    if any(after.version != before.version + 1 for before, after in pairwise(found)):
        raise damaged(_WHAT, where, f"the lineage {value!r}", "consecutive versions")
    return found
