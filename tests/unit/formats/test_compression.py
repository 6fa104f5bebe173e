from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from lz4_streams import lz4_stream

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.files.compression import beginning, codec_name, compressed, decompressed

TEXT = b"state " * 20_000


def snappy_stream(data: bytes, block: int = 1 << 15) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block):
        packed = pa.Codec("snappy").compress(data[start : start + block], asbytes=True)
        out += struct.pack(">i", len(packed)) + packed
    return out


def lzf_stream(data: bytes, block: int = 0xFFFF) -> bytes:
    """Chunks as compress-lzf writes those that it cannot pack."""
    chunks = [data[start : start + block] for start in range(0, len(data), block)]
    return b"".join(b"ZV\0" + struct.pack(">H", len(chunk)) + chunk for chunk in chunks)


def lzf_packed(body: bytes, length: int) -> bytes:
    return b"ZV\1" + struct.pack(">HH", len(body), length) + body


def zstd_stream(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


STREAMS = {
    "lz4": lz4_stream(TEXT),
    "lzf": lzf_stream(TEXT),
    "snappy": snappy_stream(TEXT),
    "zstd": zstd_stream(TEXT),
}
# Chunks of LZF by hand. A control byte below 32 is followed by one more byte than it says, as they are. Any
# other has a length less 2 in its upper 3 bits, with a 7 continued in the next byte, and a distance less 1 in
# its lower 5 bits and a byte.
LZF_BY_HAND = {
    "bytes as they are": (lzf_packed(b"\x02abc", 3), b"abc"),
    "a short run": (lzf_packed(b"\x02abc\x20\x02", 6), b"abcabc"),
    "a run of itself": (lzf_packed(b"\x00a\xe0\x00\x00", 10), b"a" * 10),
    "a long run": (lzf_packed(b"\x01ab\xe0\xff\x01", 2 + 264), b"ab" * 133),
    # 320 bytes, ten of each number 32 times; a run of 4 that begins 300 bytes back, among the zeros.
    "a distant run": (
        lzf_packed(b"".join(b"\x1f" + bytes([n] * 32) for n in range(10)) + b"\x41\x2b", 324),
        b"".join(bytes([n] * 32) for n in range(10)) + bytes(4),
    ),
    "two chunks": (lzf_packed(b"\x00a\xe0\x00\x00", 10) + lzf_stream(b"bc"), b"a" * 10 + b"bc"),
    "nothing": (b"", b""),
}
LZF_DAMAGED = {
    "another mark": b"ZW\0\0\1a",
    "another kind": b"ZV\2\0\1a",
    "a head that is cut off": b"ZV\0\0",
    "fewer bytes": lzf_packed(b"\x00a", 2),
    "more bytes": lzf_packed(b"\x00a\xe0\x00\x00", 9),
    "a run before the chunk": lzf_packed(b"\x00a\x20\x01", 4),
    "a run into the chunk before": lzf_stream(b"abc") + lzf_packed(b"\x20\x02", 3),
    "a run that is cut off": lzf_packed(b"\x00a\xe0", 10),
    "bytes that are cut off": lzf_packed(b"\x05abc", 6),
}


@pytest.mark.parametrize(("stream", "expected"), LZF_BY_HAND.values(), ids=LZF_BY_HAND)
def test_lzf_is_unpacked_as_by_hand(stream: bytes, expected: bytes) -> None:
    assert decompressed(stream, "lzf", "f") == expected


@pytest.mark.parametrize("stream", LZF_DAMAGED.values(), ids=LZF_DAMAGED)
def test_damaged_lzf_is_refused(stream: bytes) -> None:
    with pytest.raises(Corrupt):
        decompressed(stream, "lzf", "f")


@pytest.mark.parametrize("codec", STREAMS)
def test_a_stream_is_read_to_its_end(codec: str) -> None:
    assert decompressed(STREAMS[codec], codec, "f") == TEXT


@pytest.mark.parametrize("codec", STREAMS)
def test_a_stream_that_is_cut_off_is_damaged(codec: str) -> None:
    stream = STREAMS[codec]
    for length in (len(stream) - 1, len(stream) // 2, 9, 1):
        with pytest.raises(Corrupt):
            decompressed(stream[:length], codec, "f")


def test_an_empty_stream_of_lz4_is_its_end_alone() -> None:
    assert decompressed(lz4_stream(b""), "lz4", "f") == b""
    with pytest.raises(Corrupt):
        decompressed(b"", "lz4", "f")


def test_each_flipped_bit_of_lz4_is_seen() -> None:
    stream = lz4_stream(b"abcdefgh" * 3 + bytes(range(200)))
    missed = []
    for at in range(len(stream)):
        for bit in range(8):
            data = bytearray(stream)
            data[at] ^= 1 << bit
            try:
                found = decompressed(bytes(data), "lz4", "f")
            except Corrupt:
                continue
            missed.append((at, bit, found))
    # What is not refused says the same in another way: a larger block allowed, a repetition of an equal part.
    assert all(found == decompressed(stream, "lz4", "f") for _, _, found in missed)
    assert all(at < len(stream) - 4 for at, _, _ in missed), "nothing is hashed by the block that ends it"


@pytest.mark.parametrize("codec", STREAMS)
def test_the_beginning_of_a_stream(codec: str) -> None:
    data = bytes(range(256)) * 1000
    stream = compressed(data, codec)
    for size in (1, 1 << 15, (1 << 15) + 1, len(data), 2 * len(data)):
        found = beginning(stream, codec, "f", size)
        assert data.startswith(found)
        assert len(found) >= min(size, len(data))


def test_the_beginning_is_read_where_the_rest_is_damaged() -> None:
    data = bytes(range(256)) * 1000
    stream = compressed(data, "lz4")[:-100]
    assert beginning(stream, "lz4", "f", 10) == data[: 1 << 15]
    with pytest.raises(Corrupt):
        beginning(stream, "lz4", "f", len(data))


def test_something_behind_the_end_is_damage() -> None:
    with pytest.raises(Corrupt, match="3 bytes after its end"):
        decompressed(lz4_stream(TEXT) + b"abc", "lz4", "f")


def test_what_is_not_read_is_said() -> None:
    with pytest.raises(Unsupported) as error:
        decompressed(b"", "brotli", "f")
    assert error.value.expected == "lz4, lzf, snappy, zstd"


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("lz4", "lz4"),
        ("LZ4", "lz4"),
        ("org.apache.spark.io.ZStdCompressionCodec", "zstd"),
        ("org.apache.spark.io.LZFCompressionCodec", "lzf"),
    ],
)
def test_a_setting_names_a_codec(setting: str, name: str) -> None:
    assert codec_name(setting) == name


def test_what_is_written_is_what_java_writes() -> None:
    assert compressed(TEXT, "lz4") == lz4_stream(TEXT)
    assert compressed(TEXT, "snappy") == snappy_stream(TEXT)
    assert compressed(TEXT, "lzf") == lzf_stream(TEXT)


@pytest.mark.parametrize("codec", STREAMS)
@pytest.mark.parametrize("data", [b"", b"x", bytes(1 << 15), bytes(range(256)) * 700])
def test_what_is_written_can_be_read(codec: str, data: bytes) -> None:
    assert decompressed(compressed(data, codec), codec, "f") == data


def test_what_is_not_written_is_said() -> None:
    with pytest.raises(Unsupported, match="state files cannot be written with this compression"):
        compressed(b"", "brotli")
