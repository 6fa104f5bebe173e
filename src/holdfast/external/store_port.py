"""The interface of a database that holds state.

A row is a key and a value, each an UnsafeRow, as the memory provider has them. A field of rows with one
prefix holds, row by row, the length of the key, the key, the length of the value, and the value.
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
        code="HF-E7059",
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


# How many parts the fields of a store are divided into; the jar has the same number.
BUCKETS: Final = 64


@dataclass(frozen=True, slots=True)
class StoreLook:
    """A database's data on a store.

    Attributes:
        newest: The newest version.
        fields: How many fields that has.
        size_bytes: About how much room they take there.
        encoder: How rows lie in fields: `plain`, or `prefix:` and a number of columns.
        attempts: The attempt that made each version that is kept.
    """

    newest: int
    fields: int
    size_bytes: int
    encoder: str
    attempts: Mapping[int, int]


class ExternalStore(Protocol):
    """One store of state: fields with values, in versions. A query may use it meanwhile.

    All methods raise Unavailable where the database does not answer, and Invalid where it does not let us in.
    """

    @property
    def name(self) -> str:
        """Its name there."""

    @property
    def where(self) -> str:
        """Database and name, for messages."""

    def look(self) -> StoreLook:
        """Look at the store. Cost: a few requests, whatever the size.

        Raises:
            Corrupt: The store does not exist.
            Unsupported: It is of another release.
        """

    def scan(self, version: int) -> tuple[StoreLook, dict[bytes, bytes]]:
        """All fields at a version, with what is said of the store.

        Cost: the whole store is read and held in memory.

        Raises:
            NotFound: The version is not kept.
            Corrupt: Some of it is gone.
            Unsupported: It is of another release.
        """

    def write(
        self, version: int, rows: Iterable[tuple[bytes, bytes]], facts: Mapping[str, str], index: str
    ) -> int:
        """Make the store, under a name that no query has used; what makes it count is written last.

        What an earlier try has left, that no query has begun on, does not count any more. Killed, it may be
        called again.

        Args:
            version: The version that it is to be at.
            rows: Fields with their values; no field twice.
            facts: What the rows are: `keySchema`, `valueSchema` and `encoder`.
            index: What lists the query's stores.

        Returns:
            How many fields there are.

        Raises:
            Conflict: A query uses it.
        """

    def clear(self) -> None:
        """Delete the store, which no query has begun on.

        Raises:
            Conflict: A query has.
        """


class StateDatabase(Protocol):
    """A database with stores. Nothing is sent before something is asked."""

    def ping(self) -> None:
        """See that it answers.

        Raises:
            Unavailable: It does not.
            Invalid: It does not let us in.
        """

    def store(self, name: str) -> ExternalStore:
        """One of its stores; it need not be there."""


def bucket_of(field: bytes) -> int:
    """The part of a store that a field is in."""
    return zlib.crc32(field) % BUCKETS


def by_bucket(fields: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Fields by the part of a store that they are in, each once."""
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
    """The error for a store that is missing."""
    return Corrupt(
        f"the state is not in {database}",
        code="HF-E6021",
        where=where,
        found="no such store",
        expected="the one that the checkpoint names",
        hint=hint,
    )


def require_layout(layout: str, where: str) -> None:
    """See that a store lies there as this release knows it.

    Raises:
        Unsupported: It does not.
    """
    if layout != EXTERNAL_LAYOUT:
        raise Unsupported(
            "the state is of another release of Holdfast",
            code="HF-E7060",
            where=where,
            found=f"layout {layout or 'unknown'}",
            expected=f"layout {EXTERNAL_LAYOUT}",
            hint="let the query run a batch with this release, or use the release that it runs with",
        )


def not_kept(database: str, where: str, version: int, kept: Iterable[int]) -> NotFound:
    """The error for a version that is gone, or was never made."""
    there = sorted(kept)
    return NotFound(
        f"{database} does not keep this version of the state any more",
        code="HF-E3041",
        where=where,
        found=f"versions {there[0]} to {there[-1]}" if there else "none",
        expected=f"version {version}, which batch {version - 1} made",
        hint=f"name a newer batch; hf.{database}(retain=…) says how many are kept",
    )


def lacking(database: str, where: str, found: str, expected: str, hint: str) -> Corrupt:
    """The error for a store that lacks a part."""
    return Corrupt(
        f"state in {database} is damaged: something else has deleted a part of it",
        code="HF-E6022",
        where=where,
        found=found,
        expected=expected,
        hint=hint,
    )


def store_in_use(database: str, where: str) -> Conflict:
    """The error for a store that is not to be made or deleted."""
    return Conflict(
        f"{database} has a store of this name, and a query uses it",
        code="HF-E4013",
        where=where,
        hint="name a new directory; a store is never overwritten",
    )
