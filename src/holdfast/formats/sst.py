"""RocksDB's data files, entry by entry as they lie on the disk: deleted and overwritten rows included.

RocksDB itself shows only what counts. Whoever has to know whether a key is anywhere in a file has to look at
what no longer counts too: a deleted row stays in its file until that is written anew.

A file ends with a footer that says where the index is; the index says where the blocks of rows are. Within a
block each key leaves out what it shares with the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.snapshot import SST_MAGIC
from holdfast.formats.text import damaged

_WHAT = "a data file of RocksDB"
_FOOTER: Final = 53
_TRAILER: Final = 5
# Behind each key stand the number of the write and what it did: eight bytes.
_NUMBERED: Final = 8
_NONE, _SNAPPY, _LZ4, _LZ4HC, _ZSTD = 0, 1, 4, 5, 7
_CODECS: Final = {_SNAPPY: "snappy", _LZ4: "lz4_raw", _LZ4HC: "lz4_raw", _ZSTD: "zstd"}
_OTHERS: Final = {2: "zlib", 3: "bzip2", 6: "xpress"}
_VERSIONS: Final = range(2, 6)

Entry = tuple[bytes, bytes]


def sst_entries(data: bytes, where: str) -> Iterator[Entry]:
    """Every key with its value as they lie in the file; of a delete the value is empty.

    Cost: about a microsecond an entry.

    Args:
        data: The file.
        where: Its path, for messages.

    Raises:
        Corrupt: It is damaged.
        Unsupported: It is of a version or compression that is not known here.
    """
    try:
        for block in _blocks(data, where):
            for key, value in _rows(block):
                yield key[:-_NUMBERED], value
    except (struct.error, IndexError, ValueError) as error:
        raise damaged(_WHAT, where, str(error) or type(error).__name__) from error


def _blocks(data: bytes, where: str) -> Iterator[bytes]:
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
    at = 1
    for _ in range(2):  # the index of other things comes before that of rows
        start, at = _varint(footer, at)
        size, at = _varint(footer, at)
    index = _unpacked(data, start, size, where)
    for handle in _handles(index, delta=version >= 4):
        yield _unpacked(data, *handle, where)


def _handles(index: bytes, *, delta: bool) -> Iterator[tuple[int, int]]:
    """Where the blocks are, by the index: place and size of each.

    Since version 4 an entry has no length of its value, and one that shares its key's beginning with the one
    before says only by how much its size differs.
    """
    end = _end_of_rows(index)
    at = start = size = 0
    while at < end:
        shared, at = _varint(index, at)
        own, at = _varint(index, at)
        if not delta:
            _, at = _varint(index, at)
        at += own
        if delta and shared:
            start += size + _TRAILER
            change, at = _varint(index, at)
            size += (change >> 1) ^ -(change & 1)
        else:
            start, at = _varint(index, at)
            size, at = _varint(index, at)
        yield start, size


def _rows(block: bytes) -> Iterator[Entry]:
    end = _end_of_rows(block)
    at, key = 0, b""
    while at < end:
        # Lengths are below 128 as a rule, and then one byte each.
        shared, own, size = block[at], block[at + 1], block[at + 2]
        if shared | own | size < 128:
            at += 3
        else:
            shared, at = _varint(block, at)
            own, at = _varint(block, at)
            size, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        if len(key) < _NUMBERED or at + size > end:
            raise ValueError(f"a row at {at} that goes beyond its block")
        yield key, block[at : at + size]
        at += size


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


def _unpack(codec: str) -> Callable[[bytes, int], bytes]:
    import pyarrow as pa  # noqa: PLC0415 - a verb that reads no state does not load it

    given: Any = pa.Codec(codec)
    return lambda block, length: bytes(given.decompress(block, length, asbytes=True))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, at
        shift += 7
