"""The writes of shared rows: a claim by each start of the sink, and the rows of its batches.

Each start of a sink gets the next number. A row records the start and the batch that wrote it, and a row
of an older start, or of an older batch of the same start, never replaces it. So a batch that runs again
writes the same rows, and a late task of an older batch changes nothing. After a restore of an older
batch, the new start writes over the rows of later batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

import pyarrow as pa

from holdfast.errors import Conflict, Invalid, Unsupported
from holdfast.external.shared_rows import CASSANDRA_TABLES, ROWS_LAYOUT, row_key, rows_name
from holdfast.worker.state.cassandra_blobs import CassandraBlobServer, CassandraRequests, Request
from holdfast.worker.state.redis_blobs import RedisBlobServer, RedisRequests

# The number of rows in one round trip.
_TOGETHER: Final = 1_000
# How long Redis keeps the record of a deleted row, so that a late task does not write the row again.
_DELETED_S: Final = 7 * 86_400
# In Cassandra the timestamp of a row is the number of the start, shifted by these bits, plus the batch.
_BATCH_BITS: Final = 40

# Arguments: layout, key columns. Returns the number of the start, or what differs.
_CLAIM: Final = """local had = redis.call('HMGET', KEYS[1], 'layout', 'keys')
if had[1] and had[1] ~= ARGV[1] then return {'layout', had[1]} end
if had[2] and had[2] ~= ARGV[2] then return {'keys', had[2]} end
redis.call('HSET', KEYS[1], 'layout', ARGV[1], 'keys', ARGV[2])
return {'start', redis.call('HINCRBY', KEYS[1], 'start', 1)}
"""
# Arguments: start, batch, query. Returns the newest start.
_FINISH: Final = """local start = redis.call('HGET', KEYS[1], 'start')
if start == ARGV[1] then redis.call('HSET', KEYS[1], 'batch', ARGV[2], 'query', ARGV[3]) end
return start
"""
# Arguments: start, batch, and the row unless it is deleted.
_WRITE: Final = f"""local had = redis.call('HMGET', KEYS[1], 'start', 'batch')
local start, batch = tonumber(had[1] or '-1'), tonumber(had[2] or '-1')
local mine, now = tonumber(ARGV[1]), tonumber(ARGV[2])
if start > mine or (start == mine and batch > now) then return 0 end
redis.call('HSET', KEYS[1], 'start', ARGV[1], 'batch', ARGV[2])
if ARGV[3] then
  redis.call('HSET', KEYS[1], 'row', ARGV[3])
  redis.call('PERSIST', KEYS[1])
else
  redis.call('HDEL', KEYS[1], 'row')
  redis.call('EXPIRE', KEYS[1], {_DELETED_S})
