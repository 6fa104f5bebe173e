"""The connection to Cassandra, shared by commands and workers."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.config.database_stores import CASSANDRA_PASSWORD_VARIABLE as PASSWORD
from holdfast.errors import Corrupt, HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.external.cassandra_address import ADDRESS, CERTIFICATES, CONSISTENCY, USER, CassandraAddress

# The consistency levels of reads and writes, each with that of transactions, as in Spark's state stores.
_SERIAL: Final = {"LOCAL_QUORUM": "LOCAL_SERIAL", "QUORUM": "SERIAL"}
_ASKED_TOGETHER: Final = 32
# The delays before reconnecting, in seconds, which double each time.
_RECONNECT_S: Final = (0.2, 5)
# The names in the protocol.
_TOO_MANY_TOMBSTONES: Final = 1


@dataclass(frozen=True, slots=True)
class CassandraLimits:
    """The limits of a connection, which differ between commands and tasks.

    Attributes:
        protocol: The version of the protocol.
        answer_s: The timeout for an answer, in seconds.
        connect_s: The timeout for a connection attempt, in seconds.
        heartbeat_s: The interval of heartbeats on an idle connection, in seconds; without them the client
            does not detect a connection that ends during an answer.
        more: Other arguments of the client's `Cluster`.
    """

    protocol: int
    answer_s: float
    connect_s: float
    heartbeat_s: float = 30
    more: Mapping[str, Any] = field(default_factory=dict)


# From this version, errors of reads include the reasons.
_COMMANDS: Final = CassandraLimits(
    protocol=5,
    answer_s=10,
    connect_s=10,
    # No statement of the commands depends on changes of the tables by others.
    more={"schema_event_refresh_window": -1},
)


@dataclass(frozen=True, slots=True, eq=False)
class CassandraSession:
    """A session of the client library, with its prepared statements.

    In statements `@` is replaced by the keyspace.

    Attributes:
        cql: The session of the client library.
        keyspace: The keyspace.
        prepared: The prepared statements, by text.
        end: Ends the session in the background.
    """

    cql: Any
    keyspace: str
    prepared: dict[str, Any]
    end: Callable[[], object]

    def statement(self, cql: str) -> Any:
        """Return the prepared statement for a text; prepare it at the first call."""
        statement = self.prepared.get(cql)
        if statement is None:
            statement = self.prepared[cql] = self.cql.prepare(cql.replace("@", self.keyspace))
            # All statements may be sent twice, except transactions.
            statement.is_idempotent = True
        return statement

    def bound(self, cql: str, values: Sequence[object]) -> Any:
        """Return a prepared statement bound to values."""
        return self.statement(cql).bind(values)

    def together(self, statements: Sequence[Any]) -> list[Any]:
        """Run statements concurrently and return their results."""
        from cassandra.concurrent import execute_concurrent

        asked = execute_concurrent(self.cql, [(each, None) for each in statements], _ASKED_TOGETHER)
        return [result for _, result in asked]

    def run(self, cql: str, values: Sequence[object] = ()) -> list[Any]:
        """Run a schema statement on one node, which is the same for all clients.

        That node runs schema statements one after the other. Two nodes could each create a table with the
        same name, and the rows in one of them would be lost.
        """
        return list(self.cql.execute(cql.replace("@", self.keyspace), values or None, host=self.first_node()))

    def first_node(self) -> Any:
        """Return the node for schema statements, or None if no node is known to be up."""
        nodes = [node for node in self.cql.get_pool_state() if node.is_up]
        return min(nodes, key=lambda node: str(node.host_id), default=None)


class CassandraConnection:
    """A session with a cluster, opened by the first request; threads may share it, processes may not.

    The session ends when the connection object is deleted.

    Args:
        address: The keyspace.
        limits: The limits of the connection.
        prepare: Called with each new session.

    Raises:
        Unsupported: The client library of Cassandra is not installed.
    """

    def __init__(
        self,
        address: CassandraAddress,
        limits: CassandraLimits,
        prepare: Callable[[CassandraSession], None] = lambda _: None,
    ) -> None:
        self.library = client_library()
        self.address = address
        self._limits = limits
        self._prepare = prepare
        self._lock = threading.Lock()
        self._session: CassandraSession | None = None

    def ask(self, cql: str, *values: object, serially: bool = False) -> Any:
        """Return the rows of a statement as tuples; with `serially`, pending transactions are completed
        first.
        """
        session = self.session()
        bound = session.bound(cql, values)
        if serially:
            bound.consistency_level = self._level(_SERIAL[self.address.consistency])
        return session.cql.execute(bound)

    def ask_all(self, questions: Sequence[tuple[str, Sequence[object]]]) -> list[Any]:
        """Return the rows of many statements, which run concurrently."""
        session = self.session()
        return session.together([session.bound(cql, values) for cql, values in questions])

    def write_all(self, batches: Sequence[Sequence[tuple[str, Sequence[object]]]]) -> None:
        """Run writes; the statements of a batch are for one partition and cost one write."""
        from cassandra.query import BatchStatement, BatchType

        session = self.session()
        statements = []
        for some in batches:
            batch = BatchStatement(BatchType.UNLOGGED)
            for cql, values in some:
                batch.add(session.bound(cql, values))
            statements.append(batch)
        session.together(statements)

    def transact(self, cql: str, *values: object) -> bool:
        """Return whether a conditional statement was applied; False also if the result is unknown."""
        from cassandra import OperationTimedOut, WriteTimeout

        session = self.session()
        bound = session.bound(cql, values)
        bound.is_idempotent = False
        try:
            return bool(session.cql.execute(bound).was_applied)
        except (OperationTimedOut, WriteTimeout):
            return False

    def run(self, cql: str, *values: str) -> list[Any]:
        """Run a schema statement and return its rows."""
        return self.session().run(cql, values)

    @contextmanager
    def asked(self, store: str) -> Iterator[None]:
        """Raise Holdfast errors with hints in place of the client's errors in this block.

        Raises:
            Unavailable: Too few nodes answer in time.
            Invalid: Cassandra rejected the user, the password or a statement, or the user lacks a permission.
            Corrupt: The tables of the store are missing.
        """
        before = self._session
        try:
            yield
        except self.library.failures as error:
            if isinstance(error, self.library.cluster.NoHostAvailable):
                # The session would find its nodes again after a while; a new session finds them immediately.
                self.end(before)
            raise self._store_error(error, f"{self.address}, store {store}") from error

    def refusal(self, error: Exception) -> HoldfastError | None:
        """Return the error for a failure that a retry cannot fix, or None for any other failure.

        The message of an answer never contains a secret.
        """
        cassandra = self.library.cassandra
        for cause in (error, *_causes(error).values()):
            if isinstance(cause, (cassandra.AuthenticationFailed, cassandra.Unauthorized)):
                return Invalid(
                    "Cassandra rejected the user or the password, or the user lacks a permission",
                    code="HF-E2194",
                    where=str(self.address),
                    found=self._line(cause),
                    hint=f"set the password in {PASSWORD}; set the user in {USER} for commands and in"
                    " hf.Cassandra(user=…) for jobs; the user must be allowed to read,"
                    " modify and create tables in this keyspace",
                )
            if isinstance(cause, (cassandra.RequestValidationException, self.library.syntax_error)):
                return Invalid(
                    "Cassandra rejected a statement",
                    code="HF-E2195",
                    where=str(self.address),
                    found=self._line(cause),
                    hint="use a keyspace with tables that Holdfast created; if a value is too large, raise"
                    " Cassandra's commitlog_segment_size to more than twice the size of the value",
                )
        return None

    def silence(self, error: Exception) -> Unavailable:
        """Return the error for a failure that a retry may fix."""
        found = "; ".join(f"{node}: {self._line(cause)}" for node, cause in _causes(error).items())
        if isinstance(error, self.library.cassandra.UnresolvableContactPoints):
            found = "the host names do not resolve"
        return Unavailable(
            "Cassandra does not answer",
            code="HF-E5016",
            where=str(self.address),
            found=found or self._line(error),
            hint="check that a majority of the replicas is up, and that all nodes are reachable from here"
            f" and, for a job, from every executor; for commands, set a different address in {ADDRESS}, and"
            f" the CA certificate file for TLS in {CERTIFICATES}",
        )

    def session(self) -> CassandraSession:
        """Return the open session, or open a new one."""
        with self._lock:
            if self._session is None:
                self._session = self._open()
            return self._session

    def end(self, session: CassandraSession | None = None) -> None:
        """End a session unless a different thread has ended it; None means the open session.

        The next request opens a new session.
        """
        with self._lock:
            ended = self._session if session in (None, self._session) else None
            self._session = None if ended is not None else self._session
        if ended is not None:
            ended.end()

    def _store_error(self, error: Exception, where: str) -> HoldfastError:
        cassandra = self.library.cassandra
        if isinstance(error, cassandra.InvalidRequest) and "does not exist" in str(error):
            return Corrupt(
                "the keyspace does not have Holdfast's state tables",
                code="HF-E6019",
                where=where,
                found=self._line(error),
                hint=f"check the address, or set {ADDRESS}; if the tables were dropped, recover their data"
                " or restore a savepoint",
            )
        if isinstance(error, cassandra.ReadFailure) and (
            _TOO_MANY_TOMBSTONES in (getattr(error, "error_code_map", None) or {}).values()
        ):
            return Unavailable(
                "Cassandra aborted a read of the state, because it found too many tombstones",
                code="HF-E5017",
                where=where,
                expected="at most tombstone_failure_threshold tombstones",
                hint="repair and compact the table state_rows, then retry",
            )
        return self.refusal(error) or self.silence(error)

    def _open(self) -> CassandraSession:
        cluster = self._cluster()
        try:
            cql = cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise
        # When the process ends, the client ends open sessions.
        end = weakref.finalize(self, _shut_down, cluster)
        end.atexit = False
        session = CassandraSession(cql, self.address.keyspace, {}, end)
        try:
            self._prepare(session)
        except BaseException:
            end()
            raise
        return session

    def _cluster(self) -> Any:
        address, limits, library = self.address, self._limits, self.library
        policies = library.policies
        profile = library.cluster.ExecutionProfile(
            load_balancing_policy=policies.TokenAwarePolicy(
                policies.DCAwareRoundRobinPolicy(address.local_datacenter or "")
            ),
            consistency_level=self._level(address.consistency),
            serial_consistency_level=self._level(_SERIAL[address.consistency]),
            request_timeout=limits.answer_s,
            row_factory=library.query.tuple_factory,
        )
        login = None
        if address.user is not None:
            login = library.auth.PlainTextAuthProvider(address.user, address.password or "")
        return library.cluster.Cluster(
            list(address.nodes),
            auth_provider=login,
            ssl_context=self._trusting() if address.tls else None,
            execution_profiles={library.cluster.EXEC_PROFILE_DEFAULT: profile},
            protocol_version=limits.protocol,
            connect_timeout=limits.connect_s,
            control_connection_timeout=limits.connect_s,
            idle_heartbeat_interval=limits.heartbeat_s,
            idle_heartbeat_timeout=limits.connect_s,
            reconnection_policy=policies.ExponentialReconnectionPolicy(*_RECONNECT_S),
            sockopts=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
            monitor_reporting_enabled=False,
            application_name="holdfast",
            **limits.more,
        )

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.address.authorities)
        except OSError as error:
            raise Invalid(
                "the CA certificate file for Cassandra cannot be read",
                code="HF-E2196",
                where=str(self.address.authorities),
                found=str(error),
                expected="a PEM file",
                hint=f"for commands, set {CERTIFICATES} to the path of a PEM file; for a job, pass the path"
                " of a file that every executor has: hf.Cassandra(…, trust_store=…)",
            ) from error

    def _level(self, name: str) -> Any:
        return self.library.cassandra.ConsistencyLevel.name_to_value[name]

    def _line(self, error: object) -> str:
        """Return an error of the client as one line of text."""
        if isinstance(error, self.library.cassandra.OperationTimedOut):
            return f"no answer within {self._limits.answer_s:g} s"
        return " ".join(str(error).split()) or type(error).__name__


class CassandraLibrary:
    """The modules of the client library, and its exceptions."""

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


def client_library() -> CassandraLibrary:
    """Return the client library for Cassandra, imported at the first call.

    Raises:
        Unsupported: The library is not installed, or does not work with this version of Python.
    """
    try:
        import cassandra

        return CassandraLibrary()
    except ImportError as error:
        raise _no_client(error) from error
    except cassandra.DependencyException as error:
        # The client has no event loop for this version of Python.
        raise _no_client(error) from error


# Several sessions with one cluster would cost threads and connections.
_CONNECTIONS: Final[weakref.WeakValueDictionary[CassandraAddress, CassandraConnection]] = (
    weakref.WeakValueDictionary()
)
_LOCK: Final = threading.Lock()


def open_cassandra(
    address: CassandraAddress, environ: Mapping[str, str] | None = None
) -> CassandraConnection:
    """Return a connection with the credentials from the environment, which all callers share.

    The call sends no request.

    Raises:
        Invalid: The consistency level in the environment is unknown.
        Unsupported: The client library of Cassandra is not installed.
    """
    environ = os.environ if environ is None else environ
    consistency = environ.get(CONSISTENCY) or "LOCAL_QUORUM"
    if consistency not in _SERIAL:
        raise Invalid(
            "unsupported consistency level for Cassandra",
            code="HF-E2197",
            where=CONSISTENCY,
            found=consistency,
            expected=" or ".join(_SERIAL),
            hint="set the level that the query passes to hf.Cassandra(consistency=…)",
        )
    certificates = environ.get(CERTIFICATES) or None
    opened = replace(
        address,
        user=environ.get(USER) or None,
        password=environ.get(PASSWORD) or None,
        tls=certificates is not None,
        authorities=certificates,
        consistency=consistency,
    )
    with _LOCK:
        connection = _CONNECTIONS.get(opened)
        if connection is None:
            connection = _CONNECTIONS[opened] = CassandraConnection(opened, _COMMANDS)
        return connection


def _no_client(error: Exception) -> Unsupported:
    return Unsupported(
        "the Python client for Cassandra cannot be imported",
        code="HF-E7056",
        found=str(error),
        hint="run `pip install 'holdfast[cassandra]'`; a job needs it on every executor as well",
    )


def _causes(error: Exception) -> Mapping[object, object]:
    """Return the error of each node if no node could answer, otherwise an empty mapping."""
    nodes = getattr(error, "errors", None)
    return nodes if isinstance(nodes, Mapping) else {}


def _shut_down(cluster: Any) -> None:
    # Immediately, so that it does not run while Python shuts down.
    cluster.scheduler.is_shutdown = True
    # In a thread, because it waits for the client's threads and may be called in one of them.
    threading.Thread(target=cluster.shutdown, name="end of Cassandra's session", daemon=True).start()
