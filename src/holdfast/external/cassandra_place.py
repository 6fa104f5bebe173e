"""Connect to a Cassandra by its address; passwords come from the environment."""

from __future__ import annotations

import os
import re
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.config.database_stores import CASSANDRA_PASSWORD_VARIABLE as PASSWORD
from holdfast.errors import Corrupt, HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.external.named_addresses import sole_address

ADDRESS: Final = "HOLDFAST_CASSANDRA_ADDRESS"
USER: Final = "HOLDFAST_CASSANDRA_USER"
CERTIFICATES: Final = "HOLDFAST_CASSANDRA_CA"
CONSISTENCY: Final = "HOLDFAST_CASSANDRA_CONSISTENCY"

_SCHEME: Final = "cassandra://"
_PORT: Final = 9042
_POINT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\],]+)(?::(\d{1,5}))?")
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_DEFAULT_KEYSPACE: Final = "holdfast"
# What reads and writes ask for, and what transactions do with it, as the state stores of Spark have it.
_SERIAL: Final = {"LOCAL_QUORUM": "LOCAL_SERIAL", "QUORUM": "SERIAL"}
_ANSWER_S: Final = 10
_ASKED_TOGETHER: Final = 32
# Connections are made again after as many seconds, twice as many each time.
_RECONNECT_S: Final = (0.2, 5)
# As the protocol has it.
_TOO_MANY_TOMBSTONES: Final = 1


@dataclass(frozen=True, slots=True)
class CassandraPlace:
    """A keyspace of a cluster.

    Attributes:
        points: Hosts and ports of one node or several; the client finds the others.
        keyspace: Where the tables are.
    """

    points: tuple[tuple[str, int], ...]
    keyspace: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.contact_points}/{self.keyspace}"

    @property
    def endpoints(self) -> frozenset[tuple[str, int]]:
        """Host and port of each node that a password is sent to first."""
        return frozenset(self.points)

    @property
    def contact_points(self) -> str:
        """The contact points, as `hf.Cassandra` takes them."""
        shown = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.points)
        return ",".join(shown)

    def connect(self, environ: Mapping[str, str] | None = None) -> CassandraConnection:
        """A connection, the same for all who are connected; nothing is sent before something is asked.

        Raises:
            Invalid: The environment asks for something that is not known.
            Unsupported: The library is not installed.
        """
        environ = os.environ if environ is None else environ
        try:
            # The second fails where the first finds no way to read from several sockets.
            import cassandra
            import cassandra.cluster
        except ImportError as error:
            raise _no_library(self) from error
        except cassandra.DependencyException as error:
            raise _no_library(self) from error
        consistency = environ.get(CONSISTENCY) or "LOCAL_QUORUM"
        if consistency not in _SERIAL:
            raise Invalid(
                "this is no consistency that state can be read with",
                where=CONSISTENCY,
                found=consistency,
                expected=" or ".join(_SERIAL),
                hint="take the one that the query has: hf.Cassandra(consistency=…)",
            )
        login = _Login(
            environ.get(USER) or None,
            environ.get(PASSWORD) or None,
            environ.get(CERTIFICATES) or None,
            consistency,
        )
        with _LOCK:
            found = _CONNECTIONS.get((self, login))
            if found is None:
                found = _CONNECTIONS[self, login] = CassandraConnection(self, login)
            return found


@dataclass(frozen=True, slots=True, repr=False)
class _Login:
    """The credentials; nothing prints them."""

    user: str | None
    password: str | None
    certificates: str | None
    consistency: str


@dataclass(frozen=True, slots=True, eq=False)
class _Session:
    """A session of the library's.

    Attributes:
        cql: The session.
        prepared: Its statements, by their text.
        end: What ends it, in a while.
    """

    cql: Any
    prepared: dict[str, Any]
    end: Callable[[], object]

    def bound(self, cql: str, values: Sequence[object]) -> Any:
        """A statement with its values."""
        statement = self.prepared.get(cql)
        if statement is None:
            statement = self.prepared[cql] = self.cql.prepare(cql)
            # All that is asked may be asked twice, but for transactions.
            statement.is_idempotent = True
        return statement.bind(values)

    def together(self, statements: Sequence[Any]) -> list[Any]:
        """The answers to statements that are asked at the same time."""
        from cassandra.concurrent import execute_concurrent

        asked = execute_concurrent(self.cql, [(each, None) for each in statements], _ASKED_TOGETHER)
        return [result for _, result in asked]


