"""One store of state in Cassandra: read at a version, or made under a new name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.errors import Invalid, Unavailable
from holdfast.external.cassandra_head import (
    COLUMNS,
    DELETED,
    EMPTY,
    TABLES,
    CassandraHead,
    Lineage,
    head_of,
)
from holdfast.external.cassandra_place import ADDRESS, CassandraConnection, CassandraPlace
from holdfast.external.store_port import (
    BUCKETS,
    StoreLook,
    bucket_of,
    gone,
    index_of,
    lacking,
    not_kept,
    require_layout,
    taken,
)

_INDEX: Final = re.compile(r"(.*):\{([^/]+)/.*\}")
_SCANS: Final = [range(first, first + 8) for first in range(0, BUCKETS, 8)]
_WRITTEN_TOGETHER: Final = 20_000
_BATCH_ROWS: Final = 200
_BATCH_BYTES: Final = 64 << 10
# How often a transaction is tried that others are faster than, or whose answer does not come.
_TRIES: Final = 5

HEAD: Final = f"SELECT {', '.join(COLUMNS)} FROM @.state_head WHERE store = ?"  # noqa: S608 - names of columns
_MAKE_HEAD: Final = (
    f"INSERT INTO @.state_head ({', '.join(COLUMNS)}, store)"  # noqa: S608 - names of columns
    f" VALUES ({', '.join('?' * len(COLUMNS))}, ?) IF NOT EXISTS"
)
_CHANGE_HEAD: Final = (
    f"UPDATE @.state_head SET {', '.join(f'{name} = ?' for name in COLUMNS)}"  # noqa: S608 - names of columns
    " WHERE store = ? IF generation = ?"
)
_SCAN: Final = "SELECT field, attempt, live, value, present FROM @.state_rows WHERE store = ? AND bucket = ?"
_ATTEMPTS: Final = "SELECT bucket, field, attempt FROM @.state_rows WHERE store = ? AND bucket = ?"
_SAMPLE: Final = "SELECT live, field, value FROM @.state_rows WHERE store = ? AND bucket = ? LIMIT 1"
_MARK: Final = "UPDATE @.state_rows USING TIMESTAMP 1 SET present = true WHERE store = ? AND bucket = ?"
_WRITE: Final = (
    "INSERT INTO @.state_rows (store, bucket, field, attempt, live, value) VALUES (?, ?, ?, ?, true, ?)"
    " USING TIMESTAMP 1"
)
_DELETE: Final = (
    f"DELETE FROM @.state_rows USING TIMESTAMP {DELETED}"  # noqa: S608 - a number
    " WHERE store = ? AND bucket = ? AND field = ? AND attempt = ?"
)
_DESCRIBE: Final = "INSERT INTO @.state_stores (query, store, facts) VALUES (?, ?, ?)"
FACTS: Final = "SELECT facts FROM @.state_stores WHERE query = ? AND store = ?"
_KEYSPACES: Final = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
_TABLES: Final = "SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = %s"

# A statement with what goes into it.
_Statement = tuple[str, tuple[object, ...]]


class CassandraDatabase:
    """A keyspace of Cassandra, as `Database` has it; it may be used by several threads.

    Raises:
        Unsupported: The library is not installed.
    """

    def __init__(self, place: CassandraPlace) -> None:
        self._connection = place.connect()

    def ping(self) -> None:
        """See `Database`."""
        with self._connection.asked(""):
            self._connection.run("SELECT key FROM system.local")

    def store(self, name: str) -> CassandraStore:
        """See `Database`."""
        return CassandraStore(self._connection, name)


class CassandraStore:
    """A store of state in Cassandra.

    Args:
        connection: A session with the database; it may be shared.
        name: The store.
    """

    def __init__(self, connection: CassandraConnection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.where = f"{connection.place}, store {name}"

    def look(self) -> StoreLook:
        """See `ExternalStore`. The size is worked out from some rows: Cassandra tells no sum."""
        with self._connection.asked(self.name):
            head, encoder = self._known()
            sampled = self._in_buckets(_SAMPLE, range(BUCKETS))
            sizes = [len(field) + len(value) for rows in sampled for live, field, value in rows if live]
        size = sum(sizes) * head.fields[head.newest] // len(sizes) if sizes else 0
        return self._look(head, encoder, size)

    def scan(self, version: int) -> tuple[StoreLook, dict[bytes, bytes]]:
        """See `ExternalStore`."""
        with self._connection.asked(self.name):
            head, encoder = self._known()
            while True:
                lineage = head.lineage(version)
                if lineage is None:
                    raise not_kept("Cassandra", self.where, version, head.versions)
                fields, parts = self._fields(lineage)
                before, (head, encoder) = head, self._known()
                # What a version consists of is not cleaned while it is kept. A batch that runs again makes
                # its version anew, and may just have done so.
                if head.versions.get(version) == before.versions[version]:
                    break
        if head.newest and parts < BUCKETS:
            raise self._lacking(f"{parts} parts", f"{BUCKETS}")
        if len(fields) != head.fields[version]:
            raise self._lacking(f"{len(fields):,} fields", f"{head.fields[version]:,}")
        size = sum(len(field) + len(value) for field, value in fields.items())
        return self._look(head, encoder, size), fields

    def write(
        self, version: int, rows: Iterable[tuple[bytes, bytes]], facts: Mapping[str, str], index: str
    ) -> int:
        """See `ExternalStore`: an attempt of its own, as Spark's tasks have them, which is committed last."""
        self._make_tables()
        with self._connection.asked(self.name):
            mine = self._change(lambda head: (head or EMPTY).begun())
            self._delete_rows(before=mine.next)
            self._in_buckets(_MARK, range(BUCKETS))
            count = self._write_rows(mine.next, rows)
            self._connection.ask(_DESCRIBE, index, self.name, {**facts, "layout": EXTERNAL_LAYOUT})
            self._change(lambda head: self._commit(head, mine.next, version, count))
        return count

    def clear(self) -> None:
        """See `ExternalStore`.

        Its head stays, without a version: by its numbers no later attempt under this name has rows that count
        as deleted.
        """
        with self._connection.asked(self.name):
            if self._head(serially=True) is not None:
                emptied = self._change(lambda head: (head or EMPTY).emptied())
                self._delete_rows(before=emptied.next + 1)

    def _commit(self, head: CassandraHead | None, attempt: int, version: int, count: int) -> CassandraHead:
        if head is None or head.next != attempt:
            raise taken("Cassandra", self.where)
        # Where the answer to this very change was lost, it has been done.
        return head if version in head.versions else head.made(version, count)

    def _change(self, step: Callable[[CassandraHead | None], CassandraHead]) -> CassandraHead:
        """Change the head, which no query has begun on, by a transaction.

        Raises:
            Conflict: A query has.
        """
        for _ in range(_TRIES):
            before = self._head(serially=True)
            if before is not None and before.run:
                raise taken("Cassandra", self.where)
            after = step(before)
            if after is before:
                return after
            change, which = (_MAKE_HEAD, ()) if before is None else (_CHANGE_HEAD, (before.generation,))
            if self._connection.transact(change, *after.values(), self.name, *which):
                return after
        raise Unavailable(
            "Cassandra has not told whether a transaction was done",
            where=self.where,
            hint="begin again with the same command; nothing was lost",
        )

    def _write_rows(self, attempt: int, rows: Iterable[tuple[bytes, bytes]]) -> int:
        ordered, count = iter(rows), 0
        while some := list(islice(ordered, _WRITTEN_TOGETHER)):
            batches: list[list[_Statement]] = []
            buckets: dict[int, tuple[list[_Statement], int]] = {}
            for field, value in some:
                bucket, size = bucket_of(field), len(field) + len(value)
                batch, filled = buckets.get(bucket, ([], _BATCH_BYTES))
                if filled + size > _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
                    batch, filled = [], 0
                    batches.append(batch)
                batch.append((_WRITE, (self.name, bucket, field, attempt, value)))
                buckets[bucket] = batch, filled + size
            self._connection.write_all(batches)
            count += len(some)
        return count

    def _delete_rows(self, before: int) -> None:
        """Delete what attempts before this one have written."""
        if before == 1:
            return
        for buckets in _SCANS:
            for rows in self._in_buckets(_ATTEMPTS, buckets):
                found: Iterator[Any] = (row for row in rows if row[1] is not None and row[2] < before)
                while some := list(islice(found, _BATCH_ROWS)):
                    self._connection.write_all([[(_DELETE, (self.name, *row)) for row in some]])

    def _fields(self, lineage: Lineage) -> tuple[dict[bytes, bytes], int]:
        """All fields of a version, and how many parts of the store are there."""
        fields: dict[bytes, bytes] = {}
        parts = 0
        for buckets in _SCANS:
            for rows in self._in_buckets(_SCAN, buckets):
                there, last = False, None
                for field, attempt, live, value, present in rows:
                    there = there or present is True
                    # The newest row of a field comes first. A part without fields has one row that has none.
                    if field is None or field == last or not lineage.has(attempt):
                        continue
                    last = field
                    if live:
                        fields[field] = value
                parts += there
        return fields, parts

    def _in_buckets(self, cql: str, buckets: Iterable[int]) -> list[Any]:
        return self._connection.ask_all([(cql, (self.name, bucket)) for bucket in buckets])

    def _known(self) -> tuple[CassandraHead, str]:
        """The head, and how rows lie in fields."""
        head = self._head()
        if head is None:
            raise gone(
                "Cassandra",
                self.where,
                hint=f"see that the address is right, or set {ADDRESS}; if the tables were emptied, bring"
                " their data back or restore a savepoint",
            )
        index = _INDEX.fullmatch(self.name)
        listed = index_of(index[1], index[2]) if index else ""
        noted = self._connection.ask(FACTS, listed, self.name).one()
        facts = (noted[0] if noted else None) or {}
        require_layout(facts.get("layout", ""), self.where)
        return head, facts.get("encoder", "")

    def _head(self, *, serially: bool = False) -> CassandraHead | None:
        row = self._connection.ask(HEAD, self.name, serially=serially).one()
        return None if row is None else head_of(row)

    def _make_tables(self) -> None:
        """Make the tables that are not there.

        Raises:
            Invalid: There is no keyspace, or a table deletes what is in it.
        """
        place = self._connection.place
        with self._connection.asked(self.name):
            tables = dict(self._connection.run(_TABLES, place.keyspace))
            if not self._connection.run(_KEYSPACES, place.keyspace):
                raise Invalid(
                    f"there is no keyspace {place.keyspace} in Cassandra",
                    where=str(place),
                    hint=f"run CREATE KEYSPACE {place.keyspace} WITH replication ="
                    " {'class': 'NetworkTopologyStrategy', '<data center>': 3} there, with as many copies as"
                    " it shall have",
                )
            for name, columns in TABLES.items():
                if tables.get(name):
                    raise Invalid(
                        f"Cassandra deletes what is in the table {name}, and state would be lost",
                        where=str(place),
                        found=f"default_time_to_live = {tables[name]}",
                        expected="0",
                        hint=f"run ALTER TABLE {place.keyspace}.{name} WITH default_time_to_live = 0 there",
                    )
                if name not in tables:
                    self._connection.run(f"CREATE TABLE IF NOT EXISTS @.{name} {columns}")

    @staticmethod
    def _look(head: CassandraHead, encoder: str, size: int) -> StoreLook:
        return StoreLook(head.newest, head.fields[head.newest], size, encoder, head.versions)

    def _lacking(self, found: str, expected: str) -> Exception:
        return lacking(
            "Cassandra",
            self.where,
            found=found,
            expected=expected,
            hint="restore a savepoint; see whether nodes lack data, or something else deletes rows there",
        )
