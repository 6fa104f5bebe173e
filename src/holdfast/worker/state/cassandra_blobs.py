"""The storage of blobs of keyed state in Cassandra, in two tables that are created if missing.

`keyed_blobs` has a partition for each blob, split into rows so that no request is large. A blob is written
with the timestamp 1 and deleted with the timestamp 2, so a late write stays deleted, independent of clocks.

`keyed_index` has a partition for each key group. An entry is a row with a batch and a name and never replaces
a different entry: the highest batch of a name counts, whatever the order of writes. So all entries before a
batch are deleted as one range, which leaves one tombstone; one tombstone per blob would soon exceed the limit
of a read. The range is deleted with the timestamp of the newest entry read in it. An entry that a late task
writes after that is kept, and a later fold deletes its blob. If the clock of a node is behind, the entry may
be lost, and its blob is never deleted. Nothing else depends on clocks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from holdfast.errors import Invalid
from holdfast.external.cassandra_address import CassandraAddress
from holdfast.external.cassandra_connection import CassandraConnection, CassandraLimits, CassandraSession
from holdfast.worker.state.blob_store import (
    LONGEST_PAUSE_S,
    BlobName,
    BlobWrites,
    ReplacedBlobs,
    RetryPatience,
    blob_key,
)

_PORT: Final = 9042
# A blob is written and read in rows of this many bytes.
_PART: Final = 256 << 10
# The number of concurrent requests, and the number of index entries in one request.
_UNDER_WAY: Final = 64
_NOTES: Final = 500
# The maximum wait for an answer; longer than the timeout of a Cassandra node.
_SILENCE_S: Final = 10.0
# The maximum time to open a connection.
_CONNECT_S: Final = 5.0
# The interval of heartbeats on connections: without them, the client does not detect a connection that ends
# during an answer.
_HEARTBEAT_S: Final = 2
# The protocol version that all servers since 3.0 support.
_PROTOCOL: Final = 4

_TABLES: Final = {
    "keyed_blobs": """(key text, part int, bytes blob, PRIMARY KEY (key, part))
        WITH compaction = {'class': 'LeveledCompactionStrategy'} AND gc_grace_seconds = 86400""",
    "keyed_index": """(home text, key_group int, batch_id bigint, name text, noted boolean,
        PRIMARY KEY ((home, key_group), batch_id, name)) WITH gc_grace_seconds = 86400""",
}
_NOTE: Final = "INSERT INTO @.keyed_index (home, key_group, batch_id, name, noted) VALUES (?, ?, ?, ?, true)"
_READ_NOTES: Final = (
    "SELECT name, batch_id, WRITETIME(noted) FROM @.keyed_index WHERE home = ? AND key_group = ?"
)
_DELETE_NOTES: Final = (
    "DELETE FROM @.keyed_index USING TIMESTAMP ? WHERE home = ? AND key_group = ? AND batch_id < ?"
)
_WRITE: Final = "INSERT INTO @.keyed_blobs (key, part, bytes) VALUES (?, ?, ?) USING TIMESTAMP 1"
_READ: Final = "SELECT bytes FROM @.keyed_blobs WHERE key = ? AND part = ?"
_DELETE: Final = "DELETE FROM @.keyed_blobs USING TIMESTAMP 2 WHERE key = ?"
_STATEMENTS: Final = (_NOTE, _READ_NOTES, _DELETE_NOTES, _WRITE, _READ, _DELETE)


@dataclass(frozen=True, slots=True)
class CassandraBlobServer(CassandraAddress):
    """The address of a Cassandra cluster for blobs, with options.

    Attributes:
        replication: The number of replicas in the data center for a keyspace that must be created, or None.
        prefix: The prefix of all keys.
        patience_ms: The maximum time in milliseconds for retrying a request.
    """

    replication: int | None = None
    prefix: str = "holdfast"
    patience_ms: int = 60_000

    product: ClassVar[str] = "Cassandra"

    def connect(self) -> CassandraBlobs:
        """Return a new connection, which is opened at its first request.

        Raises:
            Unsupported: The client library of Cassandra is not installed.
        """
        return CassandraBlobs(CassandraRequests(self))

    def described(self) -> dict[str, Any]:
        """Return the fields of the address for an operator's note, without the password."""
        described = {
            "contact_points": self.contact_points,
            "keyspace": self.keyspace,
            "local_datacenter": self.local_datacenter,
            "user": self.user,
            "tls": self.tls,
            "authorities": self.authorities,
            "consistency": self.consistency,
        }
        return {name: value for name, value in described.items() if value is not None}


