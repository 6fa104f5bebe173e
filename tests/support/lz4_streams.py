"""Streams of LZ4 blocks as Java's library writes them, made by definition and not by the code under test."""

from __future__ import annotations

import struct

import pyarrow as pa

SEED = 0x9747B28C
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def xxhash32_by_definition(data: bytes, seed: int) -> int:
    """The specification of xxHash32, step by step."""
    at = 0
    if len(data) >= 16:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = _rotated((lanes[lane] + word * _P2) & _MASK, 13) * _P1 & _MASK
                at += 4
        turned = (_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        value = sum(turned) & _MASK
    else:
        value = (seed + _P5) & _MASK
    value = (value + len(data)) & _MASK
    while at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        value = _rotated((value + word * _P3) & _MASK, 17) * _P4 & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotated((value + byte * _P5) & _MASK, 11) * _P1 & _MASK
    value = (value ^ (value >> 15)) * _P2 & _MASK
    value = (value ^ (value >> 13)) * _P3 & _MASK
    return value ^ (value >> 16)


def lz4_stream(data: bytes, block: int = 1 << 15) -> bytes:
    """Blocks, each with its hash, and the empty block at the end; what does not shrink is stored."""
    out = b""
    for start in range(0, len(data), block):
        part = data[start : start + block]
        packed = pa.Codec("lz4_raw").compress(part, asbytes=True)
        token = 0x25 if len(packed) < len(part) else 0x15
        body = packed if token == 0x25 else part
        value = xxhash32_by_definition(part, SEED) & 0x0FFFFFFF
        out += b"LZ4Block" + struct.pack("<BIII", token, len(body), len(part), value) + body
    return out + b"LZ4Block" + struct.pack("<BIII", 0x15, 0, 0, 0)
