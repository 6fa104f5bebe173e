"""The record of a key group in keyed state, and the state variables of the record and the group's blobs."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from holdfast.errors import Corrupt

# The state variables of a key group, all of type bytes.
META, FORMS, BASE, LOG = "meta", "forms", "base", "log"

_META = struct.Struct("<4sI8s8sQQIqq?")
# The first kind of record has no counts; in the second kind they fill the rest of the record.
_PLAIN, _COUNTED = b"HFK1", b"HFK2"
_COUNT_BYTES = 8
NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Meta:
    """The record of a key group, which can be read without its rows.

    Attributes:
        key_groups: The number of key groups of the operator, fixed at its first start.
        token: The unique token of this version of the group's rows.
        form: The fingerprint of the schema with which the group was last written.
        base_bytes: The size of the base in bytes.
        log_bytes: The size of the changes since the base in bytes.
        log_count: The number of changes since the base.
        wake_event: The earliest timer in event time, in epoch milliseconds, or NEVER.
        wake_processing: The earliest timer in processing time, in epoch milliseconds, or NEVER.
        mixed: Whether some of the group's blobs have a former schema.
        counts: The counts of the group in the order of the schema, or None in a record of an older Holdfast.
    """

    key_groups: int
    token: bytes
    form: bytes
    base_bytes: int = 0
    log_bytes: int = 0
    log_count: int = 0
    wake_event: int = NEVER
    wake_processing: int = NEVER
    mixed: bool = False
    counts: tuple[int, ...] | None = None

    def encode(self) -> bytes:
        """Encode the record as bytes, whose length depends only on the number of counts."""
        plain = _META.pack(
            _PLAIN if self.counts is None else _COUNTED,
            self.key_groups,
            self.token,
            self.form,
            self.base_bytes,
            self.log_bytes,
            self.log_count,
            self.wake_event,
            self.wake_processing,
            self.mixed,
        )
        return plain + struct.pack(f"<{len(self.counts or ())}q", *(self.counts or ()))

    @classmethod
    def decode(cls, data: bytes) -> Meta:
        """Decode a record from the bytes of `encode`.

        Raises:
            Corrupt: The bytes are not a record of a key group.
        """
        try:
            magic, *fields = _META.unpack_from(data)
            rest = data[_META.size :]
            counts = struct.unpack(f"<{len(rest) // _COUNT_BYTES}q", rest)
            if magic == _PLAIN and counts:
                raise struct.error(f"{len(data)} bytes")
        except struct.error as error:
            raise Corrupt(
                "the metadata of a key group cannot be read",
                code="HF-E6024",
                found=str(error),
                hint="restore a savepoint, or an undamaged batch, as listed by"
                " `holdfast checkpoint verify CHECKPOINT`",
            ) from error
        if magic not in (_PLAIN, _COUNTED):
            raise Corrupt(
                "unknown metadata format of a key group",
                code="HF-E6025",
                found=repr(magic),
                hint="upgrade Holdfast if a newer release wrote the state; otherwise restore a savepoint",
            )
        plain = cls(*fields)
        return plain if magic == _PLAIN else replace(plain, counts=counts)