class Request(NamedTuple):
    """A repeatable statement, for one row or several rows of a partition."""

    statement: str
    rows: Sequence[Sequence[Any]]


class CassandraBlobs:
    """The blobs in a Cassandra cluster; see `BlobDatabase`.

    Args:
        requests: The connection that sends the requests.
    """

    product: ClassVar[str] = CassandraBlobServer.product

    def __init__(self, requests: CassandraRequests) -> None:
        self.requests = requests

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Record names; then write the blobs and, at the same time, read which blobs can be deleted."""
        notes = [
            Request(_NOTE, [(home, group, writes.batch_id, name) for name in some])
            for group, names in writes.noted.items()
            for some in _batched(names, _NOTES)
        ]
        self.requests.ask(notes)
        reads = [Request(_READ_NOTES, [(home, group)]) for group in writes.folded]
        parts = [
            Request(_WRITE, [(key, part, blob[part * _PART : (part + 1) * _PART])])
            for key, blob in writes.blobs.items()
            for part in range(_parts(len(blob)))
        ]
        answers = self.requests.ask([*reads, *parts])
        replaced = []
        for group, rows in zip(writes.folded, answers, strict=False):
            kept = {name for name, batch_id, _ in rows if batch_id >= writes.before}
            older = [(name, when) for name, batch_id, when in rows if batch_id < writes.before]
            gone = {name for name, _ in older} - kept
            if gone:
                noted_until = max(when for _, when in older)
                replaced.append(ReplacedBlobs(group, tuple(sorted(gone)), writes.before, noted_until))
        return replaced

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """Return the blobs with these names in order; None for a missing or incomplete one."""
        requests = [
            Request(_READ, [(name.key, part)]) for name in names for part in range(_parts(name.size_bytes))
        ]
        answers = iter(self.requests.ask(requests))
        return [_joined(list(islice(answers, _parts(name.size_bytes)))) for name in names]

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then the index entries before their batch."""
        blobs = [
            Request(_DELETE, [(blob_key(home, gone.group, name),)])
            for gone in replaced
            for name in gone.names
        ]
        self.requests.ask(blobs)
        # The index is deleted last, so that every existing blob is in it.
        notes = [
            Request(_DELETE_NOTES, [(gone.noted_until, home, gone.group, gone.before)]) for gone in replaced
        ]
        self.requests.ask(notes)


