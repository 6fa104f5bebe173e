"""The compressed streams of state files, including LZF.

A stream of LZF is a sequence of chunks without an end mark. A chunk has `ZV`, its kind, and the length of its
body in two bytes. If the body is compressed, two more bytes before it have the uncompressed length.

Spark writes state files with one of its codecs, `lz4` unless a setting names `lzf`, `snappy` or `zstd`, in
the framing of the Java library that it uses.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.text import LZ4_RATIO, SNAPPY_RATIO, Allowance, damaged

# The maximum for one `writeUTF`; longer text is split into chunks, counted in Java's characters.
CHUNK = 65_535


class ByteReader:
    """A reader of values from the start of bytes.

    Args:
        data: The bytes.
        what: The kind of file, for error messages.
        where: The file, for error messages.
    """

    def __init__(self, data: bytes, what: str, where: str) -> None:
        self._data = data
        self._what = what
        self._where = where
        self.at = 0

    def integer(self) -> int:
        """Read a signed integer of four bytes."""
        return int(struct.unpack(">i", self._take(4))[0])

    def short(self) -> int:
        """Read a signed integer of two bytes."""
        return int(struct.unpack(">h", self._take(2))[0])

    def text(self) -> str:
        """Read a string written by Java's `writeUTF`."""
        (length,) = struct.unpack(">H", self._take(2))
        start = self.at
        try:
            return decode_utf(self._take(length))
        except UnicodeDecodeError as error:
            raise self.damaged(f"invalid text at byte {start}") from error

    def end(self) -> None:
        """Check that no bytes follow the last value.

        Raises:
            Corrupt: More bytes follow.
        """
        if self.at != len(self._data):
            raise self.damaged(f"{len(self._data) - self.at} extra bytes at the end")

    def damaged(self, found: str, expected: str | None = None) -> Corrupt:
        """Return the error for damaged data."""
        return damaged(self._what, self._where, found, expected)

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise self.damaged(f"{len(self._data)} bytes", f"at least {end} bytes")
        taken = self._data[self.at : end]
        self.at = end
        return taken


def decode_utf(data: bytes) -> str:
    """Decode a string from Java's modified UTF-8.

    Raises:
        UnicodeDecodeError: The bytes are not valid modified UTF-8.
    """
    if data.isascii():
        return data.decode("ascii")
    halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def encode_utf(text: str) -> bytes:
    """Return a string as written by Java's `writeUTF`: its length, then modified UTF-8."""
    data = modified_utf8(text)
    return struct.pack(">H", len(data)) + data