end
return 1
"""

_HEAD: Final = "SELECT layout, keys, start FROM @.shared_tables WHERE name = ?"
_CREATE: Final = "INSERT INTO @.shared_tables (name, layout, keys, start) VALUES (?, ?, ?, 1) IF NOT EXISTS"
_NEXT: Final = "UPDATE @.shared_tables SET start = ? WHERE name = ? IF start = ?"
_NOTE: Final = "UPDATE @.shared_tables SET batch_id = ?, query = ? WHERE name = ? IF start = ?"
_INSERT: Final = "INSERT INTO @.shared_rows (name, key, row, batch_id) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
_DELETE: Final = "DELETE FROM @.shared_rows USING TIMESTAMP ? WHERE name = ? AND key = ?"


class RowTable(Protocol):
    """The rows of a name in a database, for writing; every request may be sent twice."""

    def claim(self, keys: str) -> int:
        """Return the number of a new start, higher than all before.

        Args:
            keys: The key columns as a JSON array.

        Raises:
            Invalid: The rows have other key columns.
            Unsupported: The rows were written by a different release.
        """

    def start(self) -> int | None:
        """Return the number of the newest start, or None if the rows were deleted."""

    def write(self, rows: Mapping[str, str | None], start: int, batch_id: int) -> None:
        """Write rows by key, None to delete one, unless a later batch or start has written the key."""

    def finish(self, start: int, batch_id: int, query_id: str) -> None:
        """Record that all rows of a batch are written, unless there is a later start."""


class RedisRowTable:
    """Rows in Redis; see `RowTable`.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """

    def __init__(self, server: RedisBlobServer, name: str) -> None:
        self._requests = RedisRequests(server, one_key=True)
        self._name = rows_name(server.prefix, name)
        self._where = f"{server}, rows {name}"

    def claim(self, keys: str) -> int:
        """See `RowTable`."""
        ((what, found),) = self._requests.ask([("EVAL", _CLAIM, 1, self._name, ROWS_LAYOUT, keys)])
        if bytes(what) != b"start":
            raise _differs(bytes(what).decode(), bytes(found).decode(), keys, self._where)
        return int(found)

    def start(self) -> int | None:
        """See `RowTable`."""
        (start,) = self._requests.ask([("HGET", self._name, "start")])
        return None if start is None else int(start)

    def write(self, rows: Mapping[str, str | None], start: int, batch_id: int) -> None:
        """See `RowTable`."""
        self._requests.ask(
            [
                ("EVAL", _WRITE, 1, f"{self._name}:{key}", start, batch_id, *(() if row is None else (row,)))
                for key, row in rows.items()
            ]
        )

    def finish(self, start: int, batch_id: int, query_id: str) -> None:
        """See `RowTable`."""
        self._requests.ask([("EVAL", _FINISH, 1, self._name, start, batch_id, query_id)])


class CassandraRowTable:
    """Rows in Cassandra; see `RowTable`.

    Raises:
        Unsupported: The client library of Cassandra is not installed.
    """

    def __init__(self, server: CassandraBlobServer, name: str) -> None:
        self._requests = CassandraRequests(server, tables=CASSANDRA_TABLES, statements=())
        self._name = rows_name(server.prefix, name)
        self._where = f"{server}, rows {name}"

    def claim(self, keys: str) -> int:
        """See `RowTable`."""
        while True:
            head = self._head()
            if head is None:
                start, claim = 1, Request(_CREATE, [(self._name, ROWS_LAYOUT, keys)])
            else:
                for what, found, ours in zip(("layout", "keys"), head, (ROWS_LAYOUT, keys), strict=False):
                    if found != ours:
                        raise _differs(what, str(found), keys, self._where)
                start = head[2] + 1
                claim = Request(_NEXT, [(start, self._name, head[2])])
            # If an answer is lost and the request sent again, it is not applied twice: the next number is
            # taken.
            if self._requests.ask([claim])[0][0][0]:
                return start

    def start(self) -> int | None:
        """See `RowTable`."""
        head = self._head()
        return None if head is None else head[2]

    def write(self, rows: Mapping[str, str | None], start: int, batch_id: int) -> None:
        """See `RowTable`."""
        at = (start << _BATCH_BITS) + batch_id
        self._requests.ask(
            [
                Request(_DELETE, [(at, self._name, key)])
                if row is None
                else Request(_INSERT, [(self._name, key, row, batch_id, at)])
                for key, row in rows.items()
            ]
        )

    def finish(self, start: int, batch_id: int, query_id: str) -> None:
        """See `RowTable`."""
        self._requests.ask([Request(_NOTE, [(batch_id, query_id, self._name, start)])])

    def _head(self) -> tuple[str, str, int] | None:
        (found,) = self._requests.ask([Request(_HEAD, [(self._name,)])])
        return found[0] if found else None


@cache
def row_table(server: RedisBlobServer | CassandraBlobServer, name: str) -> RowTable:
    """Return the rows of a name, with one connection per process.

    Raises:
        Unsupported: The client library of the database is not installed.
    """
    return (
        RedisRowTable(server, name)
        if isinstance(server, RedisBlobServer)
        else CassandraRowTable(server, name)
    )


@dataclass(frozen=True, slots=True)
class RowWriter:
    """A function that writes the rows of a task: key columns, the row as JSON, and whether it is deleted.

    Attributes:
        server: The address of the database.
        name: The name of the rows.
        start: The number of the sink's start.
        batch_id: The batch.
    """

    server: RedisBlobServer | CassandraBlobServer
    name: str
    start: int
    batch_id: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task and yield their number; of several rows of a key the last one counts."""
        table, count = row_table(self.server, self.name), 0
        rows: dict[str, str | None] = {}
        for batch in batches:
            count += batch.num_rows
            for *key, row, deleted in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                rows[row_key(key)] = None if deleted else row
                if len(rows) >= _TOGETHER:
                    table.write(rows, self.start, self.batch_id)
                    rows = {}
        if rows:
            table.write(rows, self.start, self.batch_id)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})


def superseded(name: str, start: int, newest: int | None) -> Conflict:
    """Return the error for a sink whose rows a later start has claimed."""
    return Conflict(
        "a later start has taken over the shared rows",
        code="HF-E4087",
        where=f"rows {name}",
        found="no record of the rows" if newest is None else f"start {newest}",
        expected=f"start {start}, the start of this query",
        hint="stop one of the two queries, or give one of them a different name: hf.sink(…, name=…)",
    )


def _differs(what: str, found: str, keys: str, where: str) -> Invalid | Unsupported:
    if what == "layout":
        return Unsupported(
            "the shared rows were written by a different release of Holdfast",
            code="HF-E7133",
            where=where,
            found=f"layout {found}",
            expected=f"layout {ROWS_LAYOUT}",
            hint="use that release, or give the rows a new name: hf.sink(…, name=…)",
        )
    return Invalid(
        "the rows of this name have other key columns",
        code="HF-E2550",
        where=where,
        found=f"keys={keys}",
        expected=f"keys={found}, as before",
        hint="keep the key columns and their order, or give the rows a new name: hf.sink(…, name=…)",
    )
