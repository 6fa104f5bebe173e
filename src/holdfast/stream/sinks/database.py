"""The interface of a ledger's database, and its tables and errors."""

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
    """A deadlock, or what another writer has changed meanwhile."""
    return Unavailable(
        "another transaction came between",
        code="HF-E5055",
        where=address,
        found=found,
        hint="start the query again: it repeats the batch",
    )


def gone(table: str, address: str, found: str) -> NotFound:
    """The table does not exist."""
    return NotFound(
        f"the table {table!r} is gone",
        code="HF-E3063",
        where=address,
        found=found,
        hint="start the query again: it makes the table anew, without the rows of earlier batches",
    )


def lacks_column(table: str, address: str, found: str) -> Invalid:
    """The query has a column that the table has not."""
    return Invalid(
        f"the table {table!r} lacks a column of the query",
        code="HF-E2352",
        where=address,
        found=found,
        hint="add the column with ALTER TABLE, or take it out of the query; then start it again",
    )


def breaks_rule(table: str, address: str, found: str) -> Invalid:
    """A row breaks a rule such as UNIQUE."""
    return Invalid(
        f"a row of the batch breaks a rule of the table {table!r}",
        code="HF-E2353",
        where=address,
        found=found,
        hint="filter such rows out, upsert by the columns of the rule, or drop the rule; no row of"
        " the batch is in the table",
    )


def does_not_fit(table: str, address: str, found: str) -> Invalid:
    """A value is too large for its column, or is none of its type."""
    return Invalid(
        f"a value of the batch does not fit into the table {table!r}",
        code="HF-E2354",
        where=address,
        found=found,
        hint="give the column a wider type, or filter such rows out; no row of the batch is in the table",
    )


# sqlite3.Connection, psycopg.Connection, or MySQL's driver with a method `execute` as these have it.
Connection: TypeAlias = Any
Change: TypeAlias = Literal["append", "upsert", "replace"]

# The last column of a staging table: the number of the task that brought the row.
TASK: Final = "holdfast_task"

TABLES = (
    """CREATE TABLE IF NOT EXISTS holdfast_fence (
         sink TEXT PRIMARY KEY, token BIGINT NOT NULL, claimed_ms BIGINT NOT NULL, owner TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS holdfast_batches (
         sink TEXT NOT NULL, query_id TEXT NOT NULL, batch_id BIGINT NOT NULL, token BIGINT NOT NULL,
         "rows" BIGINT, committed_ms BIGINT NOT NULL, PRIMARY KEY (sink, query_id, batch_id))""",
)


class PartitionLoader(Protocol):
    """A loader of rows for executors; it is pickled with the task."""

    def load_partition(self, table: str, batches: Iterable[Any], task: int) -> int:
        """Copy Arrow batches into a table in a transaction of its own; return how many rows.

        Args:
            table: The table, as SQL names it: the columns of the batches, and one for the task.
            batches: The rows.
            task: What the last column is to hold.
        """

    def translate(self, error: BaseException) -> HoldfastError | None:
        """The error to raise for one of the driver's, or None if it is the statement's own fault."""

    def refused(self, error: BaseException, table: str) -> HoldfastError | None:
        """The error for a table that does not take a batch's rows, or None if that is not why it failed."""


@dataclass(frozen=True, slots=True)
class StagedMove:
    """Rows that go from a staging table into a table.

    Attributes:
        stage: The staging table, as SQL names it.
        condition: What is true of a row that counts.
        table: The table, as SQL names it.
        names: The columns.
        keys: The columns of an upsert's key.
        change: What becomes of the rows that exist.
    """

    stage: str
    condition: str
    table: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    change: Change

    @property
    def insert(self) -> str:
        """Adds the rows."""
        names = identifiers(self.names)
        return (
            f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {self.stage}"  # noqa: S608  quoted names
            f" WHERE {self.condition}"
        )

    @property
    def others(self) -> tuple[str, ...]:
        """The columns beside the key."""
        return tuple(name for name in self.names if name not in self.keys)


