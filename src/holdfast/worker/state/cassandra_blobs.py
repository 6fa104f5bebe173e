"""Blobs of keyed state in Cassandra, in two tables that are made where they are missing.

`keyed_blobs` has a partition for each blob, cut in parts so that no request is large. A blob is written with
the timestamp 1 and deleted with 2: what comes late stays deleted, whatever the clocks say.

`keyed_index` has a partition for each key group. A note is a row of its own, a batch and a name, and
replaces none: the highest batch of a name counts, in whatever order notes come. So all notes before a batch
are deleted as one range, which leaves one tombstone; a tombstone for each blob would soon be more than a read
may meet. The range is deleted as of the newest note that was read in it. A note that a late task writes after
that is kept, and its blob is deleted by a later fold; with the clock of one node behind that of another it
may be lost, and then its blob stays. Nothing else depends on clocks.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, Final, NamedTuple

from holdfast.errors import HoldfastError, Invalid, Unavailable, Unsupported
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
_NOTE: Final = (
    "INSERT INTO {keyspace}.keyed_index (home, key_group, batch_id, name, noted) VALUES (?, ?, ?, ?, true)"
)
_READ_NOTES: Final = (
    "SELECT name, batch_id, WRITETIME(noted) FROM {keyspace}.keyed_index WHERE home = ? AND key_group = ?"
)
_DELETE_NOTES: Final = (
    "DELETE FROM {keyspace}.keyed_index USING TIMESTAMP ? WHERE home = ? AND key_group = ? AND batch_id < ?"
)
_WRITE: Final = "INSERT INTO {keyspace}.keyed_blobs (key, part, bytes) VALUES (?, ?, ?) USING TIMESTAMP 1"
_READ: Final = "SELECT bytes FROM {keyspace}.keyed_blobs WHERE key = ? AND part = ?"
_DELETE: Final = "DELETE FROM {keyspace}.keyed_blobs USING TIMESTAMP 2 WHERE key = ?"
_STATEMENTS: Final = (_NOTE, _READ_NOTES, _DELETE_NOTES, _WRITE, _READ, _DELETE)


@dataclass(frozen=True, slots=True)
class CassandraBlobServer:
    """The address of a Cassandra, and its settings.

    Attributes:
        contact_points: Host and port of one node or several, with commas between them.
        keyspace: Where the tables are.
        local_datacenter: The data center whose nodes are asked; that of the contact points by default.
        user: The user's name, where it asks for one.
        password: The password.
        tls: Whether connections are encrypted.
        authorities: A file with the certificates that are trusted, as PEM; those of the system by default.
        replication: In how many copies the data center keeps the keyspace, if it has to be made.
        consistency: LOCAL_QUORUM or QUORUM.
        prefix: What all keys begin with.
        patience_ms: How long it is asked again where it does not answer.
    """

    contact_points: str
    keyspace: str = "holdfast"
    local_datacenter: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    authorities: str | None = None
    replication: int | None = None
    consistency: str = "LOCAL_QUORUM"
    prefix: str = "holdfast"
    patience_ms: int = 60_000

    product: ClassVar[str] = "Cassandra"

    @property
    def address(self) -> str:
        """For messages."""
        return f"Cassandra at {self.contact_points}, keyspace {self.keyspace}"

    def connect(self) -> CassandraBlobs:
        """A connection of its own, which is made when it is first asked.

        Raises:
            Unsupported: The client is not installed.
        """
        return CassandraBlobs(CassandraSession(self))

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
    """Blobs in a Cassandra; what is asked of it is said by `BlobDatabase`.

    Args:
        connection: The way to it.
    """

    product: ClassVar[str] = CassandraBlobServer.product

    def __init__(self, connection: CassandraSession) -> None:
        self.connection = connection

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Note names; then write the blobs, and read at the same time what was replaced long ago."""
        notes = [
            Request(_NOTE, [(home, group, writes.batch_id, name) for name in some])
            for group, names in writes.noted.items()
            for some in _batched(names, _NOTES)
        ]
        self.connection.ask(notes)
        reads = [Request(_READ_NOTES, [(home, group)]) for group in writes.folded]
        parts = [
            Request(_WRITE, [(key, part, blob[part * _PART : (part + 1) * _PART])])
            for key, blob in writes.blobs.items()
            for part in range(_parts(len(blob)))
        ]
        answers = self.connection.ask([*reads, *parts])
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
        """The blobs of these names, None for one of which a part is missing."""
        requests = [
            Request(_READ, [(name.key, part)]) for name in names for part in range(_parts(name.size_bytes))
        ]
        answers = iter(self.connection.ask(requests))
        return [_joined(list(islice(answers, _parts(name.size_bytes)))) for name in names]

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then the notes before the batch that says which."""
        blobs = [
            Request(_DELETE, [(blob_key(home, gone.group, name),)])
            for gone in replaced
            for name in gone.names
        ]
        self.connection.ask(blobs)
        # The index last: a blob that exists stays in it.
        notes = [
            Request(_DELETE_NOTES, [(gone.noted_until, home, gone.group, gone.before)]) for gone in replaced
        ]
        self.connection.ask(notes)


class CassandraSession:
    """A session that outlives batches. The client connects anew by itself; else the session is replaced.

    Every request may be sent twice. The session has threads and sockets that no forked process may use.

    Args:
        server: Where to.
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
        self._library = client_library()
        self._server = server
        self._patience = RetryPatience(server.patience_ms, clock, pause)
        self._lock = Lock()
        self._session: _Session | None = None

    def ask(self, requests: Sequence[Request]) -> list[list[Any]]:
        """Run statements in any order, several at once, and give the rows of each.

        Raises:
            Unavailable: It does not answer for as long as it may.
            Invalid: It refuses the user, the password or a statement, or has no such keyspace.
        """
        answers: list[list[Any] | None] = [None] * len(requests)
        if requests:
            self._patience.ask(
                lambda: self._open().run(requests, answers),
                self._library.failures,
                refusal=self._refusal,
                silent=self._silent,
                before_pause=self._renew,
            )
        return [rows for rows in answers if rows is not None]

    def close(self) -> None:
        """End the session; the next request makes another."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _renew(self, error: Exception, wait: float) -> None:
        """End a session that has lost all nodes and has not found them by itself."""
        if wait == LONGEST_PAUSE_S and isinstance(error, self._library.cluster.NoHostAvailable):
            self.close()

    def _open(self) -> _Session:
        with self._lock:
            if self._session is None:
                self._session = _Session(self._server, self._library)
            return self._session

    def _refusal(self, error: Exception) -> HoldfastError | None:
        """Return the error if a retry cannot help; the text of a reply has no secret in it."""
        cassandra = self._library.cassandra
        for cause in (error, *_causes(error)):
            if isinstance(cause, (cassandra.AuthenticationFailed, cassandra.Unauthorized)):
                return Invalid(
                    "Cassandra refuses the user or the password",
                    where=self._server.address,
                    found=str(cause),
                    hint="give hf.Cassandra(user=…, password=…), or set HOLDFAST_CASSANDRA_PASSWORD before "
                    "the start; the user has to read and change tables of this keyspace, and to make those "
                    "that are missing",
                )
            if isinstance(cause, (cassandra.RequestValidationException, self._library.syntax_error)):
                return Invalid(
                    "Cassandra refuses a statement",
                    where=self._server.address,
                    found=str(cause),
                    hint="see that the tables keyed_blobs and keyed_index there are those of Holdfast",
                )
        return None

    def _silent(self, error: Exception) -> Unavailable:
        causes = [*_causes(error)] or [error]
        return Unavailable(
            "Cassandra does not answer",
            where=self._server.address,
            found="; ".join(f"{type(cause).__name__}: {cause}" for cause in causes),
            hint="see that a majority of the copies runs, and that every executor reaches all nodes; a batch "
            "that failed can run again",
        )


class _Session:
    """A session with its statements."""

    def __init__(self, server: CassandraBlobServer, library: _Library) -> None:
        self._library = library
        self._server = server
        self._cluster = self._connect()
        try:
            self._cql = self._cluster.connect()
            # The notes of all workers go by the clocks of the nodes.
            self._cql.use_client_timestamp = False
            self._make_tables()
            self._prepared = {
                text: self._cql.prepare(text.format(keyspace=server.keyspace)) for text in _STATEMENTS
            }
            for statement in self._prepared.values():
                statement.is_idempotent = True
        except BaseException:
            self.close()
            raise

    def run(self, requests: Sequence[Request], answers: list[list[Any] | None]) -> None:
        """Run those that have no answer yet, and put the answers in their places; stops at a failure."""
        under_way: deque[tuple[int, Any]] = deque()
        failure: Exception | None = None

        def take() -> None:
            nonlocal failure
            place, future = under_way.popleft()
            try:
                answers[place] = list(future.result())
            except self._library.failures as error:
                failure = failure or error

        for place, request in enumerate(requests):
            if answers[place] is not None:
                continue
            if len(under_way) == _UNDER_WAY:
                take()
            if failure is not None:
                break
            under_way.append((place, self._cql.execute_async(self._bound(request))))
        while under_way:
            take()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End it, with its threads."""
        self._cluster.shutdown()

    def _bound(self, request: Request) -> Any:
        statement = self._prepared[request.statement]
        if len(request.rows) == 1:
            return statement.bind(request.rows[0])
        query = self._library.query
        batch = query.BatchStatement(query.BatchType.UNLOGGED)
        batch.is_idempotent = True
        for row in request.rows:
            batch.add(statement, row)
        return batch

    def _connect(self) -> Any:
        server, library = self._server, self._library
        cluster, policies = library.cluster, library.policies
        profile = cluster.ExecutionProfile(
            load_balancing_policy=policies.TokenAwarePolicy(
                policies.DCAwareRoundRobinPolicy(server.local_datacenter or "")
            ),
            consistency_level=library.cassandra.ConsistencyLevel.name_to_value[server.consistency],
            request_timeout=min(_SILENCE_S, max(1.0, server.patience_ms / 1000)),
            row_factory=library.query.tuple_factory,
        )
        login = None
        if server.user is not None and server.password is not None:
            login = library.auth.PlainTextAuthProvider(server.user, server.password)
        return cluster.Cluster(
            list(_addresses(server.contact_points)),
            auth_provider=login,
            ssl_context=self._trusting() if server.tls else None,
            execution_profiles={cluster.EXEC_PROFILE_DEFAULT: profile},
            protocol_version=_PROTOCOL,
            compression=False,
            connect_timeout=_CONNECT_S,
            control_connection_timeout=_CONNECT_S,
            idle_heartbeat_interval=_HEARTBEAT_S,
            idle_heartbeat_timeout=_CONNECT_S,
            reconnection_policy=policies.ExponentialReconnectionPolicy(0.2, 5),
            sockopts=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
            monitor_reporting_enabled=False,
            application_name="holdfast",
        )

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._server.authorities)
        except OSError as error:
            raise Invalid(
                "the certificates that are to be trusted cannot be read",
                where=str(self._server.authorities),
                found=str(error),
                expected="a PEM file",
                hint="write hf.Cassandra(…, trust_store=…) with a PEM file that each executor has",
            ) from error

    def _make_tables(self) -> None:
        """Make what is missing, and see that nothing in it ends by itself."""
        keyspace = self._server.keyspace
        there = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
        if not list(self._cql.execute(there, (keyspace,))):
            if self._server.replication is None:
                raise Invalid(
                    f"there is no keyspace {keyspace} in Cassandra",
                    where=self._server.address,
                    hint=f"run there, with as many copies as it shall have: {self._keyspace_statement(3)}; "
                    "or write hf.Cassandra(…, replication=3)",
                )
            self._make(self._keyspace_statement(self._server.replication))
        tables = "SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = %s"
        lives = dict(self._cql.execute(tables, (keyspace,)))
        for name, columns in _TABLES.items():
            if name not in lives:
                self._make(f"CREATE TABLE IF NOT EXISTS {keyspace}.{name} {columns}")
            elif lives[name]:
                raise Invalid(
                    "this Cassandra deletes what is in a table after a time, and state would be lost",
                    where=f"{self._server.address}, table {name}",
                    found=f"default_time_to_live = {lives[name]}",
                    expected="default_time_to_live = 0",
                    hint=f"run there: ALTER TABLE {keyspace}.{name} WITH default_time_to_live = 0",
                )
        # A node that does not know a table yet would refuse the statements.
        self._cluster.control_connection.wait_for_schema_agreement()

    def _make(self, statement: str) -> None:
        """Run a statement at the one node that all workers choose.

        Workers that begin together all run it, and that node does one after the other. Two nodes could each
        make a table of that name, and what one of them has got would be lost.
        """
        self._cql.execute(statement, host=self._first_node())

    def _keyspace_statement(self, copies: int) -> str:
        center = self._server.local_datacenter or self._first_node().datacenter or "datacenter1"
        quoted = center.replace("'", "''")
        return (
            f"CREATE KEYSPACE IF NOT EXISTS {self._server.keyspace} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{quoted}': {copies}}}"
        )

    def _first_node(self) -> Any:
        return min(self._cql.get_pool_state(), key=lambda host: host.endpoint)


