"""RocksDB snapshots: a zip file of small files, its list of large files, and RocksDB's manifest.

RocksDB also verifies the checksums of its manifest, but may loop forever on a record with an invalid kind. So
the records are checked before RocksDB opens a snapshot.

The zip file has RocksDB's manifest, options and log, and the entry `metadata`, which maps RocksDB's names of
data files to their names in `SSTs/` and `logs/`.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from google_crc32c import value as crc32c

from holdfast import layout
from holdfast.errors import Corrupt
from holdfast.formats.files.compression import varint
from holdfast.formats.text import (
    ZIP_BYTES,
    ZIP_ENTRIES,
    compact,
    damaged,
    decoded,
    is_plain,
    json_object,
    plain_name,
    string,
    version_of,
    whole_number,
)

_MANIFEST_FILE: Final = "a manifest of RocksDB"
# The masked checksum of the rest, the length of the data after the header, and the record's kind.
_HEAD: Final = struct.Struct("<IHB")
_SUM: Final = 4
# A record does not cross the end of a block; the rest of a block is filled with zeros.
_BLOCK: Final = 32 << 10
# The kinds: a complete record, or the first, a middle or the last part of one.
_KINDS: Final = range(1, 5)
_DELTA: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF


def check_manifest(data: bytes, where: str) -> None:
    """Check that a manifest consists of complete, valid records; speed about one gigabyte per second.

    Raises:
        Corrupt: A record is truncated, has an invalid kind or a wrong checksum.
    """
    deque(_parts(data, where), maxlen=0)


def _parts(data: bytes, where: str) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the content of each record or part of a record, after checking it.

    Raises:
        Corrupt: A record is truncated, has an invalid kind or a wrong checksum.
    """
    at = 0
    while at < len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEAD.size:
            at += left
            continue
        if at + _HEAD.size > len(data):
            raise damaged(_MANIFEST_FILE, where, f"{len(data) - at} bytes of a truncated record at its end")
        stored, length, kind = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if kind not in _KINDS:
            raise damaged(_MANIFEST_FILE, where, f"a record of kind {kind} at byte {at}", "1 to 4")
        if end > len(data) or _HEAD.size + length > left:
            raise damaged(_MANIFEST_FILE, where, f"a truncated record of {length} bytes at byte {at}")
        if masked_crc32c(data[at + _SUM + 2 : end]) != stored:
            raise damaged(_MANIFEST_FILE, where, f"checksum mismatch in a record at byte {at}")
        yield kind, data[at + _HEAD.size : end]
        at = end


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file as RocksDB's manifest describes it.

    Attributes:
        size_bytes: The size of the file in bytes.
        session: The session of RocksDB that wrote the file; None if the manifest does not record it.
    """

    size_bytes: int
    session: int | None


# What a record of the manifest contains, by the tags of RocksDB's VersionEdit. Tags with the bit `_IGNORABLE`
# are followed by a length, and an older RocksDB skips them.
_COMPARATOR, _DELETED, _NEW_FILE, _FAMILY = 1, 6, 103, 200
_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, _FAMILY, 203, 300})
_NAMES: Final = frozenset({_COMPARATOR, 201})
_DROPPED: Final = 202
_IGNORABLE: Final = 1 << 13
# The tags of the fields after a new file: the end of the fields, and the file's identity.
_END, _IDENTITY = 1, 12
_IDENTITY_BYTES: Final = 16


def live_files(data: bytes, where: str) -> dict[str, LiveFile] | None:
    """Return the data files that RocksDB's manifest requires, by RocksDB's name of the file.

    RocksDB opens a snapshot only if each file has the size and the identity that the manifest records.

    Args:
        data: The bytes of the manifest.
        where: The path of the manifest, for error messages.

    Returns:
        The files, or None if the manifest contains something that this version of Holdfast does not know.

    Raises:
        Corrupt: The manifest is malformed.
    """
    files: dict[str, tuple[int, LiveFile]] = {}
    try:
        for record in _records(data, where):
            if not _apply(record, files):
                return None
    except (IndexError, ValueError) as error:
        raise damaged(_MANIFEST_FILE, where, str(error) or type(error).__name__) from error
    return {name: file for name, (_, file) in files.items()}


def _records(data: bytes, where: str) -> Iterator[bytes]:
    whole, first, _, last = _KINDS
    parts: list[bytes] = []
    for kind, part in _parts(data, where):
        if kind in (whole, first):
            parts = []
        parts.append(part)
        if kind in (whole, last):
            yield b"".join(parts)


def _apply(record: bytes, files: dict[str, tuple[int, LiveFile]]) -> bool:
    """Apply a record to the live files; return False if it contains an unknown tag."""
    at, family = 0, 0
    added: dict[str, LiveFile] = {}
    while at < len(record):
        tag, at = varint(record, at)
        if tag in _NUMBERS:
            number, at = varint(record, at)
            family = number if tag == _FAMILY else family
        elif tag in _NAMES or tag & _IGNORABLE:
            _, at = _counted(record, at)
        elif tag == _DELETED:
            _, at = varint(record, at)
            number, at = varint(record, at)
            files.pop(_sst_name(number), None)
        elif tag == _NEW_FILE:
            number, file, at = _new_file(record, at)
            added[_sst_name(number)] = file
        elif tag == _DROPPED:
            for name in [name for name, (of, _) in files.items() if of == family]:
                del files[name]
        else:
            return False
    # A compaction that only moves a file to a different level deletes it and adds it in one record.
    files.update({name: (family, file) for name, file in added.items()})
    return True


def _new_file(record: bytes, at: int) -> tuple[int, LiveFile, int]:
    _, at = varint(record, at)
    number, at = varint(record, at)
    size, at = varint(record, at)
    for _ in ("smallest key", "largest key"):
        _, at = _counted(record, at)
    for _ in ("smallest sequence number", "largest sequence number"):
        _, at = varint(record, at)
    session = None
    while True:
        tag, at = varint(record, at)
        if tag == _END:
            return number, LiveFile(size, session), at
        value, at = _counted(record, at)
        if tag == _IDENTITY and len(value) == _IDENTITY_BYTES:
            session = int.from_bytes(value[:8], "little") or None


def _counted(record: bytes, at: int) -> tuple[bytes, int]:
    length, at = varint(record, at)
    if at + length > len(record):
        raise ValueError(f"a field of {length} bytes in a record of {len(record)}")
    return record[at : at + length], at + length


def _sst_name(number: int) -> str:
    return f"{number:06}.sst"


def masked_crc32c(data: bytes) -> int:
    """Return the masked checksum that RocksDB stores."""
    crc = int(crc32c(data))
    return (((crc >> 15) | (crc << 17)) + _DELTA) & _WORD


# The second version has the same fields. Spark 4.0 writes it in state format 2, where it accepts no other.
VERSIONS: Final = (1, 2)
METADATA: Final = "metadata"
# The last eight bytes of a data file in RocksDB's block-based table format, little-endian.
SST_MAGIC: Final = 0x88E241B785F4CFF7.to_bytes(8, "little")
_WHAT = "a snapshot"
# A local header: magic, version, flags, method, time, date, CRC, packed size, size, lengths of name and
# extra.
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
# The data descriptor after an entry whose sizes were not known in its header: magic, CRC and sizes.
_BEHIND: Final = struct.Struct("<4sIII")
_SIZES_BEHIND: Final = 8
# RuntimeError is raised for an entry with the encryption flag.
_ZIP_ERRORS: Final = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
_MANIFEST: Final = "MANIFEST-"
_NEEDED: Final = (_MANIFEST, "CURRENT", "OPTIONS-")


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A data file of RocksDB, shared by snapshots.

    Attributes:
        local_name: RocksDB's name of the file.
        folder: The directory of the file: `SSTs` or `logs`.
        name: The name of the file in that directory.
        size_bytes: The size of the file in bytes.
    """

    local_name: str
    folder: str
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """The metadata that Spark stores in a snapshot.

    Attributes:
        version: The metadata version: 1, or 2 in state format 2 of Spark 4.0.
        shared: The data files that the snapshot needs.
        keys: The number of keys; negative if Spark did not count them.
        fields: All fields of the metadata, unchanged.
        live: The data files that RocksDB's manifest requires, by RocksDB's name; None if they were not read.
    """

    version: int
    shared: tuple[SharedFile, ...]
    keys: int
    fields: Mapping[str, Any]
    live: Mapping[str, LiveFile] | None = field(default=None, compare=False)

    @property
    def size_bytes(self) -> int:
        """Return the total size of the data files in bytes."""
        return sum(file.size_bytes for file in self.shared)

    def render(self) -> bytes:
        """Return the bytes of the entry `metadata`."""
        return f"v{self.version}\n{compact(self.fields)}".encode()


