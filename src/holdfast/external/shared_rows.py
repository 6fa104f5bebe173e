"""Rows of a query in Redis or Cassandra, one per key, in a format for readers in any language.

The rows of a name are written by one sink, `hf.sink(…).share(…)`, and read here without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.errors import Corrupt, Invalid, NotFound, Unsupported
from holdfast.external.cassandra_address import CassandraAddress
from holdfast.external.cassandra_connection import open_cassandra
from holdfast.external.redis_connection import RedisAddress, open_redis
from holdfast.external.shared_state import SharedRow

# The version of the format of rows.
ROWS_LAYOUT: Final = "1"
# The types of key columns: those with one text as JSON in all languages.
KEY_TYPES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint")

CASSANDRA_TABLES: Final[Mapping[str, str]] = {
    "shared_tables": (
        "(name text PRIMARY KEY, layout text, keys text, start bigint, batch_id bigint, query text)"
    ),
    "shared_rows": "(name text, key text, row text, batch_id bigint, PRIMARY KEY ((name, key)))",
}
_HEAD: Final = "SELECT layout, keys, batch_id FROM @.shared_tables WHERE name = ?"
_ROW: Final = "SELECT row, batch_id FROM @.shared_rows WHERE name = ? AND key = ?"


def row_key(values: Sequence[Any]) -> str:
    """Return the text that identifies a key: its values as a JSON array without spaces."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def rows_name(prefix: str, name: str) -> str:
    """Return the name of the rows in the database; in Redis, their keys begin with it."""
    return f"{prefix}:rows:{name}"


@dataclass(frozen=True, slots=True)
class RowsHead:
    """The description of the rows of a name.

    Attributes:
        layout: The version of the format.
        keys: The key columns as a JSON array.
        batch_id: The newest batch with all rows written, or None before the first.
    """

    layout: str
    keys: str
    batch_id: int | None


class RowsReader(Protocol):
    """A reader of rows in a database; its methods raise Unavailable and Invalid as stores do."""

    @property
    def where(self) -> str:
        """Return the address and the name of the rows."""

    def head(self) -> RowsHead | None:
        """Return the description of the rows, or None if no query has written them."""

    def rows(self, keys: Sequence[str]) -> list[tuple[str, int] | None]:
        """Return the JSON and the batch of each row, in the order of the keys; None for a missing one."""


class RedisRowsReader:
    """The rows of a name in Redis; see `RowsReader`.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """

    def __init__(self, address: RedisAddress, name: str, prefix: str) -> None:
        self._connection = open_redis(address)
        self._name = rows_name(prefix, name)
        self.where = f"{address}, rows {name}"

    def head(self) -> RowsHead | None:
        """See `RowsReader`."""
        with self._connection.asked(self._name):
            found = self._connection.routed().hmget(self._name, "layout", "keys", "batch")
        layout, keys, batch = (None if value is None else bytes(value).decode() for value in found)
        return None if layout is None else RowsHead(layout, keys or "", None if batch is None else int(batch))

    def rows(self, keys: Sequence[str]) -> list[tuple[str, int] | None]:
        """See `RowsReader`."""
        with self._connection.asked(self._name):
            pipeline = self._connection.routed().pipeline(transaction=False)
            for key in keys:
                pipeline.hmget(f"{self._name}:{key}", "row", "batch")
            found = pipeline.execute()
        return [None if row is None else (bytes(row).decode(), int(batch)) for row, batch in found]


class CassandraRowsReader:
    """The rows of a name in Cassandra; see `RowsReader`.

    Raises:
        Unsupported: The client library of Cassandra is not installed.
    """

    def __init__(self, address: CassandraAddress, name: str, prefix: str) -> None:
        self._connection = open_cassandra(address)
        self._name = rows_name(prefix, name)
        self.where = f"{address}, rows {name}"

    def head(self) -> RowsHead | None:
        """See `RowsReader`."""
        with self._connection.asked(self._name):
            found = self._connection.ask(_HEAD, self._name).one()
        return None if found is None else RowsHead(*found)

    def rows(self, keys: Sequence[str]) -> list[tuple[str, int] | None]:
        """See `RowsReader`."""
        with self._connection.asked(self._name):
            found = self._connection.ask_all([(_ROW, [self._name, key]) for key in keys])
        return [result.one() for result in found]


