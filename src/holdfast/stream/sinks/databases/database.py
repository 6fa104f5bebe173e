"""What a ledger needs of a database, and the two tables that it keeps there."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.formats.sql_names import sql_identifier

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
    """What an executor needs of a database to bring rows in; it is pickled with the task."""

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
class Move:
    """Rows that go from a staging table into a table.

    Attributes:
        stage: The staging table, as SQL names it.
        condition: What is true of a row that counts.
        table: The table, as SQL names it.
        names: The columns.
        keys: The columns of an upsert's key.
        change: What becomes of the rows that are there.
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
    """What a ledger needs to know of its database. Statements mark their values with `?`.

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
        """Where the database is, fit to be shown: without a password."""

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
        """Whether a transaction goes on, also one that has failed; asked after an error of a statement."""

    def came_between(
        self,
        error: BaseException | None,  # noqa: ARG002  for those with many writers
        change: Change | None = None,  # noqa: ARG002
    ) -> bool:
        """Whether another transaction may be why a statement failed, so that a new one is worth a try.

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
        """What stands behind the columns in a statement that makes a table."""
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
        """The columns of a staging table and their types, for rows that go to a table that is there.

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
        """Drop a staging table, unless a task writes to it; called within a transaction, which goes on.

        A task that was given up may still write to it, or it is somebody else's. Its rows count nowhere, and
        the next batch tries again.
        """
        raise NotImplementedError

    def moves(self, move: Move) -> tuple[str, ...]:
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
        """What executors bring rows in with; None where only the driver reaches the database."""
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
