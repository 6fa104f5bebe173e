"""Streams of LZF as the Java library compress-lzf writes them, which is what Spark's codec `lzf` uses.

A stream is a sequence of chunks without an end mark. A chunk has `ZV`, its kind, and the length of its
body in two bytes; in front of a packed body two more bytes have the length that it unpacks to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_MAGIC: Final = b"ZV"
_RAW, _PACKED = 0, 1
_HEAD: Final = 5
_LONGEST: Final = 0xFFFF
# Below this a control byte begins bytes that are copied as they are, one more than it says.
_LITERALS: Final = 32
# A length of this many is continued in the next byte.
_LONG: Final = 7


def lzf_chunks(data: bytes) -> Iterator[bytes]:
    """Unpack a stream chunk by chunk: at most 64 KiB each.

    Raises:
        ValueError: The stream is damaged, or cut off within a chunk.
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
            raise ValueError(f"its end at byte {len(data)} in a chunk up to {at}")
        body = data[begin:at]
        yield body if kind == _RAW else _unpacked(body, int.from_bytes(data[begin - 2 : begin], "big"))


def to_lzf(data: bytes) -> bytes:
    """Return a stream of these bytes, in chunks that are not packed: every reader takes them."""
    parts = []
    for at in range(0, len(data), _LONGEST):
        chunk = data[at : at + _LONGEST]
        parts += [_MAGIC, bytes([_RAW]), len(chunk).to_bytes(2, "big"), chunk]
    return b"".join(parts)


def _unpacked(body: bytes, length: int) -> bytes:
    """Unpack the body of a chunk.

    Raises:
        ValueError: It is damaged, or does not unpack to so many bytes.
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
        raise ValueError("a chunk whose last run is cut off") from error
    if at != end or len(out) != length:
        raise ValueError(f"{len(out)} bytes in a chunk of {length}")
    return bytes(out)


def _repeat(out: bytearray, start: int, count: int) -> None:
    """Append bytes that are there already; a run that reaches its own end repeats."""
    if start < 0:
        raise ValueError(f"a run that begins {-start} bytes before its chunk")
    there = out[start : start + count]
    if len(there) < count:
        there = (there * (count // len(there) + 1))[:count]
    out += there