class SharedRows:
    """The rows that a query shares by key, read-only.

    It is returned by `hf.shared.redis_rows` and `hf.shared.cassandra_rows`. Each row is complete and from one
    batch; rows of different keys may be from different batches.

    Args:
        reader: The reader of the rows.

    Raises:
        NotFound: No query has shared rows under this name.
        Invalid: The database rejected the credentials.
        Unsupported: The rows were written by a different release.
        Unavailable: The database does not answer.

    Example:
        def count_visits(customers: list[str]) -> dict[str, int]:
            visits: hf.shared.SharedRows = hf.shared.redis_rows("redis.example:6379", "visits")
            rows = visits.rows_of_keys([{"customer": customer} for customer in customers])
            return {row.key["customer"]: row.value["visits"] for row in rows if row is not None}
    """

    def __init__(self, reader: RowsReader) -> None:
        self._reader = reader
        self.where = reader.where
        self.key_columns: tuple[str, ...] = tuple(json.loads(self._head().keys))

    @property
    def batch_id(self) -> int | None:
        """Return the newest batch with all rows written, or None before the first one."""
        return self._head().batch_id

    def get(self, *key: Any, **columns: Any) -> SharedRow | None:
        """Return the row of a key, given by its columns in order or by name, or None if the key has no row.

        A call takes one request.

        Raises:
            Invalid: The columns do not match the key.
            Corrupt: The row is not a JSON object.
            Unavailable: The database does not answer.
        """
        given = {**dict(zip(self.key_columns, key, strict=False)), **columns}
        if len(key) > len(self.key_columns):
            raise self._wrong_key(f"{len(key)} values")
        return self.rows_of_keys([given])[0]

    def rows_of_keys(self, keys: Sequence[Mapping[str, Any]]) -> list[SharedRow | None]:
        """Return the row of each key, in order, or None for a key without a row.

        Raises:
            Invalid: The columns do not match the key.
            Corrupt: A row is not a JSON object.
            Unavailable: The database does not answer.
        """
        for key in keys:
            if set(key) != set(self.key_columns):
                raise self._wrong_key(", ".join(map(str, key)) or "no column")
        texts = [row_key([key[name] for name in self.key_columns]) for key in keys]
        found = self._reader.rows(texts) if texts else []
        return [
            None if row is None else self._decoded(text, *row) for text, row in zip(texts, found, strict=True)
        ]

    def _decoded(self, key: str, row: str, batch_id: int) -> SharedRow:
        try:
            values = json.loads(row)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise Corrupt(
                "a shared row is not a JSON object",
                code="HF-E6064",
                where=f"{self.where}, key {key}",
                found=row[:80],
                hint="check that no other program writes rows of this name; the query writes the row again"
                " when the key changes",
            )
        named = {name: values.pop(name, None) for name in self.key_columns}
        return SharedRow(named, values, batch_id)

    def _head(self) -> RowsHead:
        head = self._reader.head()
        if head is None:
            raise NotFound(
                "no query has shared rows under this name",
                code="HF-E3073",
                where=self.where,
                hint="check the address, the name and the prefix; the query creates the name when it starts"
                " with hf.sink(…, name=…).share(…)",
            )
        if head.layout != ROWS_LAYOUT:
            raise Unsupported(
                "the shared rows were written by a different release of Holdfast",
                code="HF-E7133",
                where=self.where,
                found=f"layout {head.layout}",
                expected=f"layout {ROWS_LAYOUT}",
                hint="use the release of Holdfast that the query runs with",
            )
        return head

    def _wrong_key(self, found: str) -> Invalid:
        return Invalid(
            "the given columns do not match the key of the shared rows",
            code="HF-E2546",
            where=self.where,
            found=found,
            expected=", ".join(self.key_columns),
            hint="pass each key column once, by position or by name",
        )
