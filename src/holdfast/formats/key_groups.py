"""The record of a key group in keyed state, and the variables that hold it and the group's blobs."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from holdfast.errors import Corrupt

# The variables that a store keeps for a group, all of bytes.
META, FORMS, BASE, LOG = "meta", "forms", "base", "log"

_META = struct.Struct("<4sI8s8sQQIqq?")
# The first kind of record has no counts; the second has as many after it as are left.
_PLAIN, _COUNTED = b"HFK1", b"HFK2"
_COUNT_BYTES = 8
NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata of a group, known without reading its rows.

    Attributes:
        key_groups: The number of groups of the operator, fixed at its first start.
        token: The unique name of this version of the group's rows.
        form: The fingerprint of the form it was last written in.
        base_bytes: The size of the base.
        log_bytes: The size of the changes since the base.
        log_count: The number of these changes.
        wake_event: The earliest timer in event time, or NEVER.
        wake_processing: The earliest timer in processing time, or NEVER.
        mixed: Whether some of its blobs still have a former form.
        counts: The counts of the group, as `census` makes them in the form of `form`; None in a record of an
            older Holdfast.
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
        """Return the bytes, of one length for one layout."""
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
        """Read back what `encode` wrote.

        Raises:
            Corrupt: The bytes are something else.
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
                hint="restore a savepoint, or a batch that `holdfast checkpoint verify` reports as whole",
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