class Database(ABC):
    """The interface of a ledger's database. Statements mark their values with `?`.

    Attributes:
        mark: How the driver marks values.
        begins: Begins a transaction that will write.
        row_lock: What is added to a SELECT so that its row is locked until the transaction ends.
        own_schema: The schema of a table whose name has none, in SQL.
        drops_within: Whether a table can be dropped in a transaction, and stays if that is rolled back.
    """

    mark: ClassVar[str]
    begins: ClassVar[str]
    row_lock: ClassVar[str]
    own_schema: ClassVar[str] = "current_schema()"
    drops_within: ClassVar[bool] = True
    # A claim's token is one more than the last, or the first of the leader's term; none beyond that term.
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
        """The address of the database for messages, without a password."""

    @abstractmethod
    def connect(self, sink: str, token: int | None = None) -> Connection:
        """Open a connection outside a transaction, with the ledger's tables made."""

    def run(self, connection: Connection, statement: str, values: Sequence[object] = ()) -> Any:
        """Run one of Holdfast's own statements and return the driver's cursor."""
        return connection.execute(statement.replace("?", self.mark), tuple(values))

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that will write."""
        connection.execute(self.begins)

    @abstractmethod
    def in_transaction(self, connection: Connection) -> bool:
        """Return whether a transaction is open, also a failed one; called after an error of a statement."""

    def came_between(
        self,
        error: BaseException | None,  # noqa: ARG002  for those with many writers
        change: Change | None = None,  # noqa: ARG002
    ) -> bool:
        """Return whether a concurrent transaction may have caused the error, so that a retry may help.

        Args:
            error: The driver's.
            change: What it was that failed, if it was one of `moves`.
        """
        return False

    @abstractmethod
    def evict(self, sink: str) -> bool:
        """End the sessions of a sink's owners, where a database can; says whether it is worth another try."""

    @abstractmethod
    def translate(self, error: BaseException) -> HoldfastError | None:
        """The error to raise for one of the driver's, or None if it is the statement's own fault."""

    @abstractmethod
    def column_type(self, kind: str) -> str | None:
        """The SQL type for Spark's type `kind`, or None."""

    def key_type(self, kind: str, keys: int) -> str | None:  # noqa: ARG002  for those that bound a key's length
        """The SQL type of a key's column in a table that is made, or None.

        Args:
            kind: Spark's type.
            keys: How many columns the key has.
        """
        return self.column_type(kind)

    def table_options(self, connection: Connection) -> str:  # noqa: ARG002  for those that have versions
        """Return the text behind the columns in a statement that creates a table."""
        return ""

    def check_table(self, connection: Connection, table: str, keys: Sequence[str]) -> None:  # noqa: B027
        """See that a table keeps what its batches rely on, where `moves` alone would not show it.

        Args:
            connection: A connection.
            table: The table, `table` or `schema.table`.
            keys: The columns of an upsert's key; empty for other changes.

        Raises:
            Invalid: It does not.
        """

    def stage_types(
        self,
        connection: Connection,  # noqa: ARG002  for those whose texts have collations
        table: str,  # noqa: ARG002
        types: Sequence[tuple[str, str]],
        keys: Sequence[str],  # noqa: ARG002
    ) -> list[tuple[str, str]]:
        """The columns of a staging table and their types, for rows that go to a table that exists.

        Args:
            connection: A connection.
            table: The table, `table` or `schema.table`.
            types: The columns, each with what `column_type` gives for it.
            keys: The columns of an upsert's key.
        """
        return list(types)

    def makes_stage(self, connection: Connection, stage: str, columns: str) -> str:
        """The statement that makes a table for the rows of one attempt, into which executors write."""
        return f"CREATE TABLE {stage} ({columns}){self.table_options(connection)}"

    def drop_stage(self, connection: Connection, stage: str) -> None:
        """Drop a staging table, unless a task writes to it; called within a transaction, which continues.

        A task that was given up may still write to it, or it is somebody else's. Its rows count nowhere, and
        the next batch tries again.
        """
        raise NotImplementedError

    def moves(self, move: StagedMove) -> tuple[str, ...]:
        """The statements that move staged rows into a table, in this order.

        Of an upsert they find the rows by its key alone: a row that breaks another rule of the table is
        refused.
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
        """The error for a table that does not take a batch's rows, or None if that is not why it failed.

        Args:
            error: The driver's.
            table: The table's name.
        """

    def loader(self) -> PartitionLoader | None:
        """Return the loader of rows for executors; None if only the driver reaches the database."""
        return None

    def load(
        self, connection: Connection, table: str, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> int:
        """Put rows into the temporary table `table` outside any transaction; return how many.

        Only where `loader` gives None.
        """
        raise NotImplementedError


def sink_digest(sink: str) -> str:
    """A sink's name where names are short: in labels of sessions, and names of staging tables."""
    return hashlib.sha256(sink.encode()).hexdigest()[:16]


def identifiers(names: Iterable[str]) -> str:
    """Names in SQL, one behind the other."""
    return ", ".join(map(sql_identifier, names))


@contextmanager
def translated(database: Database | PartitionLoader) -> Iterator[None]:
    """Raise Holdfast's error for what went wrong in the database itself."""
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
    """Raise Holdfast's error for what went wrong in the database, or for what the table does not take."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        ours = database.refused(error, table) or database.translate(error)
        if ours is None:
            raise
        raise ours from error
