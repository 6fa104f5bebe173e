"""The batch ledger's database in PostgreSQL, through psycopg."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.stream.sinks.database import (
    TABLES,
    Change,
    Database,
    PartitionLoader,
    breaks_rule,
    came_between,
    does_not_fit,
    gone,
    lacks_column,
    sink_digest,
)

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
# Read-only servers, such as a standby; and sessions and transactions that were idle or took too long.
_ENDED: Final = frozenset(("25006", "25P03", "25P04"))
# Waits for the standby servers that the server is configured to wait for; `remote_apply` waits longer.
_DURABLE: Final = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') <> 'remote_apply'"""
# An arbitrary number that all sessions of Holdfast use.
TABLES_LOCK = 0x486F6C64


def driver() -> ModuleType:
    """Return the psycopg module, loaded when the first ledger needs it.

    Raises:
        Unavailable: The driver is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise Unavailable(
            "the PostgreSQL driver is not installed",
            code="HF-E5061",
            found=str(error),
            hint="run `pip install 'holdfast[postgres]'`",
        ) from error
    return psycopg


@dataclass(frozen=True, slots=True)
class PostgreSQL(Database):
    """A ledger's database in PostgreSQL. In the ledger, a batch locks only the row of its sink."""

    mark = "%s"
    begins = "BEGIN"
    row_lock = " FOR UPDATE"

    dsn: str = field(repr=False)  # may contain a password
    patience_s: float

    def __post_init__(self) -> None:
        psycopg = driver()
        try:
            psycopg.conninfo.conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            # Without the cause, whose message contains the address with the password.
            raise Invalid(
                "invalid address of a PostgreSQL ledger",
                code="HF-E2375",
                expected="postgresql://user@host:port/database",
                hint="percent-encode special characters of user and database; keep the password in ~/.pgpass",
            ) from None

    @property
    def address(self) -> str:
        """Return the host, port and database, without user and password."""
        parts = driver().conninfo.conninfo_to_dict(self.dsn)
        host, port = parts.get("host") or "localhost", parts.get("port") or 5432
        return f"postgresql://{host}:{port}/{parts.get('dbname') or ''}"

    def connect(self, sink: str, token: int | None = None) -> Any:
        """Connect under an application name by which a later owner can find and end this session."""
        parts = driver().conninfo.conninfo_to_dict(self.dsn)
        parts["application_name"] = _label(sink) + ("claim" if token is None else str(token))
        parts.setdefault("connect_timeout", max(2, round(self.patience_s)))
        connection = driver().connect(**parts, autocommit=True)
        try:
            connection.execute(f"SET lock_timeout = {max(1, round(self.patience_s * 1000))}")
            connection.execute("SET client_min_messages = warning")
            # Otherwise times in a column without a time zone would be in the zone of the role, the server or
            # PGTZ.
            connection.execute("SET timezone = 'UTC'")
            # A batch counts as written when COMMIT returns, so a crash of the server must not lose it.
            connection.execute(_DURABLE)
            _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def in_transaction(self, connection: Any) -> bool:
        """Return whether a transaction is open; a failed one stays open until it is rolled back."""
        return bool(connection.info.transaction_status != driver().pq.TransactionStatus.IDLE)

    def came_between(self, error: BaseException | None, change: Change | None = None) -> bool:  # noqa: ARG002
        """Return whether the error is a deadlock or a serialization failure."""
        errors = driver().errors
        return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)

    def evict(self, sink: str) -> bool:
        """End the sessions with an open transaction of a sink; needs the same role or pg_signal_backend."""
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
            return False  # the error of the claim is more specific
        return any(row[0] for row in ended)

    def translate(self, error: BaseException) -> HoldfastError | None:
        """Return the error for an unreachable or locked server, or None for a wrong statement."""
        psycopg = driver()
        if isinstance(error, psycopg.errors.InvalidSavepointSpecification):
            return None  # an OperationalError in psycopg, but not an error of the server
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return Unavailable(
                "the ledger is locked by a different session",
                code="HF-E5057",
                where=self.address,
                found=f"still locked after {self.patience_s:g} s",
                hint="find sessions named `holdfast:…` in pg_stat_activity; start the query again once they"
                " have ended",
            )
        if self.came_between(error):
            return came_between(self.address, _first_line(error))
        if isinstance(error, psycopg.errors.DiskFull):
            return Unavailable(
                "the disk of the PostgreSQL server is full",
                code="HF-E5062",
                where=self.address,
                found=_first_line(error),
                hint="free space on the server's disk, then start the query again: it repeats the batch",
            )
        ended = getattr(error, "sqlstate", None) in _ENDED
        if ended or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Unavailable(
                "the ledger's PostgreSQL server is unreachable, or ended the session",
                code="HF-E5063",
                where=self.address,
                found=_first_line(error),
                hint="check the server with `pg_isready`, then start the query again: it resumes",
            )
        return None

    def refused(self, error: BaseException, table: str) -> HoldfastError | None:
        """Return the error for a missing table, a missing column or a rejected row, or None for others."""
        errors = driver().errors
        found = _first_line(error)
        if isinstance(error, errors.UndefinedTable):
            return gone(table, self.address, found)
        if isinstance(error, errors.UndefinedColumn):
            return lacks_column(table, self.address, found)
        if isinstance(error, errors.IntegrityConstraintViolation | errors.IntegrityError):
            detail = getattr(getattr(error, "diag", None), "message_detail", None)
            return breaks_rule(table, self.address, found + (f" ({detail})" if detail else ""))
        if isinstance(error, errors.DataError):
            return does_not_fit(table, self.address, found)
        return None

    def loader(self) -> PartitionLoader:
        """Return this database, to which executors connect directly."""
        return self

    def load_partition(self, table: str, batches: Iterable[Any], task: int) -> int:
        """Copy Arrow batches as CSV, written by Arrow without a Python loop."""
        import pyarrow.csv

        count, without_names = 0, pyarrow.csv.WriteOptions(include_header=False)
        parts = driver().conninfo.conninfo_to_dict(self.dsn)
        parts["application_name"] = "holdfast:stage"
        parts.setdefault("connect_timeout", max(2, round(self.patience_s)))
        with driver().connect(**parts) as connection, connection.cursor() as cursor:
            # A timestamp is written in UTC, without a time zone.
            cursor.execute("SET LOCAL timezone = 'UTC'")
            with cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv, ENCODING 'UTF8')") as copy:
                for batch in batches:
                    text = io.BytesIO()
                    pyarrow.csv.write_csv(_as_text(batch, task), text, without_names)
                    copy.write(text.getvalue())
                    count += batch.num_rows
        return count

    def makes_stage(self, connection: Any, stage: str, columns: str) -> str:  # noqa: ARG002
        """Return the statement for an unlogged table; after a crash of the server the batch runs again."""
        return f"CREATE UNLOGGED TABLE {stage} ({columns})"

    def drop_stage(self, connection: Any, stage: str) -> None:
        """Drop the staging table after setting a savepoint, to which a failure rolls back."""
        connection.execute("SAVEPOINT holdfast_stage")
        try:
            connection.execute("SET LOCAL lock_timeout = 1000")
            connection.execute(f"DROP TABLE IF EXISTS {stage}")
        except Exception:
            connection.execute("ROLLBACK TO SAVEPOINT holdfast_stage")

    def column_type(self, kind: str) -> str | None:
        """Return the SQL type for a Spark type; a decimal keeps its precision and scale."""
        base, bracket, rest = kind.partition("(")
        name = COLUMN_TYPES.get(base)
        return name + bracket + rest if name else None


def _as_text(batch: Any, task: int) -> Any:
    """Return an Arrow batch with types that CSV supports and with a column for the task."""
    import pyarrow as pa

    columns = []
    for column in batch.columns:
        kind = column.type
        if pa.types.is_timestamp(kind):
            columns.append(column.cast(pa.timestamp("us")))
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            columns.append(
                pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()])
            )
        else:
            columns.append(column)
    columns.append(pa.repeat(pa.scalar(task, pa.int64()), batch.num_rows))
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def _label(sink: str) -> str:
    """Return the prefix of the application names of a sink's sessions, which have at most 63 bytes."""
    return f"holdfast:{sink_digest(sink)}:"


def _make_tables(connection: Any) -> None:
    tables = connection.execute("SELECT to_regclass('holdfast_fence'), to_regclass('holdfast_batches')")
    if None not in tables.fetchone():
        return  # a role without the right to create tables may use existing ones
    connection.execute("BEGIN")
    # Two sessions that create the same table concurrently would fail in the catalog.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (TABLES_LOCK,))
    for table in TABLES:
        connection.execute(table)
    connection.execute("COMMIT")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