class CassandraRequests:
    """The sender of requests over one connection, with retries.

    The client library reconnects by itself; if it does not, the session is replaced. Every request may be
    sent twice. The session has threads and sockets that a forked process cannot use.

    Args:
        server: The address with the keyspace.
        clock: Returns a time in seconds that only increases.
        pause: Waits for a number of seconds.
        tables: The columns of the tables to create if missing, by name.
        statements: The statements to prepare when a connection opens.

    Raises:
        Unsupported: The client library of Cassandra is not installed.
    """

    def __init__(
        self,
        server: CassandraBlobServer,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        tables: Mapping[str, str] = _TABLES,
        statements: Sequence[str] = _STATEMENTS,
    ) -> None:
        limits = CassandraLimits(
            protocol=_PROTOCOL,
            answer_s=min(_SILENCE_S, max(1.0, server.patience_ms / 1000)),
            connect_s=_CONNECT_S,
            heartbeat_s=_HEARTBEAT_S,
            more={"compression": False},
        )
        self._connection = CassandraConnection(server, limits, _Tables(server, tables, statements).prepare)
        self._patience = RetryPatience(server.patience_ms, clock, pause)

    def ask(self, requests: Sequence[Request]) -> list[list[Any]]:
        """Run statements in any order, several at the same time, and return the rows of each.

        Raises:
            Unavailable: The cluster does not answer within the time for retries.
            Invalid: The cluster rejects the user, the password or a statement, or the keyspace does not
                exist.
        """
        answers: list[list[Any] | None] = [None] * len(requests)
        if requests:
            self._patience.ask(
                lambda: self._run(self._connection.session(), requests, answers),
                self._connection.library.failures,
                refusal=self._connection.refusal,
                silent=self._connection.silence,
                before_pause=self._renew,
            )
        return [rows for rows in answers if rows is not None]

    def close(self) -> None:
        """Close the session; the next request opens a new one."""
        self._connection.end()

    def _renew(self, error: Exception, wait: float) -> None:
        """Close a session that has lost all nodes and did not reconnect by itself."""
        if wait == LONGEST_PAUSE_S and isinstance(error, self._connection.library.cluster.NoHostAvailable):
            self._connection.end()

    def _run(
        self, session: CassandraSession, requests: Sequence[Request], answers: list[list[Any] | None]
    ) -> None:
        """Run the statements that have no answer yet and store their answers; stop at the first failure."""
        under_way: deque[tuple[int, Any]] = deque()
        failure: Exception | None = None

        def take() -> None:
            nonlocal failure
            place, future = under_way.popleft()
            try:
                answers[place] = list(future.result())
            except self._connection.library.failures as error:
                failure = failure or error

        for place, request in enumerate(requests):
            if answers[place] is not None:
                continue
            if len(under_way) == _UNDER_WAY:
                take()
            if failure is not None:
                break
            under_way.append((place, session.cql.execute_async(self._bound(session, request))))
        while under_way:
            take()
        if failure is not None:
            raise failure

    def _bound(self, session: CassandraSession, request: Request) -> Any:
        statement = session.statement(request.statement)
        if len(request.rows) == 1:
            return statement.bind(request.rows[0])
        query = self._connection.library.query
        batch = query.BatchStatement(query.BatchType.UNLOGGED)
        batch.is_idempotent = True
        for row in request.rows:
            batch.add(statement, row)
        return batch


class _Tables:
    """The tables of a connection, and the statements on them."""

    def __init__(
        self, server: CassandraBlobServer, tables: Mapping[str, str], statements: Sequence[str]
    ) -> None:
        self._server = server
        self._tables = tables
        self._statements = statements

    def prepare(self, session: CassandraSession) -> None:
        """Create missing tables, check that no default TTL applies to them, and prepare the statements."""
        # The index entries of all workers get their timestamps from the nodes' clocks.
        session.cql.use_client_timestamp = False
        self._make(session)
        for statement in self._statements:
            session.statement(statement)

    def _make(self, session: CassandraSession) -> None:
        keyspace = self._server.keyspace
        there = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
        if not list(session.cql.execute(there, (keyspace,))):
            if self._server.replication is None:
                raise Invalid(
                    f"keyspace {keyspace} does not exist in Cassandra",
                    code="HF-E2516",
                    where=str(self._server),
                    hint="create the keyspace with the number of replicas that you need: "
                    f"{self._keyspace_statement(session, 3)}; or write hf.Cassandra(…, replication=3)",
                )
            session.run(self._keyspace_statement(session, self._server.replication))
        tables = "SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = %s"
        lives = dict(session.cql.execute(tables, (keyspace,)))
        for name, columns in self._tables.items():
            if name not in lives:
                session.run(f"CREATE TABLE IF NOT EXISTS {keyspace}.{name} {columns}")
            elif lives[name]:
                raise Invalid(
                    "the table has a default TTL, so Cassandra would delete state",
                    code="HF-E2517",
                    where=f"{self._server}, table {name}",
                    found=f"default_time_to_live = {lives[name]}",
                    expected="default_time_to_live = 0",
                    hint=f"run: ALTER TABLE {keyspace}.{name} WITH default_time_to_live = 0",
                )
        # A node that does not know a new table yet would reject the statements.
        session.cql.cluster.control_connection.wait_for_schema_agreement()

    def _keyspace_statement(self, session: CassandraSession, copies: int) -> str:
        center = self._server.local_datacenter or session.first_node().datacenter or "datacenter1"
        quoted = center.replace("'", "''")
        return (
            f"CREATE KEYSPACE IF NOT EXISTS {self._server.keyspace} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{quoted}': {copies}}}"
        )


def _parts(size: int) -> int:
    return max(1, -(-size // _PART))


def _joined(rows: Sequence[Sequence[Any]]) -> bytes | None:
    return None if not all(rows) else b"".join(bytes(row[0][0]) for row in rows)


def _batched(names: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), most):
        yield names[start : start + most]
