"""A reader of RocksDB's data files, entry by entry, including deleted and overwritten rows.

RocksDB returns only current rows. A search for a key in a file must also read obsolete rows, because a
deleted row remains in its file until the file is rewritten.

A file ends with a footer that has the location of the index; the index has the locations of the blocks of
rows. Within a block each key omits the prefix that it shares with the previous key.
"""

from __future__ import annotations

import bz2
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.files.compression import lz4_block, snappy_block, varint, zstd_bytes
from holdfast.formats.files.snapshot import SST_MAGIC, masked_crc32c
from holdfast.formats.text import FREE_BYTES, LZ4_RATIO, RATIO, SNAPPY_RATIO, Allowance, damaged

_WHAT = "a data file of RocksDB"
_FOOTER: Final = 53
_TRAILER: Final = 5
# Eight bytes after each key have the sequence number of the write and its kind.
_NUMBERED: Final = 8
_NONE, _SNAPPY, _BZIP2, _LZ4, _LZ4HC, _ZSTD = 0, 1, 3, 4, 5, 7
_KNOWN: Final = frozenset({_NONE, _SNAPPY, _BZIP2, _LZ4, _LZ4HC, _ZSTD})
# The RocksDB library that reads complete snapshots is built without these compressions.
_OTHERS: Final = {2: "zlib", 6: "xpress"}
UNREADABLE: Final = frozenset(_OTHERS.values())
_OTHER_COMPRESSION: Final = (
    "set spark.sql.streaming.stateStore.rocksdb.compression=lz4 for new RocksDB files; until RocksDB has"
    " replaced the old files, read the state with Spark: spark.read.format('statestore')"
)
_PROPERTIES: Final = b"rocksdb.properties"
_BARE_BOUNDS: Final = b"rocksdb.index.key.is.user.key"
# A session is a number to base 36. Its last twelve digits are the lower 62 bits of the lower half, and the
# two bits above them are the last ones of the other digits.
_SESSION: Final = b"rocksdb.creating.session.identity"
_LOWER_DIGITS: Final = 12
_LOWER_BITS: Final = (1 << 62) - 1
_SHORTEST_SESSION, _LONGEST_SESSION = 13, 24
_VERSIONS: Final = range(2, 6)

# The checksum types for a block and its compression byte, by the first byte of the footer.
_NO_SUM, _CRC32C, _XXH32, _XXH64, _XXH3 = range(5)
_LAST_BYTE: Final = 0x6B9083D9
_WORD: Final = 0xFFFFFFFF


Entry = tuple[bytes, bytes]
Read = Callable[[int, int], bytes]
Handle = tuple[int, int]


def sst_entries(data: bytes, where: str, keys: Collection[bytes] | None = None) -> Iterator[Entry]:
    """Yield every key and value in a file; the value of a delete is empty.

    It takes about half a microsecond per entry.

    Args:
        data: The bytes of the file.
        where: The path of the file, for error messages.
        keys: If given, only blocks that may have one of these keys are read.

    Raises:
        Corrupt: The file is malformed or truncated, or a checksum is wrong.
        Unsupported: The version or the compression of the file is not supported.
    """
    try:
        file = _open_table(lambda start, size: data[start : start + size], len(data), where)
        for block in _blocks(file, keys):
            yield from _rows(block)
    except _UNREADABLE as error:
        raise _damage(where, error) from error