def modified_utf8(text: str) -> bytes:
    """Encode a string as Java's modified UTF-8: by UTF-16 units, and without a zero byte."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))
    halves = "".join(chr(unit) for (unit,) in units)
    return halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


_MAGIC: Final = b"ZV"
_RAW, _PACKED = 0, 1
_HEAD: Final = 5
_LONGEST_LZF: Final = 0xFFFF
# A control byte below this is followed by literal bytes, one more than its value.
_LITERALS: Final = 32
# A length of this value is continued in the next byte.
_LONG: Final = 7


def lzf_chunks(data: bytes) -> Iterator[bytes]:
    """Decompress an LZF stream, chunk by chunk, with at most 64 KiB per chunk.

    Raises:
        ValueError: The stream is malformed or truncated.
    """
    at = 0
    while at < len(data):
        kind = data[at + 2] if at + _HEAD <= len(data) else -1
        if data[at : at + 2] != _MAGIC or kind not in (_RAW, _PACKED):
            raise ValueError(f"no chunk at byte {at}")
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        begin = at + _HEAD + 2 * kind
        at = begin + size
        if at > len(data):
            raise ValueError(f"end of file at byte {len(data)}, within a chunk up to {at}")
        body = data[begin:at]
        yield body if kind == _RAW else _unpack_lzf(body, int.from_bytes(data[begin - 2 : begin], "big"))


def to_lzf(data: bytes) -> bytes:
    """Return bytes as an LZF stream of uncompressed chunks, which every reader accepts."""
    parts = []
    for at in range(0, len(data), _LONGEST_LZF):
        chunk = data[at : at + _LONGEST_LZF]
        parts += [_MAGIC, bytes([_RAW]), len(chunk).to_bytes(2, "big"), chunk]
    return b"".join(parts)


def _unpack_lzf(body: bytes, length: int) -> bytes:
    """Decompress the body of an LZF chunk.

    Raises:
        ValueError: The body is malformed, or has a different length.
    """
    out = bytearray()
    at, end = 0, len(body)
    try:
        while at < end and len(out) <= length:
            control = body[at]
            at += 1
            if control < _LITERALS:
                out += body[at : at + control + 1]
                at += control + 1
                continue
            count = control >> 5
            if count == _LONG:
                count += body[at]
                at += 1
            start = len(out) - ((control & 0x1F) << 8 | body[at]) - 1
            at += 1
            _repeat(out, start, count + 2)
    except IndexError as error:
        raise ValueError("a truncated run at the end of a chunk") from error
    if at != end or len(out) != length:
        raise ValueError(f"{len(out)} bytes in a chunk of {length}")
    return bytes(out)


def _repeat(out: bytearray, start: int, count: int) -> None:
    """Append earlier bytes of the output; a run longer than the distance to its start repeats."""
    if start < 0:
        raise ValueError(f"a run that starts {-start} bytes before its chunk")
    there = out[start : start + count]
    if len(there) < count:
        there = (there * (count // len(there) + 1))[:count]
    out += there


LZ4: Final = "lz4"
SNAPPY: Final = "snappy"
ZSTD: Final = "zstd"
LZF: Final = "lzf"
READABLE: Final = (LZ4, LZF, SNAPPY, ZSTD)
# A setting may have the name of a class instead of a codec.
_CLASSES: Final = {
    "LZ4CompressionCodec": LZ4,
    "SnappyCompressionCodec": SNAPPY,
    "ZStdCompressionCodec": ZSTD,
    "LZFCompressionCodec": LZF,
}

_WHAT = "a compressed stream"
_OTHER_CODEC: Final = (
    "start the query on a new checkpoint with spark.sql.streaming.stateStore.compression.codec=lz4"
)
_LZ4_MAGIC: Final = b"LZ4Block"
_LZ4_HEAD: Final = struct.Struct("<8sBIII")
_LZ4_RAW: Final = 0x10
_LZ4_PACKED: Final = 0x20
_LZ4_SEED: Final = 0x9747B28C
# The Java library uses 28 bits of each hash.
_LZ4_HASH: Final = 0x0FFFFFFF
_SNAPPY_HEAD: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
# The size of a block that Spark writes, and its code in LZ4's token.
_BLOCK: Final = 1 << 15
_BLOCK_TOKEN: Final = 0x05
# A number of ten groups has more bits than any number that RocksDB or Snappy writes.
_LONGEST: Final = 10
# The number of bytes that may be decompressed before the limit is checked.
_PORTION: Final = 1 << 20


def codec_name(setting: str) -> str:
    """Return the name of the codec for a setting, which is a short name or the name of a class."""
    name = setting.rsplit(".", 1)[-1]
    return _CLASSES.get(name, name.lower())


def decompressed(data: bytes, codec: str, where: str) -> bytes:
    """Decompress a complete stream.

    Args:
        data: The bytes of the complete stream.
        codec: The name of the codec, as returned by `codec_name`.
        where: The file, for error messages.

    Raises:
        Corrupt: The stream is malformed or truncated, or bytes follow its end.
        Unsupported: The codec is not one of `READABLE`.
    """
    return b"".join(_unpacked(data, codec, where))


def beginning(data: bytes, codec: str, where: str, size: int) -> bytes:
    """Decompress at least the first `size` bytes of a stream, or all of a shorter one.

    Raises:
        Corrupt: The part that was read is malformed or truncated.
        Unsupported: The codec is not one of `READABLE`.
    """
    blocks, there = [], 0
    for block in _unpacked(data, codec, where):
        blocks.append(block)
        there += len(block)
        if there >= size:
            break
    return b"".join(blocks)


def compressed(data: bytes, codec: str) -> bytes:
    """Compress bytes as Spark would.

    Args:
        data: The bytes.
        codec: The name of the codec, as returned by `codec_name`.

    Raises:
        Unsupported: The codec is not one of `READABLE`.
    """
    writers: dict[str, Callable[[bytes], bytes]] = {
        LZ4: _to_lz4,
        LZF: to_lzf,
        SNAPPY: _to_snappy,
        ZSTD: _to_zstd,
    }
    if codec not in writers:
        raise Unsupported(
            "state files cannot be written with this compression codec",
            code="HF-E7064",
            found=codec,
            expected=", ".join(READABLE),
            hint=_OTHER_CODEC,
        )
    return writers[codec](data)


def lz4_block(data: bytes, length: int) -> bytes:
    """Decompress a raw LZ4 block.

    Raises:
        ValueError: The block is malformed, or has a different length.
    """
    import lz4.block

    if length > LZ4_RATIO * len(data):
        raise ValueError(f"{length} bytes in a block of {len(data)}")
    try:
        return bytes(lz4.block.decompress(data, uncompressed_size=length))
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from error


def snappy_block(data: bytes) -> bytes:
    """Decompress a raw Snappy block.

    Raises:
        ValueError: The block is malformed, or states an impossible length.
    """
    try:
        length, _ = varint(data, 0)
    except IndexError as error:
        raise ValueError("a block without a length") from error
    if length > SNAPPY_RATIO * len(data):
        raise ValueError(f"{length} bytes in a block of {len(data)}")
    import cramjam

    block = bytearray(length)
    try:
        written = cramjam.snappy.decompress_raw_into(data, block)
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
    if written != length:
        raise ValueError(f"{written} bytes in a block of {length}")
    return bytes(block)


def zstd_bytes(data: bytes, allowance: Allowance) -> bytes:
    """Decompress Zstandard frames in portions, and check their size against the limit.

    Raises:
        Corrupt: The decompressed size exceeds the limit.
        ValueError: A frame is malformed or truncated.
    """
    zstd = _zstd_library()
    parts: list[bytes] = []
    while data:
        frame = zstd.ZstdDecompressor()
        given = data
        try:
            while not frame.eof:
                part = frame.decompress(given, _PORTION)
                allowance.take(len(part))
                parts.append(part)
                given = b""
                if not part and frame.needs_input:
                    raise ValueError("a truncated frame")
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error
        data = frame.unused_data
    return b"".join(parts)


def _to_lz4(data: bytes) -> bytes:
    import lz4.block
    import xxhash

    parts = []
    for at in range(0, len(data), _BLOCK):
        block = data[at : at + _BLOCK]
        packed = lz4.block.compress(block, store_size=False)
        smaller = len(packed) < len(block)
        body, token = (packed, _LZ4_PACKED) if smaller else (block, _LZ4_RAW)
        value = xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_HASH
        parts += [_lz4_head(token, len(body), len(block), value), body]
    return b"".join([*parts, _lz4_head(_LZ4_RAW, 0, 0, 0)])


def _lz4_head(method: int, size: int, length: int, value: int) -> bytes:
    return _LZ4_HEAD.pack(_LZ4_MAGIC, method | _BLOCK_TOKEN, size, length, value)


def _to_snappy(data: bytes) -> bytes:
    import cramjam

    parts = [_SNAPPY_HEAD]
    for at in range(0, len(data), _BLOCK):
        packed = bytes(cramjam.snappy.compress_raw(data[at : at + _BLOCK]))
        parts += [len(packed).to_bytes(4, "big"), packed]
    return b"".join(parts)


def _unpacked(data: bytes, codec: str, where: str) -> Iterator[bytes]:
    """Yield the decompressed blocks of a stream in order."""
    readers = {LZ4: _lz4, LZF: _lzf, SNAPPY: _snappy, ZSTD: _zstd}
    if codec not in readers:
        raise Unsupported(
            "state files with this compression codec cannot be read",
            code="HF-E7065",
            where=where,
            found=codec,
            expected=", ".join(READABLE),
            hint=_OTHER_CODEC,
        )
    try:
        yield from readers[codec](data, where)
    except ValueError as error:
        text = str(error)
        found = text.splitlines()[0] if text else "a block that cannot be unpacked"
        raise damaged(_WHAT, where, found) from error


def _lz4(data: bytes, where: str) -> Iterator[bytes]:
    import xxhash

    allowance = Allowance(len(data), _WHAT, where)
    for number, (token, packed, length, expected) in enumerate(_lz4_blocks(data, where)):
        allowance.take(length)
        block = packed if token & 0xF0 == _LZ4_RAW else lz4_block(packed, length)
        if len(block) != length:
            raise ValueError(f"{len(block)} bytes in a block of {length}")
        if xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_HASH != expected:
            raise damaged(_WHAT, where, f"a different hash for block {number}")
        yield block


def _lz4_blocks(data: bytes, where: str) -> Iterator[tuple[int, bytes, int, int]]:
    at = 0
    while True:
        if at + _LZ4_HEAD.size > len(data):
            raise damaged(_WHAT, where, f"end of file at byte {len(data)}", "an end block")
        magic, token, size, length, value = _LZ4_HEAD.unpack_from(data, at)
        at += _LZ4_HEAD.size
        method, room = token & 0xF0, 1 << (10 + (token & 0x0F))
        bad = magic != _LZ4_MAGIC or method not in (_LZ4_RAW, _LZ4_PACKED) or length > room
        bad = bad or (method == _LZ4_RAW and size != length) or (length == 0) != (size == 0)
        if bad or (length == 0 and value != 0):
            raise damaged(_WHAT, where, f"no block at byte {at - _LZ4_HEAD.size}")
        if length == 0:
            break
        if at + size > len(data):
            raise damaged(_WHAT, where, f"end of file at byte {len(data)}", f"a block up to {at + size}")
        yield token, data[at : at + size], length, value
        at += size
    if at != len(data):
        raise damaged(_WHAT, where, f"{len(data) - at} bytes after its end")


def _lzf(data: bytes, where: str) -> Iterator[bytes]:
    allowance = Allowance(len(data), _WHAT, where)
    for chunk in lzf_chunks(data):
        allowance.take(len(chunk))
        yield chunk


def _snappy(data: bytes, where: str) -> Iterator[bytes]:
    if data[: len(_SNAPPY_HEAD)] != _SNAPPY_HEAD:
        raise damaged(_WHAT, where, repr(data[:8]), "the header of a Snappy stream")
    allowance = Allowance(len(data), _WHAT, where)
    at = len(_SNAPPY_HEAD)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size == 0 or at + size > len(data):
            raise damaged(_WHAT, where, f"end of file at byte {len(data)}", f"a block up to {at + size}")
        block = snappy_block(data[at : at + size])
        allowance.take(len(block))
        yield block
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer stored in groups of seven bits, lowest first, and the offset after it.

    Raises:
        ValueError: The integer has too many groups.
        IndexError: The data ends within the integer.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 7 * _LONGEST:
            raise ValueError("a number without an end")


def _zstd(data: bytes, where: str) -> Iterator[bytes]:
    yield zstd_bytes(data, Allowance(len(data), _WHAT, where))


def _to_zstd(data: bytes) -> bytes:
    return bytes(_zstd_library().compress(data))


def _zstd_library() -> Any:
    """Return the zstd module of Python 3.14, or its backport."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