def parse_snapshot(data: bytes, where: str, *, whole: bool = True, live: bool = False) -> SnapshotMetadata:
    """Parse the zip file of a snapshot, and return its metadata.

    Args:
        data: The bytes of the zip file.
        where: The file, for error messages.
        whole: Whether to decompress every entry and verify its checksum and those of RocksDB's manifest;
            otherwise only the metadata is read.
        live: Whether to read from RocksDB's manifest which data files it requires.

    Raises:
        Corrupt: The zip file or an entry is malformed, or an entry that RocksDB needs is missing.
        Unsupported: The version of the metadata is unknown.
    """
    with _readable(data, where) as archive:
        names = archive.namelist()
        gap = _gap(data, archive) if whole else None
        bad = archive.testzip() if whole else None
        text = archive.read(METADATA) if METADATA in names else None
        read = (whole or live) and bad is None
        manifests = [name for name in names if name.startswith(_MANIFEST)] if read else []
        logs = {name: archive.read(name) for name in manifests}
    if gap is not None:
        raise _not_whole(where, f"no valid entry at byte {gap}")
    if bad is not None:
        raise _not_whole(where, f"checksum mismatch in entry {bad}")
    for name, log in logs.items() if whole else ():
        check_manifest(log, f"{where}, entry {name}")
    missing = [prefix for prefix in _NEEDED if not any(name.startswith(prefix) for name in names)]
    if text is None or missing:
        raise _not_whole(where, f"no entry {METADATA if text is None else missing[0]}")
    metadata = parse_metadata(text, f"{where}, entry {METADATA}")
    if not live or len(logs) != 1:
        return metadata
    ((name, log),) = logs.items()
    return replace(metadata, live=live_files(log, f"{where}, entry {name}"))


