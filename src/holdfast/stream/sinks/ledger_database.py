"""What a ledger needs of a database, and the two tables that it keeps there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, TypeAlias

from holdfast.errors import HoldfastError

Connection: TypeAlias = Any  # sqlite3.Connection or psycopg.Connection: two drivers, one DB-API

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


class Database(ABC):
    """What a ledger needs to know of its database. Statements mark their values with `?`.

    Attributes:
        mark: How the driver marks values.
        begins: Begins a transaction that will write.
        row_lock: What is added to a SELECT so that its row is locked until the transaction ends.
    """

    mark: ClassVar[str]
    begins: ClassVar[str]
    row_lock: ClassVar[str]

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
    def evict(self, sink: str) -> bool:
        """End the sessions of a sink's owners, where a database can; says whether it is worth another try."""

    @abstractmethod
    def translate(self, error: BaseException) -> HoldfastError | None:
        """The error to raise for one of the driver's, or None if it is the statement's own fault."""

    @abstractmethod
    def column_type(self, kind: str) -> str | None:
        """The SQL type for Spark's type `kind`, or None."""

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

    @abstractmethod
    def load(
        self, connection: Connection, table: str, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> int:
        """Put rows into the temporary table `table` outside any transaction; return how many."""


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
