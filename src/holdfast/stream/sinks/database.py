"""The interface to a ledger's database: connections, tables and errors."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

from holdfast.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.formats.sql_names import sql_identifier


def came_between(address: str, found: str) -> Unavailable:
    """Return the error for a deadlock or a concurrent change."""
    return Unavailable(
        "the transaction conflicts with a concurrent transaction",
        code="HF-E5055",
        where=address,
        found=found,
        hint="start the query again: it repeats the batch",
    )


def gone(table: str, address: str, found: str) -> NotFound:
    """Return the error for a table that was dropped."""
    return NotFound(
        f"the table {table!r} no longer exists",
        code="HF-E3063",
        where=address,
        found=found,
        hint="start the query again: it recreates the table, but not the rows of earlier batches",
    )


def lacks_column(table: str, address: str, found: str) -> Invalid:
    """Return the error for a column of the query that the table lacks."""
    return Invalid(
        f"the table {table!r} lacks a column of the query",
        code="HF-E2352",
        where=address,
        found=found,
        hint="add the column with ALTER TABLE, or drop it from the query; then start the query again",
    )


def breaks_rule(table: str, address: str, found: str) -> Invalid:
    """Return the error for a row that violates a constraint such as UNIQUE."""
    return Invalid(
        f"a row of the batch violates a constraint of the table {table!r}",
        code="HF-E2353",
        where=address,
        found=found,
        hint="filter such rows out, upsert by the columns of the constraint, or drop the constraint; no row"
        " of the batch was written",
    )


def does_not_fit(table: str, address: str, found: str) -> Invalid:
    """Return the error for a value that is too large for its column, or of a different type."""
    return Invalid(
        f"a value of the batch does not fit into the table {table!r}",
        code="HF-E2354",
        where=address,
        found=found,
        hint="give the column a wider type, or filter such rows out; no row of the batch was written",
    )


# A sqlite3.Connection, a psycopg.Connection, or MySQL's driver with an `execute` method like theirs.
Connection: TypeAlias = Any
Change: TypeAlias = Literal["append", "upsert", "replace"]

# The last column of a staging table: the number of the task that wrote the row.
TASK: Final = "holdfast_task"

TABLES = (
    """CREATE TABLE IF NOT EXISTS holdfast_fence (
         sink TEXT PRIMARY KEY, token BIGINT NOT NULL, claimed_ms BIGINT NOT NULL, owner TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS holdfast_batches (
         sink TEXT NOT NULL, query_id TEXT NOT NULL, batch_id BIGINT NOT NULL, token BIGINT NOT NULL,
         "rows" BIGINT, committed_ms BIGINT NOT NULL, PRIMARY KEY (sink, query_id, batch_id))""",
)


class PartitionLoader(Protocol):
    """A function that writes rows from executors to a database; it is pickled with the task."""

    def load_partition(self, table: str, batches: Iterable[Any], task: int) -> int:
        """Copy Arrow batches into a table in a separate transaction; return the number of rows.

        Args:
            table: The table as an SQL name; it has the columns of the batches, and one for the task.
            batches: The rows.
            task: The value of the last column.
        """

    def translate(self, error: BaseException) -> HoldfastError | None:
        """Return the error to raise for a driver's error, or None if the statement is wrong."""

    def refused(self, error: BaseException, table: str) -> HoldfastError | None:
        """Return the error to raise if a table rejects a batch's rows, or None for any other cause."""


@dataclass(frozen=True, slots=True)
class StagedMove:
    """A move of rows from a staging table into a table.

    Attributes:
        stage: The staging table, as an SQL name.
        condition: The SQL condition on the rows to move.
        table: The target table, as an SQL name.
        names: The columns.
        keys: The key columns of an upsert.
        change: The change of the target: "append", "upsert" or "replace".
    """

    stage: str
    condition: str
    table: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    change: Change

    @property
    def insert(self) -> str:
        """Return the SQL statement that inserts the rows."""
        names = identifiers(self.names)
        return (
            f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {self.stage}"  # noqa: S608  quoted names
            f" WHERE {self.condition}"
        )

    @property
    def others(self) -> tuple[str, ...]:
        """Return the columns that are not key columns."""
        return tuple(name for name in self.names if name not in self.keys)


class Database(ABC):
    """The interface to a ledger's database. In statements, `?` is the placeholder of a value.

    Attributes:
        mark: The driver's placeholder of a value.
        begins: The statement that begins a writing transaction.
        row_lock: The suffix of a SELECT that locks its row until the transaction ends.
        own_schema: The default schema, in SQL.
        drops_within: Whether DROP TABLE is part of a transaction and is rolled back with it.
    """

    mark: ClassVar[str]
    begins: ClassVar[str]
    row_lock: ClassVar[str]
    own_schema: ClassVar[str] = "current_schema()"
    drops_within: ClassVar[bool] = True
    # The token of a claim is one more than the last one, or the first of the leader's term, but never beyond
    # the term.
    claims: ClassVar[str] = """
        INSERT INTO holdfast_fence (sink, token, claimed_ms, owner) VALUES (?, ?, ?, ?)
        ON CONFLICT (sink) DO UPDATE SET token = CASE
            WHEN holdfast_fence.token < excluded.token THEN excluded.token
            ELSE holdfast_fence.token + 1 END,
          claimed_ms = excluded.claimed_ms, owner = excluded.owner
        WHERE holdfast_fence.token < ?"""

    @property
    @abstractmethod
    def address(self) -> str:
        """Return the address of the database for error messages, without a password."""

    @abstractmethod
    def connect(self, sink: str, token: int | None = None) -> Connection:
        """Open a connection outside a transaction, and create the ledger's tables."""

    def run(self, connection: Connection, statement: str, values: Sequence[object] = ()) -> Any:
        """Run one of Holdfast's own statements and return the driver's cursor."""
        return connection.execute(statement.replace("?", self.mark), tuple(values))

    def begin(self, connection: Connection) -> None:
        """Begin a writing transaction."""
        connection.execute(self.begins)

    @abstractmethod
    def in_transaction(self, connection: Connection) -> bool:
        """Return whether a transaction is open or has failed; called after an error of a statement."""

    def came_between(
        self,
        error: BaseException | None,  # noqa: ARG002  for those with many writers
        change: Change | None = None,  # noqa: ARG002
    ) -> bool:
        """Return whether a concurrent transaction may have caused the error, so that a retry may succeed.

        Args:
            error: The driver's error.
            change: The kind of change that failed, if the statement is from `moves`.
        """
        return False

    @abstractmethod
    def evict(self, sink: str) -> bool:
        """End the sessions of a sink's owners, if the database can; return whether a retry may succeed."""

    @abstractmethod
    def translate(self, error: BaseException) -> HoldfastError | None:
        """Return the error to raise for a driver's error, or None if the statement is wrong."""

    @abstractmethod
    def column_type(self, kind: str) -> str | None:
        """Return the SQL type for a Spark type, or None if there is none."""

    def key_type(self, kind: str, keys: int) -> str | None:  # noqa: ARG002  for those that bound a key's length
        """Return the SQL type of a key column in a new table, or None if there is none.

        Args:
            kind: The Spark type of the column.
            keys: The number of key columns.
        """
        return self.column_type(kind)

    def table_options(self, connection: Connection) -> str:  # noqa: ARG002  for those that have versions
        """Return the table options at the end of a CREATE TABLE statement."""
        return ""

    def check_table(self, connection: Connection, table: str, keys: Sequence[str]) -> None:  # noqa: B027
        """Check the properties of a table that batches rely on and that the statements of `moves` do not
        test.

        Args:
            connection: A connection.
            table: The name of the table, `table` or `schema.table`.
            keys: The key columns of an upsert; empty for other changes.

        Raises:
            Invalid: The table lacks a required property.
        """

    def stage_types(
        self,
        connection: Connection,  # noqa: ARG002  for those whose texts have collations
        table: str,  # noqa: ARG002
        types: Sequence[tuple[str, str]],
        keys: Sequence[str],  # noqa: ARG002
    ) -> list[tuple[str, str]]:
        """Return the columns of a staging table and their types, for rows of an existing table.

        Args:
            connection: A connection.
            table: The name of the table, `table` or `schema.table`.
            types: The columns, each with its `column_type`.
            keys: The key columns of an upsert.
        """
        return list(types)

    def makes_stage(self, connection: Connection, stage: str, columns: str) -> str:
        """Return the statement that creates a staging table, into which executors write the rows of one
        attempt.
        """
        return f"CREATE TABLE {stage} ({columns}){self.table_options(connection)}"

    def drop_stage(self, connection: Connection, stage: str) -> None:
        """Drop a staging table, unless a task is writing to it; called within a transaction, which continues.

        An abandoned task may still be writing to the table, or the table may belong to a different owner. Its
        rows are never used, and the next batch tries to drop it again.
        """
        raise NotImplementedError

    def moves(self, move: StagedMove) -> tuple[str, ...]:
        """Return the statements that move staged rows into a table, in order.

        An upsert matches existing rows by its key only; a row that violates a different constraint of the
        table is rejected.
        """
        if move.change == "append":
            return (move.insert,)
        if move.change == "replace":
            return (f"DELETE FROM {move.table}", move.insert)  # noqa: S608  a quoted name
        sets = ", ".join(f"{name} = excluded.{name}" for name in map(sql_identifier, move.others))
        then = f"UPDATE SET {sets}" if sets else "NOTHING"
        return (f"{move.insert} ON CONFLICT ({identifiers(move.keys)}) DO {then}",)

    @abstractmethod
    def refused(self, error: BaseException, table: str) -> HoldfastError | None:
        """Return the error to raise if a table rejects a batch's rows, or None for any other cause.

        Args:
            error: The driver's error.
            table: The name of the table.
        """

    def loader(self) -> PartitionLoader | None:
        """Return the loader for executors, or None if only the driver can reach the database."""
        return None

    def load(
        self, connection: Connection, table: str, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> int:
        """Insert rows into the temporary table `table` outside any transaction, and return their number.

        Called only if `loader` returns None.
        """
        raise NotImplementedError


def sink_digest(sink: str) -> str:
    """Return a digest of a sink's name, for the labels of sessions and the names of staging tables."""
    return hashlib.sha256(sink.encode()).hexdigest()[:16]


def identifiers(names: Iterable[str]) -> str:
    """Return quoted SQL names, separated by commas."""
    return ", ".join(map(sql_identifier, names))


@contextmanager
def translated(database: Database | PartitionLoader) -> Iterator[None]:
    """Raise a Holdfast error in place of an error of the database."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        ours = database.translate(error)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def refusals(database: Database | PartitionLoader, table: str) -> Iterator[None]:
    """Raise a Holdfast error in place of an error of the database, or if the table rejects rows."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        ours = database.refused(error, table) or database.translate(error)
        if ours is None:
            raise
        raise ours from error
