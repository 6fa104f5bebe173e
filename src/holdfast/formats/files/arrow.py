"""The check of Arrow messages before Arrow decodes them.

Arrow decompresses the buffers of a message to any size that it states. Holdfast never writes compressed
buffers, so a message with compressed buffers comes from a different writer and is rejected.
"""

from __future__ import annotations

import struct
from typing import Final

_CONTINUED: Final = 0xFFFFFFFF
# The indices of fields in two tables: `Message.header` and `RecordBatch.compression`.
_HEADER: Final = 2
_COMPRESSION: Final = 3


def is_packed(message: bytes) -> bool:
    """Return whether the buffers in the message of a record batch are compressed.

    Raises:
        ValueError: The bytes are not an Arrow message.
    """
    try:
        mark, size = struct.unpack_from("<II", message)
        if mark != _CONTINUED:
            raise ValueError("no message of Arrow's")
        table = message[8 : 8 + size]
        (root,) = struct.unpack_from("<I", table)
        header = _field(table, root, _HEADER)
        if header is None:
            raise ValueError("a message of Arrow's without a header")
        (offset,) = struct.unpack_from("<I", table, header)
        return _field(table, header + offset, _COMPRESSION) is not None
    except struct.error as error:
        raise ValueError(str(error)) from error


def _field(table: bytes, at: int, index: int) -> int | None:
    """Return the offset of a table's field, or None if the table lacks the field."""
    (back,) = struct.unpack_from("<i", table, at)
    fields = at - back
    if fields < 0:
        raise ValueError("a table of Arrow's that begins before its message")
    (size,) = struct.unpack_from("<H", table, fields)
    place = 4 + 2 * index
    if place + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", table, fields + place)
    return at + offset if offset else None
