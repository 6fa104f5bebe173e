"""A store of state in Cassandra: read at a version, or written under a new name.

The tables and the computations are the same as in the jar's `CassandraSession` and `CassandraHead`; tests
compare them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.errors import Invalid, Unavailable
from holdfast.external.cassandra_address import ADDRESS, CassandraAddress
from holdfast.external.cassandra_connection import CassandraConnection, open_cassandra
from holdfast.external.shared_state import SharedHead, StoreListing
from holdfast.external.store_port import (
    BUCKETS,
    StoreLook,
    bucket_of,
    by_bucket,
    gone,
    index_of,
    lacking,
    not_kept,
    note_of,
    require_layout,
    store_in_use,
)

# Higher than the timestamp of any step of an attempt.
DELETED: Final = 1 << 50
GRACE: Final = "gc_grace_seconds = 86400"
TABLES: Final[Mapping[str, str]] = {
    "state_head": (
        "(store text PRIMARY KEY, generation bigint, run text, retired frozen<list<text>>, reached bigint,"
        " next bigint, versions frozen<map<bigint, bigint>>, fields frozen<map<bigint, bigint>>,"
        " open frozen<set<bigint>>, dead frozen<map<bigint, bigint>>, unfolded frozen<set<bigint>>,"
        " undeleted frozen<set<bigint>>)"
    ),
    "state_rows": (
        "(store text, bucket int, field blob, attempt bigint, live boolean, value blob,"
        " present boolean static, PRIMARY KEY ((store, bucket), field, attempt))"
        " WITH CLUSTERING ORDER BY (field ASC, attempt DESC)"
        f" AND compaction = {{'class': 'LeveledCompactionStrategy'}} AND {GRACE}"
    ),
    "state_changes": (
        "(store text, attempt bigint, part int, fields blob, PRIMARY KEY ((store, attempt), part))"
        f" WITH {GRACE}"
    ),
    "state_stores": "(query text, store text, facts frozen<map<text, text>>, PRIMARY KEY (query, store))",
    "state_queries": "(query text PRIMARY KEY, batch_id bigint, run text, generation text)",
}


@dataclass(frozen=True, slots=True)
class AttemptLineage:
    """The attempts whose rows are visible at a version.

    Attributes:
        floor: The attempt up to which all attempts except dead ones are visible.
        dead: The dead attempts, as ascending ranges from first to last.
        attempts: The visible attempts after the floor.
        last: The last attempt whose rows must be read.
    """

    floor: int
    dead: Sequence[tuple[int, int]]
    attempts: frozenset[int]
    last: int

    def has(self, attempt: int) -> bool:
        """Return whether the rows of an attempt are visible."""
        if attempt > self.floor:
            return attempt in self.attempts
        at = bisect_right(self.dead, attempt, key=itemgetter(0))
        return at == 0 or attempt > self.dead[at - 1][1]


@dataclass(frozen=True, slots=True)
class CassandraHead:
    """The head of a store: its fields, in the order of the table's columns.

    Attributes:
        generation: A number that each change increases by one.
        run: The query run that may write to the store; empty before the first run.
        retired: The earlier runs, the latest first.
        reached: The version with which the run's newest batch began.
        next: The number of the last attempt.
        versions: The attempt that created each retained version, by version.
        fields: The number of fields of each version, by version.
        open: The attempts that may commit.
        dead: The dead attempts, which are not visible, as ranges from first to last.
        unfolded: The committed attempts whose replaced rows are not deleted yet.
        undeleted: The dead attempts whose rows are not deleted yet.
    """

    generation: int
    run: str
    retired: tuple[str, ...]
    reached: int
    next: int
    versions: Mapping[int, int]
    fields: Mapping[int, int]
    open: frozenset[int]
    dead: Mapping[int, int]
    unfolded: frozenset[int]
    undeleted: frozenset[int]

    @property
    def newest(self) -> int:
        """Return the newest version."""
        return max(self.versions)

    def lineage(self, version: int) -> AttemptLineage | None:
        """Return the attempts visible at a version, or None if the version no longer exists."""
        if version not in self.versions:
            return None
        until = frozenset(attempt for kept, attempt in self.versions.items() if kept <= version)
        dead = sorted(self.dead.items())
        return AttemptLineage(self.versions[min(self.versions)], dead, until, self.versions[version])

    def begun(self) -> CassandraHead:
        """Return an empty head with one open attempt; all earlier attempts are dead.

        Use it for a store that no query uses yet. The rows of earlier attempts must be found without the
        records of changes, which only Spark's state stores write.
        """
        return replace(
            self.emptied(),
            next=self.next + 1,
            open=frozenset({self.next + 1}),
            generation=self.generation + 1,
        )

    def emptied(self) -> CassandraHead:
        """Return a head with only the empty version; attempt numbers continue and are not reused."""
        return replace(
            EMPTY, generation=self.generation + 1, next=self.next, dead={1: self.next} if self.next else {}
        )

    def made(self, version: int, count: int) -> CassandraHead:
        """Return a head with one version, whose single attempt has all rows of the store."""
        return replace(
            self,
            generation=self.generation + 1,
            reached=version,
            versions={version: self.next},
            fields={version: count},
            open=frozenset(),
        )

    def values(self) -> list[Any]:
        """Return the values for the columns of the table."""
        return [_stored(getattr(self, name)) for name in COLUMNS]


COLUMNS: Final = tuple(field.name for field in fields(CassandraHead))
EMPTY: Final = CassandraHead(
    generation=1,
    run="",
    retired=(),
    reached=0,
    next=0,
    versions={0: 0},
    fields={0: 0},
    open=frozenset(),
    dead={},
    unfolded=frozenset(),
    undeleted=frozenset(),
)


def head_of(row: Iterable[Any]) -> CassandraHead:
    """Return the head for a row of the table; the client returns empty collections as None."""
    generation, run, retired, reached, last, versions, counts, open_, dead, unfolded, undeleted = row
    return CassandraHead(
        generation,
        run,
        tuple(retired or ()),
        reached,
        last,
        dict(versions or {}),
        dict(counts or {}),
        frozenset(open_ or ()),
        dict(dead or {}),
        frozenset(unfolded or ()),
        frozenset(undeleted or ()),
    )


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return set(value) if isinstance(value, frozenset) else value


_INDEX: Final = re.compile(r"(.*):\{([^/]+)/.*\}")
_SCANS: Final = [range(first, first + 8) for first in range(0, BUCKETS, 8)]
_WRITTEN_TOGETHER: Final = 20_000
_BATCH_ROWS: Final = 200
_BATCH_BYTES: Final = 64 << 10
# The number of attempts for a transaction that loses to others or whose answer does not arrive.
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

# A statement with its values.
_Statement = tuple[str, tuple[object, ...]]


class CassandraDatabase:
    """A keyspace of Cassandra as a `StateDatabase`; it may be used by several threads.

    Raises:
        Unsupported: The client library of Cassandra is not installed.
    """

    def __init__(self, address: CassandraAddress) -> None:
        self._connection = open_cassandra(address)

    def ping(self) -> None:
        """See `StateDatabase`."""
        with self._connection.asked(""):
            self._connection.run("SELECT key FROM system.local")

    def store(self, name: str) -> CassandraStore:
        """See `StateDatabase`."""
        return CassandraStore(self._connection, name)


class CassandraStore:
    """A store of state in Cassandra; see `ExternalStore`.

    Args:
        connection: The connection to the database, which may be shared.
        name: The name of the store.
    """

    def __init__(self, connection: CassandraConnection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.where = f"{connection.address}, store {name}"

    def look(self) -> StoreLook:
        """Return the store's versions, fields and size; see `ExternalStore`.

        The size is estimated from some rows, because Cassandra does not report it.
        """
        with self._connection.asked(self.name):
            head, encoder = self._read_head()
            sampled = self._in_buckets(_SAMPLE, range(BUCKETS))
            sizes = [len(field) + len(value) for rows in sampled for live, field, value in rows if live]
        size = sum(sizes) * head.fields[head.newest] // len(sizes) if sizes else 0
        return self._look(head, encoder, size)

    def scan(self, version: int) -> tuple[StoreLook, dict[bytes, bytes]]:
        """See `ExternalStore`."""
        with self._connection.asked(self.name):
            head, encoder = self._read_head()
            while True:
                lineage = head.lineage(version)
                if lineage is None:
                    raise not_kept("Cassandra", self.where, version, head.versions)
                fields, parts = self._fields(lineage)
                before, (head, encoder) = head, self._read_head()
                # The rows of a version are not deleted while it is retained. But a repeated batch writes its
                # version again, and may just have done so.
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
        """Create the store; see `ExternalStore`. The rows are one attempt, which is committed last."""
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
        """Delete the store; see `ExternalStore`.

        The head remains, without a version, because its attempt numbers ensure that rows of later attempts
        under this name do not count as deleted.
        """
        with self._connection.asked(self.name):
            if self._head(serially=True) is not None:
                emptied = self._change(lambda head: (head or EMPTY).emptied())
                self._delete_rows(before=emptied.next + 1)

    def _commit(self, head: CassandraHead | None, attempt: int, version: int, count: int) -> CassandraHead:
        if head is None or head.next != attempt:
            raise store_in_use("Cassandra", self.where)
        # If the answer to this change was lost, the change has been made.
        return head if version in head.versions else head.made(version, count)

    def _change(self, step: Callable[[CassandraHead | None], CassandraHead]) -> CassandraHead:
        """Change the head in a transaction, unless a query has begun to use the store.

        Raises:
            Conflict: A query has begun to use the store.
        """
        for _ in range(_TRIES):
            before = self._head(serially=True)
            if before is not None and before.run:
                raise store_in_use("Cassandra", self.where)
            after = step(before)
            if after is before:
                return after
            change, which = (_MAKE_HEAD, ()) if before is None else (_CHANGE_HEAD, (before.generation,))
            if self._connection.transact(change, *after.values(), self.name, *which):
                return after
        raise Unavailable(
            "Cassandra did not confirm a change of the store",
            code="HF-E5018",
            where=self.where,
            hint="repeat the command; no state was lost",
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
        """Delete the rows of the attempts before an attempt."""
        if before == 1:
            return
        for buckets in _SCANS:
            for rows in self._in_buckets(_ATTEMPTS, buckets):
                found: Iterator[Any] = (row for row in rows if row[1] is not None and row[2] < before)
                while some := list(islice(found, _BATCH_ROWS)):
                    self._connection.write_all([[(_DELETE, (self.name, *row)) for row in some]])

    def _fields(self, lineage: AttemptLineage) -> tuple[dict[bytes, bytes], int]:
        """Return all fields of a version, and the number of existing buckets of the store."""
        fields: dict[bytes, bytes] = {}
        parts = 0
        for buckets in _SCANS:
            for rows in self._in_buckets(_SCAN, buckets):
                there, last = False, None
                for field, attempt, live, value, present in rows:
                    there = there or present is True
                    # The newest row of a field comes first. A bucket without fields has one row with no
                    # field.
                    if field is None or field == last or not lineage.has(attempt):
                        continue
                    last = field
                    if live:
                        fields[field] = value
                parts += there
        return fields, parts

    def _in_buckets(self, cql: str, buckets: Iterable[int]) -> list[Any]:
        return self._connection.ask_all([(cql, (self.name, bucket)) for bucket in buckets])

    def _read_head(self) -> tuple[CassandraHead, str]:
        """Return the head of the store, and the encoder of its rows."""
        head = self._head()
        if head is None:
            raise gone(
                "Cassandra",
                self.where,
                hint=f"check the address, or set {ADDRESS}; if the tables were emptied, recover their data"
                " or restore a savepoint",
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
        """Create the missing tables.

        Raises:
            Invalid: The keyspace does not exist, or a table has a TTL.
        """
        address = self._connection.address
        with self._connection.asked(self.name):
            tables = dict(self._connection.run(_TABLES, address.keyspace))
            if not self._connection.run(_KEYSPACES, address.keyspace):
                raise Invalid(
                    f"the keyspace {address.keyspace} does not exist in Cassandra",
                    code="HF-E2198",
                    where=str(address),
                    hint=f"run CREATE KEYSPACE {address.keyspace} WITH replication ="
                    " {'class': 'NetworkTopologyStrategy', '<data center>': 3}, with the number of replicas"
                    " that you need",
                )
            for name, columns in TABLES.items():
                if tables.get(name):
                    raise Invalid(
                        f"the table {name} has a TTL, so Cassandra would delete state",
                        code="HF-E2199",
                        where=str(address),
                        found=f"default_time_to_live = {tables[name]}",
                        expected="default_time_to_live = 0",
                        hint=f"run ALTER TABLE {address.keyspace}.{name} WITH default_time_to_live = 0",
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
            hint="restore a savepoint; check whether nodes lack data or another client deletes rows",
        )


_STORES: Final = "SELECT store, facts['layout'] FROM @.state_stores WHERE query = ?"
_QUERY: Final = "SELECT batch_id, run, generation FROM @.state_queries WHERE query = ?"
_READ: Final = (
    "SELECT field, attempt, live, value FROM @.state_rows"
    " WHERE store = ? AND bucket = ? AND field IN ? AND attempt <= ?"
)
_FIELDS_TOGETHER: Final = 50


class CassandraReader:
    """A query's state in Cassandra; see `QueryReader`.

    Args:
        address: The address of the database.
        query_id: The id of the query.
        prefix: The prefix of all store names.

    Raises:
        Unsupported: The client library of Cassandra is not installed.
    """

    def __init__(self, address: CassandraAddress, query_id: str, prefix: str) -> None:
        self._connection = open_cassandra(address)
        self._index, self._query = index_of(prefix, query_id), note_of(prefix, query_id)
        self.place = str(address)
        self.query_id = query_id

    def listing(self) -> StoreListing:
        """See `QueryReader`."""
        with self._connection.asked(self._index):
            stores, query = self._connection.ask_all([(_STORES, [self._index]), (_QUERY, [self._query])])
            return StoreListing(tuple(name for name, _ in stores), _parse_head(query)[2])

    def facts(self, store: str) -> Mapping[str, str]:
        """See `QueryReader`."""
        with self._connection.asked(store):
            row = self._connection.ask(FACTS, self._index, store).one()
        return dict(row[0] or {}) if row else {}

    def moment(self, stores: Sequence[str]) -> CassandraMoment:
        """See `QueryReader`."""
        with self._connection.asked(self._index):
            query, listed, *found = self._connection.ask_all(
                [(_QUERY, [self._query]), (_STORES, [self._index]), *((HEAD, [name]) for name in stores)]
            )
            layouts = dict(listed)
            heads = [_first_head(rows) for rows in found]
        batch, run, generation = _parse_head(query)
        return CassandraMoment(
            self._connection,
            tuple(stores),
            tuple(heads),
            len(layouts),
            generation,
            None if run is None or batch is None else (run, batch),
            tuple(
                None
                if head is None
                else SharedHead(layouts.get(name) or "", head.run, head.reached, frozenset(head.retired))
                for name, head in zip(stores, heads, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True)
class CassandraMoment:
    """The state of a query and some of its stores in Cassandra at one moment; see `DatabaseMoment`."""

    _connection: CassandraConnection
    _names: tuple[str, ...]
    _found: tuple[CassandraHead | None, ...]
    stores: int
    generation: str
    noted: tuple[str, int] | None
    heads: tuple[SharedHead | None, ...]

    def read(self, version: int, fields: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """See `DatabaseMoment`."""
        asked = [
            (bucket, some[first : first + _FIELDS_TOGETHER])
            for bucket, some in by_bucket(fields).items()
            for first in range(0, len(some), _FIELDS_TOGETHER)
        ]
        lineages = [None if head is None else head.lineage(version) for head in self._found]
        questions = [
            (name, bucket, some, lineage)
            for name, lineage in zip(self._names, lineages, strict=True)
            if lineage is not None
            for bucket, some in asked
        ]
        if None in lineages:
            return None
        found: dict[bytes, bytes] = {}
        with self._connection.asked(self._names[0]):
            answers = self._connection.ask_all(
                [(_READ, [name, bucket, some, lineage.last]) for name, bucket, some, lineage in questions]
            )
            for (_, _, _, lineage), rows in zip(questions, answers, strict=True):
                seen: set[bytes] = set()
                for field, attempt, live, value in rows:
                    # The newest row of a field comes first.
                    if lineage.has(attempt) and field not in seen:
                        seen.add(field)
                        if live:
                            found[field] = value
            heads = self._connection.ask_all([(HEAD, [name]) for name in self._names])
            now = [_first_head(rows) for rows in heads]
        # The rows of a version are not deleted while it is retained, and a different version has a different
        # attempt.
        same = all(
            head is not None and head.versions.get(version) == lineage.last
            for head, lineage in zip(now, lineages, strict=True)
            if lineage is not None
        )
        return found if same else None


def _parse_head(rows: Any) -> tuple[int | None, str | None, str]:
    """Return the last committed batch, its run, and the generation of the stores in use."""
    row = rows.one()
    return (None, None, "") if row is None else (row[0], row[1], row[2] or "")


def _first_head(rows: Any) -> CassandraHead | None:
    row = rows.one()
    return None if row is None else head_of(row)
