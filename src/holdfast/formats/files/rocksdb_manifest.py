"""RocksDB's manifest in a snapshot: a log of changes, each record with a checksum.

RocksDB looks at the checksums too, but of a record whose kind is damaged it may never come to an end. So the
records are looked at before RocksDB opens a snapshot.
"""

from __future__ import annotations

import struct
from typing import Final

from google_crc32c import value as crc32c

from holdfast.formats.text import damaged

_WHAT: Final = "a manifest of RocksDB"
# The masked checksum of the rest, the length of what follows the head, and the record's kind.
_HEAD: Final = struct.Struct("<IHB")
_SUM: Final = 4
# No record goes over the end of a block; what is left of one is filled with zeros.
_BLOCK: Final = 32 << 10
# A whole record, or the first, a middle or the last part of one.
_KINDS: Final = range(1, 5)
_DELTA: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF


def check_manifest(data: bytes, where: str) -> None:
    """See that a manifest consists of whole records. Cost: a gigabyte a second.

    Raises:
        Corrupt: It does not.
    """
    at = 0
    while at < len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEAD.size:
            at += left
            continue
        if at + _HEAD.size > len(data):
            raise damaged(_WHAT, where, f"{len(data) - at} bytes of a record at its end")
        stored, length, kind = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if kind not in _KINDS:
            raise damaged(_WHAT, where, f"a record of kind {kind} at byte {at}", "1 to 4")
        if end > len(data) or _HEAD.size + length > left:
            raise damaged(_WHAT, where, f"a record of {length} bytes at byte {at}, which ends too early")
        if masked_crc32c(data[at + _SUM + 2 : end]) != stored:
            raise damaged(_WHAT, where, f"a record at byte {at} that does not have its checksum")
        at = end


def masked_crc32c(data: bytes) -> int:
    """The checksum of bytes as RocksDB stores it, so that checksums among them do not make it a weak one."""
    crc = int(crc32c(data))
    return (((crc >> 15) | (crc << 17)) + _DELTA) & _WORD
