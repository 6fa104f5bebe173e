"""The interface of a database with state.

A row is a key and a value, each an UnsafeRow, as in the memory provider. The field for rows with a common
prefix contains for each row the length of the key, the key, the length of the value, and the value.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.errors import Conflict, Corrupt, NotFound, Unsupported
from holdfast.formats.text import damaged

PLAIN: Final = "plain"
_PREFIX: Final = "prefix:"
_LENGTH: Final = struct.Struct(">i")


def prefixed(columns: int) -> str:
    """Return the name of the encoder that groups rows by this number of leading key columns."""
    return f"{_PREFIX}{columns}"


def prefix_columns(encoder: str, where: str) -> int:
    """Return the number of key columns by which rows are grouped; 0 if each row is a field.

    Raises:
        Unsupported: The encoder is unknown.
    """
    number = encoder.removeprefix(_PREFIX)
    if encoder == PLAIN:
        return 0
    if encoder.startswith(_PREFIX) and number.isascii() and number.isdigit():
        return int(number)
    raise Unsupported(
        "the store has an unknown row encoding",
        code="HF-E7059",
        where=where,
        found=f"encoder {encoder}" if encoder else "no recorded encoding",
        expected=f"{PLAIN}, or {_PREFIX}N",
        hint="upgrade Holdfast if the query runs with a newer release; otherwise run one batch of the query"
        " with this release",
    )


def rows_of(fields: Mapping[bytes, bytes], encoder: str, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a store's fields.

    Raises:
        Corrupt: The value of a field is malformed.
        Unsupported: The encoder is unknown.
    """
    if not prefix_columns(encoder, where):
        yield from fields.items()
        return
    for packed in fields.values():
        parts = _parts(packed, where)
        yield from zip(parts, parts, strict=True)


def packed(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the value of the field for these rows."""
    return b"".join(part for row in rows for cell in row for part in (_LENGTH.pack(len(cell)), cell))


def _parts(data: bytes, where: str) -> Iterator[bytes]:
    at, count = 0, 0
    while at < len(data):
        size = _LENGTH.unpack_from(data, at)[0] if at + _LENGTH.size <= len(data) else -1
        at += _LENGTH.size
        if size < 0 or at + size > len(data):
            raise damaged("a field of state", where, f"a row that ends beyond its {len(data):,} bytes")
        yield data[at : at + size]
        at, count = at + size, count + 1
    if count % 2:
        raise damaged("a field of state", where, "a key without a value")


# The number of buckets of a store's fields, which is the same in the jar.
BUCKETS: Final = 64


@dataclass(frozen=True, slots=True)
class StoreLook:
    """The description of a store in a database.

    Attributes:
        newest: The newest version.
        fields: The number of fields in the newest version.
        size_bytes: The approximate size of these fields in the database, in bytes.
        encoder: The encoding of rows in fields: `plain`, or `prefix:` and a number of key columns.
        attempts: The attempt that wrote each retained version, by version.
    """

    newest: int
    fields: int
    size_bytes: int
    encoder: str
    attempts: Mapping[int, int]


class ExternalStore(Protocol):
    """A store of state: fields with values, in versions; a query may use the store at the same time.

    All methods raise Unavailable if the database does not answer, and Invalid if it rejects the credentials.
    """

    @property
    def name(self) -> str:
        """Return the name of the store in the database."""

    @property
    def where(self) -> str:
        """Return the database and the name of the store, for error messages."""

    def look(self) -> StoreLook:
        """Return the store's versions, fields and size, in a few requests for any size.

        Raises:
            Corrupt: The store does not exist.
            Unsupported: The store was written by a different release.
        """

    def scan(self, version: int) -> tuple[StoreLook, dict[bytes, bytes]]:
        """Return all fields at a version, and the description of the store.

        The complete store is read into memory.

        Raises:
            NotFound: The store does not have the version.
            Corrupt: Part of the store is missing.
            Unsupported: The store was written by a different release.
        """

    def write(
        self, version: int, rows: Iterable[tuple[bytes, bytes]], facts: Mapping[str, str], index: str
    ) -> int:
        """Create the store under a name that no query has used; the commit is written last.

        Data of an earlier, unused attempt is replaced. After a killed call, the call may be repeated.

        Args:
            version: The version of the new store.
            rows: The fields with their values, each field once.
            facts: The description of the rows: `keySchema`, `valueSchema` and `encoder`.
            index: The name of the list of the query's stores.

        Returns:
            The number of fields written.

        Raises:
            Conflict: A query uses the store.
        """

    def clear(self) -> None:
        """Delete the store, unless a query has begun to use it.

        Raises:
            Conflict: A query has begun to use the store.
        """


class StateDatabase(Protocol):
    """A database with stores; creating the object sends no request."""

    def ping(self) -> None:
        """Check that the database answers.

        Raises:
            Unavailable: The database does not answer.
            Invalid: The database rejects the credentials.
        """

    def store(self, name: str) -> ExternalStore:
        """Return a store, which need not exist."""


def bucket_of(field: bytes) -> int:
    """Return the number of the bucket, a part of a store, with a field."""
    return zlib.crc32(field) % BUCKETS


def by_bucket(fields: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Group fields by the number of their bucket, without duplicates."""
    buckets: dict[int, list[bytes]] = {}
    for field in dict.fromkeys(fields):
        buckets.setdefault(bucket_of(field), []).append(field)
    return buckets


def index_of(prefix: str, query_id: str) -> str:
    """Return the key under which all stores of a query are listed."""
    return f"{prefix}:stores:{query_id}"


def note_of(prefix: str, query_id: str) -> str:
    """Return the key with the newest committed batch of a query."""
    return f"{prefix}:query:{query_id}"


def gone(database: str, where: str, hint: str) -> Corrupt:
    """Return the error for a missing store."""
    return Corrupt(
        f"the store that the checkpoint names is missing from {database}",
        code="HF-E6021",
        where=where,
        hint=hint,
    )


def require_layout(layout: str, where: str) -> None:
    """Check that this release supports the layout of a store.

    Raises:
        Unsupported: The layout is unknown.
    """
    if layout != EXTERNAL_LAYOUT:
        raise Unsupported(
            "the state was written by a different release of Holdfast",
            code="HF-E7060",
            where=where,
            found=f"layout {layout or 'unknown'}",
            expected=f"layout {EXTERNAL_LAYOUT}",
            hint="use the release of Holdfast that the query runs with, or run one batch of the query with"
            " this release",
        )


def not_kept(database: str, where: str, version: int, kept: Iterable[int]) -> NotFound:
    """Return the error for a version that the store does not have."""
    there = sorted(kept)
    return NotFound(
        f"{database} does not have this version of the state",
        code="HF-E3041",
        where=where,
        found=f"versions {there[0]} to {there[-1]}" if there else "no versions",
        expected=f"version {version}, written by batch {version - 1}",
        hint=f"choose a batch that is kept; hf.{database}(retain=…) sets the number of kept batches",
    )


def lacking(database: str, where: str, found: str, expected: str, hint: str) -> Corrupt:
    """Return the error for a store with a missing part."""
    return Corrupt(
        f"the state in {database} is damaged: rows were deleted outside Holdfast",
        code="HF-E6022",
        where=where,
        found=found,
        expected=expected,
        hint=hint,
    )


def store_in_use(database: str, where: str) -> Conflict:
    """Return the error for a store that a query uses."""
    return Conflict(
        f"a query already uses a store of this name in {database}",
        code="HF-E4013",
        where=where,
        hint="choose a new directory for the checkpoint; Holdfast does not overwrite a store",
    )