class CassandraConnection:
    """A session with a cluster, made when something is asked. It may be used by several threads.

    In statements `@` represents the place's keyspace.

    It ends when nobody has it any more.

    Args:
        place: The keyspace.
        login: How to come in.
    """

    def __init__(self, place: CassandraPlace, login: _Login) -> None:
        self.place = place
        self._login = login
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def ask(self, cql: str, *values: object, serially: bool = False) -> Any:
        """The rows of a statement, as tuples. Serially: what is under way in transactions is ended first."""
        session = self._connected()
        bound = session.bound(self._in_keyspace(cql), values)
        if serially:
            bound.consistency_level = _level(_SERIAL[self._login.consistency])
        return session.cql.execute(bound)

    def ask_all(self, questions: Sequence[tuple[str, Sequence[object]]]) -> list[Any]:
        """The rows of many statements, which are asked at the same time."""
        session = self._connected()
        return session.together([session.bound(self._in_keyspace(cql), values) for cql, values in questions])

    def write_all(self, batches: Sequence[Sequence[tuple[str, Sequence[object]]]]) -> None:
        """Write statements; those of a batch are of one partition and cost one write."""
        from cassandra.query import BatchStatement, BatchType

        session = self._connected()
        statements = []
        for some in batches:
            batch = BatchStatement(BatchType.UNLOGGED)
            for cql, values in some:
                batch.add(session.bound(self._in_keyspace(cql), values))
            statements.append(batch)
        session.together(statements)

    def transact(self, cql: str, *values: object) -> bool:
        """Return whether a conditional statement was applied; False also if that is unknown."""
        from cassandra import OperationTimedOut, WriteTimeout

        session = self._connected()
        bound = session.bound(self._in_keyspace(cql), values)
        bound.is_idempotent = False
        try:
            return bool(session.cql.execute(bound).was_applied)
        except (OperationTimedOut, WriteTimeout):
            return False

    def run(self, cql: str, *values: str) -> list[Any]:
        """Run a statement of the schema. All such statements are sent to the same node."""
        session = self._connected().cql
        hosts = [host for host in session.cluster.metadata.all_hosts() if host.is_up]
        first = min(hosts, key=lambda host: str(host.host_id), default=None)
        return list(session.execute(self._in_keyspace(cql), values or None, host=first))

    @contextmanager
    def asked(self, store: str) -> Iterator[None]:
        """Turn the library's errors in this block into those that a person can act on.

        Raises:
            Unavailable: No node answers, or not enough do.
            Invalid: They do not let us in, or not do this.
            Corrupt: The tables of the store are missing.
        """
        import cassandra
        from cassandra.cluster import NoHostAvailable
        from cassandra.connection import ConnectionException

        before = self._session
        try:
            yield
        except NoHostAvailable as error:
            # It would find its nodes again in a while, and a new session finds them at once.
            self._end(before)
            raise self._unreached(error) from error
        except cassandra.Unauthorized as error:
            raise Invalid(
                "Cassandra does not let us do this",
                where=str(self.place),
                found=_error_line(error),
                hint="the user needs SELECT and MODIFY on the keyspace, and CREATE where tables are missing",
            ) from error
        except cassandra.ReadFailure as error:
            if _TOO_MANY_TOMBSTONES in (getattr(error, "error_code_map", None) or {}).values():
                raise Unavailable(
                    "Cassandra has met more deletions in a part of a store than it allows",
                    where=f"{self.place}, store {store}",
                    found="more than tombstone_failure_threshold",
                    hint="repair and compact the table state_rows there",
                ) from error
            raise self._silent(_error_line(error)) from error
        except cassandra.InvalidRequest as error:
            if "does not exist" not in str(error):
                raise Invalid(
                    "Cassandra has refused a statement",
                    where=f"{self.place}, store {store}",
                    found=_error_line(error),
                    hint="a field with its value has to fit into half a segment of its commit log",
                ) from error
            raise Corrupt(
                "the state is not in Cassandra",
                where=f"{self.place}, store {store}",
                found=_error_line(error),
                expected="the keyspace and the tables of state",
                hint=f"see that the address is right, or set {ADDRESS}; if the tables were dropped, bring"
                " their data back or restore a savepoint",
            ) from error
        except cassandra.UnresolvableContactPoints as error:
            raise self._silent("no address for these names") from error
        except (cassandra.DriverException, ConnectionException, OSError) as error:
            raise self._silent(_error_line(error)) from error

    def _connected(self) -> _Session:
        with self._lock:
            if self._session is None:
                self._session = self._connect()
            return self._session

    def _end(self, session: _Session | None) -> None:
        """End this session if another thread has not; where there was none, the one made since."""
        with self._lock:
            ended = self._session if session in (None, self._session) else None
            self._session = None if ended is not None else self._session
        if ended is not None:
            ended.end()

    def _in_keyspace(self, cql: str) -> str:
        return cql.replace("@", self.place.keyspace)

    def _connect(self) -> _Session:
        from cassandra import ProtocolVersion
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import (
            DCAwareRoundRobinPolicy,
            ExponentialReconnectionPolicy,
            TokenAwarePolicy,
        )
        from cassandra.query import tuple_factory

        login = self._login
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
            consistency_level=_level(login.consistency),
            serial_consistency_level=_level(_SERIAL[login.consistency]),
            request_timeout=_ANSWER_S,
            row_factory=tuple_factory,
        )
        cluster = Cluster(
            list(self.place.points),
            auth_provider=PlainTextAuthProvider(login.user, login.password or "") if login.user else None,
            ssl_context=self._tls(),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            protocol_version=ProtocolVersion.V5,
            connect_timeout=_ANSWER_S,
            control_connection_timeout=_ANSWER_S,
            reconnection_policy=ExponentialReconnectionPolicy(*_RECONNECT_S),
            # No statement here depends on what others change of the tables.
            schema_event_refresh_window=-1,
        )
        try:
            session = cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise
        # The library ends what is left when the process does.
        end = weakref.finalize(self, _shut_down, cluster)
        end.atexit = False
        return _Session(session, {}, end)

    def _tls(self) -> ssl.SSLContext | None:
        if self._login.certificates is None:
            return None
        try:
            return ssl.create_default_context(cafile=self._login.certificates)
        except OSError as error:
            raise Invalid(
                "the file with the certificate authority of Cassandra cannot be read",
                where=CERTIFICATES,
                found=str(error),
                hint="name a file of certificates in PEM",
            ) from error

    def _unreached(self, error: Any) -> HoldfastError:
        from cassandra import AuthenticationFailed

        errors = error.errors if isinstance(error.errors, Mapping) else {}
        found = ", ".join(f"{host}: {_error_line(each)}" for host, each in errors.items())
        if any(isinstance(each, AuthenticationFailed) for each in errors.values()):
            return Invalid(
                "Cassandra does not let us in",
                where=str(self.place),
                found=found,
                hint=f"set {USER} and {PASSWORD}",
            )
        return self._silent(found or _error_line(error))

    def _silent(self, found: str) -> Unavailable:
        return Unavailable(
            "Cassandra does not answer",
            where=str(self.place),
            found=found,
            hint="see that enough of its nodes run and can be reached from here;"
            f" {ADDRESS} names another way to it, {CERTIFICATES} the certificates of one with TLS",
        )


