"""A ledger's database in PostgreSQL, through psycopg."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.stream.sinks.ledger_database import TABLES, Database

COLUMN_TYPES = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "decimal": "numeric",
    "string": "text",
    "boolean": "boolean",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "date": "date",
    "binary": "bytea",
}
# Any number will do, as long as all of Holdfast's sessions agree on it.
TABLES_LOCK = 0x486F6C64


def driver() -> ModuleType:
    """The psycopg module, loaded when the first ledger needs it.

    Raises:
        Unavailable: It is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise Unavailable(
            "the PostgreSQL driver is not installed",
            found=str(error),
            hint="pip install 'holdfast[postgres]'",
        ) from error
    return psycopg


@dataclass(frozen=True, slots=True)
class PostgreSQL(Database):
    """One database. A batch locks the row of its sink, nothing else of the ledger."""

    mark = "%s"
    begins = "BEGIN"
    row_lock = " FOR UPDATE"

    dsn: str = field(repr=False)  # may hold a password
    patience_s: float

    def __post_init__(self) -> None:
        psycopg = driver()
        try:
            psycopg.conninfo.conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            # Without the cause: its text repeats the address, password and all.
            raise Invalid(
                "the address of the PostgreSQL ledger cannot be understood",
                expected="postgresql://user@host:port/database",
                hint="percent-encode other signs than letters and digits; keep the password in ~/.pgpass",
            ) from None

    @property
    def address(self) -> str:
        """Host, port and database."""
        parts = driver().conninfo.conninfo_to_dict(self.dsn)
        host, port = parts.get("host") or "localhost", parts.get("port") or 5432
        return f"postgresql://{host}:{port}/{parts.get('dbname') or ''}"

    def connect(self, sink: str, token: int | None = None) -> Any:
        """Connect under a name by which a later owner can find this session and end it."""
        parts = driver().conninfo.conninfo_to_dict(self.dsn)
        parts["application_name"] = _label(sink) + ("claim" if token is None else str(token))
        parts.setdefault("connect_timeout", max(2, round(self.patience_s)))
        connection = driver().connect(**parts, autocommit=True)
        try:
            connection.execute(f"SET lock_timeout = {max(1, round(self.patience_s * 1000))}")
            connection.execute("SET client_min_messages = warning")
            _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def evict(self, sink: str) -> bool:
        """End the sessions that hold a sink's transaction open. Needs the same role, or pg_signal_backend."""
        psycopg = driver()
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                ended = connection.execute(
                    """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                       WHERE datname = current_database() AND application_name LIKE %s
                         AND application_name NOT LIKE %s AND state <> 'idle'""",
                    (_label(sink) + "%", _label(sink) + "claim"),
                ).fetchall()
        except psycopg.Error:
            return False  # the claim's own error says more
        return any(row[0] for row in ended)

    def translate(self, error: BaseException) -> HoldfastError | None:
        """Tell a server that is away or locked from a wrong statement."""
        psycopg = driver()
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return Unavailable(
                "the ledger is locked by another session",
                where=self.address,
                found=f"still locked after {self.patience_s:g} s",
                hint="see pg_stat_activity for sessions named `holdfast:…`",
            )
        if isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected):
            return Conflict(
                "another transaction came between",
                where=self.address,
                found=_first_line(error),
                hint="start the query again: it repeats the batch",
            )
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Unavailable(
                "the ledger's PostgreSQL server cannot be reached, or ended the session",
                where=self.address,
                found=_first_line(error),
                hint="see whether the server runs, with `pg_isready`; the query goes on where it stopped",
            )
        return None

    def column_type(self, kind: str) -> str | None:
        """The type of a column; a decimal keeps its precision and scale."""
        base, bracket, rest = kind.partition("(")
        name = COLUMN_TYPES.get(base)
        return name + bracket + rest if name else None

    def load(self, connection: Any, table: str, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> int:
        """Copy rows in, the server's fastest road."""
        count = 0
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row([bytes(v) if isinstance(v, bytearray) else v for v in row])
                count += 1
        del kinds  # the driver knows how to write every type
        return count


def _label(sink: str) -> str:
    """Begins the application name of all sessions of a sink; names are cut at 63 bytes, so a digest."""
    return f"holdfast:{hashlib.sha256(sink.encode()).hexdigest()[:16]}:"


def _make_tables(connection: Any) -> None:
    tables = connection.execute("SELECT to_regclass('holdfast_fence'), to_regclass('holdfast_batches')")
    if None not in tables.fetchone():
        return  # a role that may only use the tables need not be able to make them
    connection.execute("BEGIN")
    # Two sessions that make one table at the same time would fail in the catalog.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (TABLES_LOCK,))
    for table in TABLES:
        connection.execute(table)
    connection.execute("COMMIT")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
