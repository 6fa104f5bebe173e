"""Store blobs of keyed state in Cassandra, in two tables that are created if missing.

`keyed_blobs` has a partition for each blob, split in parts so that no request is large. A blob is written
with the timestamp 1 and deleted with 2: a late write stays deleted, independent of clocks.

`keyed_index` has a partition for each key group. An entry is a row with a batch and a name and never replaces
another: the highest batch of a name counts, in any order of writes. So all entries before a batch are
deleted as one range, which leaves one tombstone; one tombstone per blob would soon exceed the limit of a
read. The range is deleted with the timestamp of the newest entry read in it. An entry that a late task writes
after that is kept, and a later fold deletes its blob; if the clock of a node is behind, the entry may be
lost, and its blob stays. Nothing else depends on clocks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
# A blob is written and read in parts of so many bytes.
_PART: Final = 256 << 10
# So many requests are under way at once, and so many notes are in one.
_UNDER_WAY: Final = 64
_NOTES: Final = 500
# An answer that has stopped for so long does not come any more; a node gives up before.
_SILENCE_S: Final = 10.0
# A connection is made in so long, or is not.
_CONNECT_S: Final = 5.0
# Connections are asked so often whether they are there: the client does not notice the end of one in the
# middle of an answer.
_HEARTBEAT_S: Final = 2
# What every server from 3.0 on speaks.
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
    """The address of a Cassandra with blobs, and how it is used.

    Attributes:
        replication: The number of copies in the data center of a keyspace that has to be made.
        prefix: The prefix of all keys.
        patience_ms: The time for which requests are retried.
    """

    replication: int | None = None
    prefix: str = "holdfast"
    patience_ms: int = 60_000

    product: ClassVar[str] = "Cassandra"

    def connect(self) -> CassandraBlobs:
        """Return a new connection, which connects at its first request.

        Raises:
            Unsupported: The client is not installed.
        """
        return CassandraBlobs(CassandraRequests(self))

    def described(self) -> dict[str, Any]:
        """Return the description for an operator's note, without the password."""
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
    """A statement that may be run twice, for one row or for several of a partition."""

    statement: str
    rows: Sequence[Sequence[Any]]


class CassandraBlobs:
    """The blobs in a Cassandra; see `BlobDatabase`.

    Args:
        requests: Sends the requests.
    """

    product: ClassVar[str] = CassandraBlobServer.product

    def __init__(self, requests: CassandraRequests) -> None:
        self.requests = requests

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Note names; then write the blobs, and read at the same time what was replaced long ago."""
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
        """Return the blobs of these names, None for an incomplete one."""
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
        # The index last: a blob that exists stays in it.
        notes = [
            Request(_DELETE_NOTES, [(gone.noted_until, home, gone.group, gone.before)]) for gone in replaced
        ]
        self.requests.ask(notes)


class CassandraRequests:
    """Requests over one connection, retried while the patience lasts.

    The client connects again by itself; else the session is replaced. Every request may be sent twice. The
    session has threads and sockets that no forked process may use.

    Args:
        server: The keyspace.
        clock: Seconds that pass, for the server's patience.
        pause: Waits for a number of seconds.

    Raises:
        Unsupported: The client is not installed.
    """

    def __init__(
        self,
        server: CassandraBlobServer,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        limits = CassandraLimits(
            protocol=_PROTOCOL,
            answer_s=min(_SILENCE_S, max(1.0, server.patience_ms / 1000)),
            connect_s=_CONNECT_S,
            heartbeat_s=_HEARTBEAT_S,
            more={"compression": False},
        )
        self._connection = CassandraConnection(server, limits, _Tables(server).prepare)
        self._patience = RetryPatience(server.patience_ms, clock, pause)

    def ask(self, requests: Sequence[Request]) -> list[list[Any]]:
        """Run statements in any order, several at once, and give the rows of each.

        Raises:
            Unavailable: It does not answer for as long as it may.
            Invalid: It refuses the user, the password or a statement, or has no such keyspace.
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
        """End a session that has lost all nodes and has not found them by itself."""
        if wait == LONGEST_PAUSE_S and isinstance(error, self._connection.library.cluster.NoHostAvailable):
            self._connection.end()

    def _run(
        self, session: CassandraSession, requests: Sequence[Request], answers: list[list[Any] | None]
    ) -> None:
        """Run the statements without an answer and store the answers; stops at a failure."""
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
    """The tables of blobs, and the statements on them."""

    def __init__(self, server: CassandraBlobServer) -> None:
        self._server = server

    def prepare(self, session: CassandraSession) -> None:
        """Make what is missing, see that nothing in it ends by itself, and prepare the statements."""
        # The notes of all workers go by the clocks of the nodes.
        session.cql.use_client_timestamp = False
        self._make(session)
        for statement in _STATEMENTS:
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
        for name, columns in _TABLES.items():
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
        # A node that does not know a table yet would refuse the statements.
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