def sst_sample(read: Read, size: int, where: str, count: int) -> list[bytes]:
    """Return keys of the first, the middle and the last block of rows, up to `count` of each.

    The footer, the index and three blocks are read.

    Args:
        read: Returns a number of bytes from an offset; fewer at the end of the file.
        size: The size of the file in bytes.
        where: The path of the file, for error messages.
        count: The maximum number of keys per block.

    Raises:
        Corrupt: The file is malformed or truncated, or a checksum is wrong.
        Unsupported: The version or the compression of the file is not supported.
    """
    try:
        file = _open_table(read, size, where)
        handles = [*_handles(file.block(file.index), delta=file.version >= 4)]
        chosen = sorted({0, len(handles) // 2, len(handles) - 1}) if handles else []
        blocks = (file.block(handles[place][1:]) for place in chosen)
        return [key for block in blocks for key, _ in _rows(block)[:count]]
    except _UNREADABLE as error:
        raise _damage(where, error) from error


def check_sst(read: Read, size: int, where: str, *, blocks: bool = True) -> None:
    """Check the footer of a file and the checksums of its blocks.

    RocksDB verifies the checksum of a block when it reads the block, but trusts the lengths in it. This
    function decompresses only the index, and rejects a block with an impossible length.

    Args:
        read: Returns a number of bytes from an offset; fewer at the end of the file.
        size: The size of the file in bytes.
        where: The path of the file, for error messages.
        blocks: Whether to check the blocks of rows, too; otherwise only the end of the file is read.

    Raises:
        Corrupt: The file is malformed or truncated, or a checksum is wrong.
        Unsupported: The version or the compression of the file is not supported.
    """
    try:
        file = _open_table(read, size, where)
        index = file.block(file.index)
        for _, value in _pairs(file.block(file.others)):
            file.checked(_handle(value, 0)[0])
        if blocks:
            for _, start, length in _handles(index, delta=file.version >= 4):
                file.checked((start, length))
    except _UNREADABLE as error:
        raise _damage(where, error) from error


def sst_session(read: Read, size: int, where: str) -> int | None:
    """Return the session of RocksDB that wrote a file, as RocksDB's manifest records it.

    The footer and two small blocks are read.

    Args:
        read: Returns a number of bytes from an offset; fewer at the end of the file.
        size: The size of the file in bytes.
        where: The path of the file, for error messages.

    Returns:
        The lower half of the session, or None if the file does not contain it.

    Raises:
        Corrupt: The file is malformed or truncated, or a checksum is wrong.
        Unsupported: The version or the compression of the file is not supported.
    """
    try:
        value = dict(_properties(_open_table(read, size, where))).get(_SESSION, b"")
        if not _SHORTEST_SESSION <= len(value) <= _LONGEST_SESSION:
            return None
        upper, lower = int(value[:-_LOWER_DIGITS], 36), int(value[-_LOWER_DIGITS:], 36)
        return (lower & _LOWER_BITS) | ((upper & 3) << 62)
    except _UNREADABLE as error:
        raise _damage(where, error) from error


_UNREADABLE: Final = (struct.error, IndexError, ValueError)


def _damage(where: str, error: Exception) -> Corrupt:
    return damaged(_WHAT, where, str(error) or type(error).__name__)


@dataclass(frozen=True, slots=True)
class _File:
    """A data file whose footer has been read.

    Attributes:
        read: Returns a number of bytes from an offset.
        size: The size of the file in bytes.
        where: The path of the file.
        sums: The type of the checksums.
        version: The version of the file format.
        others: The handle of the index of metadata blocks.
        index: The handle of the index of rows.
        allowance: The limit on decompressed bytes.
    """

    read: Read
    size: int
    where: str
    sums: int
    version: int
    others: Handle
    index: Handle
    allowance: Allowance

    def checked(self, handle: Handle) -> tuple[int, bytes]:
        """Return the compression of a block, and its stored bytes, after verifying the checksum.

        Raises:
            ValueError: The block is outside the file, its checksum is wrong, or its stated length is
                impossible.
            Unsupported: The compression of the block is not supported.
        """
        start, size = handle
        if start < 0 or size < 4 or start + size + _TRAILER > self.size:
            raise ValueError(f"a block of {size} bytes at {start} of {self.size}")
        data = self.read(start, size + _TRAILER)
        if len(data) < size + _TRAILER:
            raise ValueError(f"end of file at byte {start + len(data)}")
        block, kind = data[:size], data[size]
        if not _has_sum(self.sums, block, kind, int.from_bytes(data[size + 1 :], "little")):
            raise ValueError(f"checksum mismatch in the block at {start}")
        if kind not in _KNOWN:
            if kind not in _OTHERS:
                raise ValueError(f"a block of kind {kind} at {start}")
            raise Unsupported(
                "RocksDB data files with this compression cannot be read",
                code="HF-E7066",
                where=self.where,
                found=_OTHERS[kind],
                expected="none, snappy, bzip2, lz4, lz4hc or zstd",
                hint=_OTHER_COMPRESSION,
            )
        if kind != _NONE:
            self._claims(kind, block)
        return kind, block

    def block(self, handle: Handle) -> bytes:
        """Return the decompressed bytes of a block.

        Raises:
            ValueError: The block is malformed, or its checksum is wrong.
            Corrupt: The decompressed size exceeds the limit.
            Unsupported: The compression of the block is not supported.
        """
        kind, block = self.checked(handle)
        if kind == _NONE:
            self.allowance.take(len(block))
            return block
        if kind == _SNAPPY:
            unpacked = snappy_block(block)
            self.allowance.take(len(unpacked))
            return unpacked
        length, at = varint(block, 0)
        if kind == _ZSTD:
            unpacked = zstd_bytes(block[at:], self.allowance)
        elif kind == _BZIP2:
            unpacked = _bzip2_block(block[at:], self.allowance.take(length))
        else:
            unpacked = lz4_block(block[at:], self.allowance.take(length))
        if len(unpacked) != length:
            raise ValueError(f"{len(unpacked)} bytes in a block of {length}")
        return unpacked

    def _claims(self, kind: int, block: bytes) -> None:
        length, _ = varint(block, 0)
        # The maximum compression ratios; for Zstandard and bzip2 that of a complete file, because one block
        # may be nearly all of a file.
        most = {_SNAPPY: SNAPPY_RATIO * len(block), _LZ4: LZ4_RATIO * len(block)}
        if length > most.get(_LZ4 if kind == _LZ4HC else kind, length):
            raise ValueError(f"{length} bytes in a block of {len(block)}")
        if kind in (_ZSTD, _BZIP2):
            Allowance(len(block), _WHAT, self.where).take(length)


def _bzip2_block(data: bytes, length: int) -> bytes:
    """Decompress a bzip2 block, up to one byte more than the stated length.

    Raises:
        ValueError: The block is malformed or has a different length.
    """
    unpacker = bz2.BZ2Decompressor()
    try:
        unpacked = unpacker.decompress(data, length + 1)
    except OSError as error:
        raise ValueError(str(error)) from error
    if unpacker.unused_data:
        raise ValueError(f"{len(unpacker.unused_data)} bytes after a bzip2 block")
    return unpacked


def _open_table(read: Read, size: int, where: str) -> _File:
    footer = read(max(size - _FOOTER, 0), _FOOTER)
    if len(footer) < _FOOTER or footer[-8:] != SST_MAGIC:
        raise damaged(_WHAT, where, "no footer")
    (version,) = struct.unpack_from("<I", footer, _FOOTER - 12)
    if version not in _VERSIONS:
        raise Unsupported(
            "unknown version of a RocksDB data file",
            code="HF-E7067",
            where=where,
            found=f"version {version}",
            expected="version 2 to 5",
            hint="upgrade Holdfast: a newer Spark wrote this file",
        )
    others, at = _handle(footer, 1)
    index, _ = _handle(footer, at)
    return _File(read, size, where, footer[0], version, others, index, Allowance(size, _WHAT, where))


def _has_sum(sums: int, block: bytes, kind: int, stored: int) -> bool:
    """Return whether the checksum of a block and its compression byte is correct."""
    if sums == _NO_SUM:
        return True
    if sums == _CRC32C:
        return masked_crc32c(block + bytes([kind])) == stored
    import xxhash

    if sums == _XXH3:
        return (xxhash.xxh3_64_intdigest(block) ^ (kind * _LAST_BYTE)) & _WORD == stored
    if sums not in (_XXH32, _XXH64):
        raise ValueError(f"checksums of kind {sums}")
    digest = xxhash.xxh32_intdigest if sums == _XXH32 else xxhash.xxh64_intdigest
    return digest(block + bytes([kind])) & _WORD == stored


def _blocks(file: _File, keys: Collection[bytes] | None) -> Iterator[bytes]:
    """Yield the decompressed blocks of rows."""
    index = file.block(file.index)
    numbered = keys is not None and not _bare_bounds(file)
    before = b""
    for bound, start, size in _handles(index, delta=file.version >= 4):
        until = bound[:-_NUMBERED] if numbered else bound
        # A key may continue in the block after the one that it bounds, which has its older values.
        if keys is None or any(before <= key <= until for key in keys):
            yield file.block((start, size))
        before = until


def _bare_bounds(file: _File) -> bool:
    """Return whether the bounds in the index have no sequence numbers, according to the file's properties."""
    return any(name == _BARE_BOUNDS and bool(varint(value, 0)[0]) for name, value in _properties(file))


def _properties(file: _File) -> Iterator[Entry]:
    for name, value in _pairs(file.block(file.others)):
        if name == _PROPERTIES:
            yield from _pairs(file.block(_handle(value, 0)[0]))
            return


def _pairs(block: bytes) -> Iterator[Entry]:
    """Yield the keys and values of a block without rows."""
    end = _end_of_rows(block)
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own + size
        if at > end:
            raise ValueError(f"an entry up to {at} of {end}")
        yield key, block[at - size : at]


def _handles(index: bytes, *, delta: bool) -> Iterator[tuple[bytes, int, int]]:
    """Yield the blocks of the index: an upper bound of the keys, the offset and the size of each.

    Since version 4 an entry has no length of its value, and an entry that shares a key prefix with the
    previous one stores only the difference of their sizes.
    """
    end = _end_of_rows(index)
    at = start = size = behind = 0
    bound = b""
    while at < end:
        shared, at = varint(index, at)
        own, at = varint(index, at)
        if not delta:
            _, at = varint(index, at)
        bound = bound[:shared] + index[at : at + own]
        at += own
        if delta and shared:
            start += size + _TRAILER
            change, at = varint(index, at)
            size += (change >> 1) ^ -(change & 1)
        else:
            (start, size), at = _handle(index, at)
        if start < behind:
            raise ValueError(f"a block at {start} that overlaps the previous one")
        behind = start + size
        yield bound, start, size


def _rows(block: bytes) -> list[Entry]:
    """Return the rows of a block; the keys have no sequence number."""
    end = _end_of_rows(block)
    at, key = 0, b""
    rows = []
    # A key takes only the bytes that it does not share, so many long keys fit into a small block.
    left = max(FREE_BYTES, RATIO * len(block))
    while at < end:
        # Lengths are usually below 128, and then take one byte each.
        shared, own, size = block[at], block[at + 1], block[at + 2]
        if shared | own | size < 128:
            at += 3
        else:
            shared, at = varint(block, at)
            own, at = varint(block, at)
            size, at = varint(block, at)
        value = at + own
        key = key[:shared] + block[at:value]
        at = value + size
        left -= len(key)
        if len(key) < _NUMBERED or at > end or left < 0:
            raise ValueError(f"a row at {value} that exceeds its block")
        rows.append((key[:-_NUMBERED], block[value:at]))
    return rows


def _end_of_rows(block: bytes) -> int:
    """Return the end of a block's rows, which are followed by the restart offsets and their number."""
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    # The highest bit shows that the block has a hash index after its rows.
    if len(block) < 4 or count >> 31:
        raise ValueError("a block with a hash index")
    end = len(block) - 4 - 4 * int(count)
    if end < 0:
        raise ValueError(f"{count} restart points in a block of {len(block)} bytes")
    return end


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Return the offset and the size of a block, and the end of the handle."""
    start, at = varint(data, at)
    size, at = varint(data, at)
    return (start, size), at
