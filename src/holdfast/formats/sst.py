"""RocksDB's data files, entry by entry as they lie on the disk: deleted and overwritten rows included.

RocksDB itself shows only what counts. Whoever has to know whether a key is anywhere in a file has to look at
what no longer counts too: a deleted row stays in its file until that is written anew.

A file ends with a footer that says where the index is; the index says where the blocks of rows are. Within a
block each key leaves out what it shares with the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.compression import LZ4, lz4_block
from holdfast.formats.snapshot import SST_MAGIC
from holdfast.formats.text import damaged

_WHAT = "a data file of RocksDB"
_FOOTER: Final = 53
_TRAILER: Final = 5
# Behind each key stand the number of the write and what it did: eight bytes.
_NUMBERED: Final = 8
_NONE, _SNAPPY, _LZ4, _LZ4HC, _ZSTD = 0, 1, 4, 5, 7
_CODECS: Final = {_SNAPPY: "snappy", _LZ4: LZ4, _LZ4HC: LZ4, _ZSTD: "zstd"}
_OTHERS: Final = {2: "zlib", 3: "bzip2", 6: "xpress"}
_PROPERTIES: Final = b"rocksdb.properties"
_BARE_BOUNDS: Final = b"rocksdb.index.key.is.user.key"
_VERSIONS: Final = range(2, 6)

Entry = tuple[bytes, bytes]


def sst_entries(data: bytes, where: str, keys: Collection[bytes] | None = None) -> Iterator[Entry]:
    """Every key with its value as they lie in the file; of a delete the value is empty.

    Cost: about half a microsecond an entry.

    Args:
        data: The file.
        where: Its path, for messages.
        keys: Only what is in the blocks that may have one of these.

    Raises:
        Corrupt: It is damaged.
        Unsupported: It is of a version or compression that is not known here.
    """
    try:
        for block in _blocks(data, where, keys):
            yield from _rows(block)
    except (struct.error, IndexError, ValueError) as error:
        raise damaged(_WHAT, where, str(error) or type(error).__name__) from error


def _blocks(data: bytes, where: str, keys: Collection[bytes] | None) -> Iterator[bytes]:
    """The blocks of rows, unpacked."""
    footer = data[-_FOOTER:]
    if len(footer) < _FOOTER or footer[-8:] != SST_MAGIC:
        raise damaged(_WHAT, where, "no footer at its end")
    (version,) = struct.unpack_from("<I", footer, _FOOTER - 12)
    if version not in _VERSIONS:
        raise Unsupported(
            "this version of RocksDB's data files is not known",
            where=where,
            found=str(version),
            expected="2 to 5",
        )
    others, at = _handle(footer, 1)
    rows, _ = _handle(footer, at)
    index = _unpacked(data, *rows, where)
    numbered = keys is not None and not _bare_bounds(_unpacked(data, *others, where), data, where)
    before = b""
    for bound, start, size in _handles(index, delta=version >= 4):
        until = bound[:-_NUMBERED] if numbered else bound
        # A key may go on in the block behind the one that it bounds: there are its older values.
        if keys is None or any(before <= key <= until for key in keys):
            yield _unpacked(data, start, size, where)
        before = until


def _bare_bounds(others: bytes, data: bytes, where: str) -> bool:
    """Whether the bounds in the index have no numbers of writes behind them, by the file's properties."""
    for name, value in _pairs(others):
        if name == _PROPERTIES:
            block = _unpacked(data, *_handle(value, 0)[0], where)
            return any(each == _BARE_BOUNDS and bool(_varint(said, 0)[0]) for each, said in _pairs(block))
    return False


def _pairs(block: bytes) -> Iterator[Entry]:
    """The entries of a block that has no rows."""
    end = _end_of_rows(block)
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own + size
        yield key, block[at - size : at]


def _handles(index: bytes, *, delta: bool) -> Iterator[tuple[bytes, int, int]]:
    """Where the blocks are, by the index: of each a key that none of its own is behind, place and size.

    Since version 4 an entry has no length of its value, and one that shares its key's beginning with the one
    before says only by how much its size differs.
    """
    end = _end_of_rows(index)
    at = start = size = 0
    bound = b""
    while at < end:
        shared, at = _varint(index, at)
        own, at = _varint(index, at)
        if not delta:
            _, at = _varint(index, at)
        bound = bound[:shared] + index[at : at + own]
        at += own
        if delta and shared:
            start += size + _TRAILER
            change, at = _varint(index, at)
            size += (change >> 1) ^ -(change & 1)
        else:
            (start, size), at = _handle(index, at)
        yield bound, start, size


def _rows(block: bytes) -> list[Entry]:
    """The rows of a block, their keys without the number of the write."""
    end = _end_of_rows(block)
    at, key = 0, b""
    rows = []
    while at < end:
        # Lengths are below 128 as a rule, and then one byte each.
        shared, own, size = block[at], block[at + 1], block[at + 2]
        if shared | own | size < 128:
            at += 3
        else:
            shared, at = _varint(block, at)
            own, at = _varint(block, at)
            size, at = _varint(block, at)
        value = at + own
        key = key[:shared] + block[at:value]
        at = value + size
        if len(key) < _NUMBERED or at > end:
            raise ValueError(f"a row at {value} that goes beyond its block")
        rows.append((key[:-_NUMBERED], block[value:at]))
    return rows


def _end_of_rows(block: bytes) -> int:
    """Where the rows of a block end: behind them are the places of whole keys, and how many these are."""
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    # The highest bit says that the block has an index by hashes behind its rows too.
    if count >> 31:
        raise ValueError("a block with an index by hashes")
    return len(block) - 4 - 4 * int(count)


def _unpacked(data: bytes, start: int, size: int, where: str) -> bytes:
    if start < 0 or size < 4 or start + size + _TRAILER > len(data):
        raise ValueError(f"a block of {size} bytes at {start} of {len(data)}")
    kind = data[start + size]
    block = data[start : start + size]
    if kind == _NONE:
        return block
    codec = _CODECS.get(kind)
    if codec is None:
        if kind not in _OTHERS:
            raise ValueError(f"a block of kind {kind} at {start}")
        raise Unsupported(
            "this compression of RocksDB's data files is not known", where=where, found=_OTHERS[kind]
        )
    length, at = _varint(block, 0)
    return _unpack(codec)(block[at:], length) if kind != _SNAPPY else _unpack(codec)(block, length)


@cache
def _unpack(codec: str) -> Callable[[bytes, int], bytes]:
    if codec == LZ4:
        return lz4_block
    import pyarrow as pa  # noqa: PLC0415 - a verb that reads no state does not load it

    given: Any = pa.Codec(codec)
    return lambda block, length: bytes(given.decompress(block, length, asbytes=True))


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """The place and the size of a block, and where they end."""
    start, at = _varint(data, at)
    size, at = _varint(data, at)
    return (start, size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, at
        shift += 7