class _Library:
    """The modules of the client, and what it raises where asking again may help or not."""

    def __init__(self) -> None:
        import cassandra
        import cassandra.auth
        import cassandra.cluster
        import cassandra.connection
        import cassandra.policies
        import cassandra.protocol
        import cassandra.query

        self.cassandra: Any = cassandra
        self.auth: Any = cassandra.auth
        self.cluster: Any = cassandra.cluster
        self.policies: Any = cassandra.policies
        self.query: Any = cassandra.query
        self.syntax_error: Any = cassandra.protocol.SyntaxException
        self.failures: tuple[type[Exception], ...] = (
            cassandra.DriverException,
            cassandra.cluster.NoHostAvailable,
            cassandra.connection.ConnectionBusy,
            cassandra.connection.ConnectionException,
            cassandra.protocol.ErrorMessage,
            OSError,
        )


def client_library() -> _Library:
    """The client for Cassandra, loaded when it is first needed.

    Raises:
        Unsupported: It is not installed, or cannot work with this Python.
    """
    try:
        from cassandra import DependencyException
    except ImportError as error:
        raise _no_client(error) from error
    try:
        return _Library()
    except (ImportError, DependencyException) as error:
        raise _no_client(error) from error


def _no_client(error: Exception) -> Unsupported:
    return Unsupported(
        "the Python client for Cassandra is not installed",
        found=str(error),
        hint="pip install 'holdfast[cassandra]' for the driver and the workers of every executor",
    )


def _causes(error: Exception) -> Iterator[object]:
    """Return the message of each node, if none could answer."""
    nodes = getattr(error, "errors", None)
    yield from nodes.values() if isinstance(nodes, dict) else ()


def _addresses(contact_points: str) -> Iterator[tuple[str, int]]:
    for point in map(str.strip, contact_points.split(",")):
        host, colon, port = point.rpartition(":")
        if not colon or point.endswith("]"):
            host, port = point, str(_PORT)
        yield host.removeprefix("[").removesuffix("]"), int(port)


def _parts(size: int) -> int:
    return max(1, -(-size // _PART))


def _joined(rows: Sequence[Sequence[Any]]) -> bytes | None:
    return None if not all(rows) else b"".join(bytes(row[0][0]) for row in rows)


def _batched(names: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), most):
        yield names[start : start + most]
