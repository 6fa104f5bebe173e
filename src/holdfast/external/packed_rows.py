"""How rows of state lie in the fields of an external store: each in one, or all with one prefix of their key.

A row is a key and a value, each an UnsafeRow, as the memory provider has them. A field of rows with one
prefix holds, row by row, the length of the key, the key, the length of the value, and the value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from holdfast.errors import Unsupported
from holdfast.formats.text import damaged

PLAIN: Final = "plain"
_PREFIX: Final = "prefix:"
_LENGTH: Final = struct.Struct(">i")


def prefixed(columns: int) -> str:
    """The encoder of rows that lie together by so many first columns of their keys."""
    return f"{_PREFIX}{columns}"


def prefix_columns(encoder: str, where: str) -> int:
    """By how many columns rows lie together; 0 where each is a field.

    Raises:
        Unsupported: The encoder is not known here.
    """
    number = encoder.removeprefix(_PREFIX)
    if encoder == PLAIN:
        return 0
    if encoder.startswith(_PREFIX) and number.isascii() and number.isdigit():
        return int(number)
    raise Unsupported(
        "how rows lie in this store is not known",
        where=where,
        found=f"encoder {encoder}" if encoder else "a store that does not say it",
        expected=f"{PLAIN}, or {_PREFIX}N",
        hint="let the query run a batch with this release of Holdfast, or upgrade it",
    )


def rows_of(fields: Mapping[bytes, bytes], encoder: str, where: str) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a store's fields.

    Raises:
        Corrupt: A field is damaged.
        Unsupported: The encoder is not known here.
    """
    if not prefix_columns(encoder, where):
        yield from fields.items()
        return
    for packed in fields.values():
        parts = _parts(packed, where)
        yield from zip(parts, parts, strict=True)


def packed(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The value of a field that holds these rows."""
    return b"".join(part for row in rows for cell in row for part in (_LENGTH.pack(len(cell)), cell))


def _parts(data: bytes, where: str) -> Iterator[bytes]:
    at, count = 0, 0
    while at < len(data):
        size = _LENGTH.unpack_from(data, at)[0] if at + _LENGTH.size <= len(data) else -1
        at += _LENGTH.size
        if size < 0 or at + size > len(data):
            raise damaged("a field of state", where, f"a row that ends behind its {len(data):,} bytes")
        yield data[at : at + size]
        at, count = at + size, count + 1
    if count % 2:
        raise damaged("a field of state", where, "a key without a value")