# Each is in use by somebody: several sessions with one cluster would cost threads and connections.
_CONNECTIONS: Final[weakref.WeakValueDictionary[tuple[CassandraPlace, _Login], CassandraConnection]] = (
    weakref.WeakValueDictionary()
)
_LOCK: Final = threading.Lock()


def cassandra_place(address: str, environ: Mapping[str, str] | None = None) -> CassandraPlace:
    """Return the keyspace at an address such as `cassandra://one.example:9042,two.example:9042/holdfast`.

    If HOLDFAST_CASSANDRA_ADDRESS in the environment has one address, that address replaces this one; if it
    has no keyspace, this one's is kept.

    Raises:
        Invalid: The address is not valid, or has a password in it.
    """
    environ = os.environ if environ is None else environ
    given = sole_address(environ, ADDRESS)
    where, text = (ADDRESS, given) if given else ("the address of Cassandra", address)
    points, keyspace = _parts(text)
    if given and keyspace is None:
        _, keyspace = _parts(address)
    hosts = [_POINT.fullmatch(point.strip()) for point in points.split(",")]
    found = [(host[1].strip("[]"), int(host[2] or _PORT)) for host in hosts if host is not None]
    keyspace = _DEFAULT_KEYSPACE if keyspace is None else keyspace
    if (
        len(found) < len(hosts)
        or not all(0 < port < 1 << 16 for _, port in found)
        or not _KEYSPACE.fullmatch(keyspace)
    ):
        raise Invalid(
            "this is no address of Cassandra",
            where=where,
            found="one with a user or password in it" if "@" in text else text,
            expected="cassandra://HOST:PORT,HOST:PORT/KEYSPACE",
            hint=f"a password is in {PASSWORD}, a user in {USER}",
        )
    return CassandraPlace(tuple(found), keyspace)


def _parts(text: str) -> tuple[str, str | None]:
    """Contact points and keyspace."""
    points, _, keyspace = text.removeprefix(_SCHEME).partition("/")
    return points, keyspace.strip("/") or None


def _level(name: str) -> Any:
    from cassandra import ConsistencyLevel

    return ConsistencyLevel.name_to_value[name]


def _error_line(error: BaseException) -> str:
    """Return an error of the library in one line."""
    from cassandra import OperationTimedOut

    if isinstance(error, OperationTimedOut):
        return f"no answer within {_ANSWER_S} s"
    return " ".join(str(error).split()) or type(error).__name__


def _shut_down(cluster: Any) -> None:
    # At once, so that it does not continue while Python ends.
    cluster.scheduler.is_shutdown = True
    # Not here: it waits for the library's threads, and may be called in one of them.
    threading.Thread(target=cluster.shutdown, name="end of Cassandra's session", daemon=True).start()


def _no_library(place: CassandraPlace) -> Unsupported:
    return Unsupported(
        "the library that reads Cassandra is not installed, or does not work with this Python",
        where=str(place),
        hint="pip install 'holdfast[cassandra]'",
    )