def snapshot_entries(data: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of RocksDB's small files in a snapshot, without Spark's metadata and
    directories.

    Raises:
        Corrupt: The zip file or an entry is malformed.
    """
    with _readable(data, where) as archive:
        for name in archive.namelist():
            # The data of RocksDB's archived logs is already in the data files.
            if name != METADATA and is_plain(name):
                yield name, archive.read(name)


@contextmanager
def _readable(data: bytes, where: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip file after checking the stated sizes, which limit what `zipfile` decompresses."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > ZIP_ENTRIES or sum(info.file_size for info in entries) > ZIP_BYTES:
                raise _not_whole(
                    where,
                    f"{len(entries):,} entries of {sum(info.file_size for info in entries):,} bytes",
                    f"at most {ZIP_ENTRIES:,} entries of {ZIP_BYTES:,} bytes",
                )
            # Java supports no other methods, and Python's decompressors for some need gigabytes at the start.
            if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in entries):
                raise _not_whole(where, "an entry with an unsupported compression")
            yield archive
    except _ZIP_ERRORS as error:
        raise _not_whole(where, f"{type(error).__name__}: {error}") from error


def _gap(data: bytes, archive: zipfile.ZipFile) -> int | None:
    """Return the offset at which the entries do not match the zip file's directory, or None if they match.

    Java reads a zip file from the beginning, entry by entry, and Python from the directory at the end. A zip
    file is accepted only if both read the same entries.
    """
    at = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        head = data[info.header_offset : info.header_offset + _LOCAL.size]
        if info.header_offset != at or len(head) < _LOCAL.size:
            return at
        magic, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack(head)
        begin = at + _LOCAL.size
        told = (info.CRC, info.compress_size, info.file_size)
        end = begin + name + extra + info.compress_size
        if flags & _SIZES_BEHIND:
            behind = data[end : end + _BEHIND.size]
            found = _BEHIND.unpack(behind)[1:] if behind[:4] == b"PK\x07\x08" else ()
            end += _BEHIND.size
        else:
            found = (crc, packed, size)
        known = magic == b"PK\x03\x04" and method == info.compress_type and flags == info.flag_bits
        if not known or data[begin : begin + name] != info.orig_filename.encode() or found != told:
            return at
        at = end
    return None if at == archive.start_dir else at


def parse_metadata(data: bytes, where: str) -> SnapshotMetadata:
    """Parse the entry `metadata` of a snapshot.

    Raises:
        Corrupt: The entry is not in the format that Spark writes.
        Unsupported: The version of the metadata is unknown.
    """
    version_line, newline, rest = decoded(data, _WHAT, where).partition("\n")
    version = version_of(version_line, VERSIONS, _WHAT, where)
    if not newline:
        raise damaged(_WHAT, where, "one line", "a version line and JSON")
    fields = json_object(rest, _WHAT, where)
    shared = _shared(fields, "sstFiles", "dfsSstFileName", layout.SSTS, where)
    shared += _shared(fields, "logFiles", "dfsLogFileName", layout.LOGS, where)
    return SnapshotMetadata(version, tuple(shared), whole_number(fields, "numKeys", _WHAT, where, -1), fields)


def _shared(fields: dict[str, Any], key: str, name: str, folder: str, where: str) -> list[SharedFile]:
    listed = fields.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(file, dict) for file in listed):
        raise damaged(_WHAT, where, f"`{key}` is {listed!r}", "a list of files")
    return [
        SharedFile(
            plain_name(string(file, "localFileName", _WHAT, where), _WHAT, where),
            folder,
            plain_name(string(file, name, _WHAT, where), _WHAT, where),
            whole_number(file, "sizeBytes", _WHAT, where),
        )
        for file in listed
    ]


def snapshot_metadata(
    version: int, shared: Sequence[SharedFile], fields: Mapping[str, Any]
) -> SnapshotMetadata:
    """Return the metadata of a new snapshot.

    Args:
        version: The metadata version of the checkpoint's snapshots.
        shared: The data files that the snapshot needs.
        fields: The other fields: the number of keys and the column families.
    """
    listed = [
        {"localFileName": file.local_name, "dfsSstFileName": file.name, "sizeBytes": file.size_bytes}
        for file in shared
    ]
    return SnapshotMetadata(version, tuple(shared), int(fields["numKeys"]), {"sstFiles": listed, **fields})


def _not_whole(where: str, found: str, expected: str = "a whole zip of RocksDB's files") -> Corrupt:
    return damaged(_WHAT, where, found, expected)
