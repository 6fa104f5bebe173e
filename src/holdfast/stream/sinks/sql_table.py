"""A table in a ledger's database, written by a query and its executors.

All tasks write to one staging table for this attempt of the batch. A task copies its rows in a separate
transaction and returns its number and the count of rows. So a task that dies leaves no rows, and of a task
that ran twice only the rows of one run are used: those with the number that Spark reported to the driver. The
name of the staging table includes the sink's token and the batch. The next attempt, which has a higher token,
drops the tables of failed attempts, which are never read.

A batch is first written to a staging table: on a server by the executors, in SQLite, whose file is on the
driver's disk, by the driver. Then the transaction begins that checks the fence, moves the rows and records
the batch. So the lock is held during the move but not during the computation, and a duplicate key is found
before the target is changed.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import holdfast.errors as kinds
from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.formats.sql_names import sql_identifier
from holdfast.quantities import counted
from holdfast.stream.event_time import quoted
from holdfast.stream.sinks.database import (
    TASK,
    Change,
    Connection,
    Database,
    PartitionLoader,
    StagedMove,
    identifiers,
    refusals,
    translated,
)
from holdfast.stream.sinks.delta_upsert import null_key, repeated_key, require_keys
from holdfast.stream.sinks.ledger import Ledger, Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


_ANSWER: Final = "task bigint, row_count bigint, error string"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged rows of a batch.

    Attributes:
        table: The staging table as an SQL name.
        tasks: The tasks whose rows are used.
        count: The number of rows of these tasks.
    """

    table: str
    tasks: tuple[int, ...]
    count: int

    @property
    def condition(self) -> str:
        """Return the SQL condition on the rows that are used."""
        return f"{TASK} IN ({', '.join(map(str, self.tasks))})" if self.tasks else "false"


def stage_from_executors(batch: DataFrame, table: str, loader: PartitionLoader, target: str) -> StagedRows:
    """Write a batch's rows from the executors into a table; computes the batch, in one Spark job.

    The driver receives no rows, only the answer of each task.

    Args:
        batch: The rows, with the columns of the table except the last one, `holdfast_task`.
        table: The staging table as an SQL name.
        loader: The loader that connects from an executor and copies rows.
        target: The final table, for error messages.

    Raises:
        HoldfastError: The database rejected the rows or could not be reached from an executor.
    """
    answers = batch.mapInArrow(copied_by(loader, table, target), _ANSWER).collect()
    for answer in answers:
        if answer.error is not None:
            raise _raised(answer.error)
    tasks = sorted(answer.task for answer in answers)
    return StagedRows(table, tuple(tasks), sum(answer.row_count for answer in answers))


def require_all(connection: Connection, staged: StagedRows) -> None:
    """Check that the table has all rows that the tasks reported.

    Raises:
        Unavailable: Rows are missing, for example after a crash of the server.
    """
    (count,) = connection.execute(
        f"SELECT count(*) FROM {staged.table} WHERE {staged.condition}"  # noqa: S608  ours
    ).fetchone()
    if count != staged.count:
        raise Unavailable(
            "the staging table of the batch lacks rows",
            code="HF-E5064",
            where=staged.table,
            found=counted(count, "row"),
            expected=counted(staged.count, "row"),
            hint="start the query again: it repeats the batch",
        )


def copied_by(loader: PartitionLoader, table: str, target: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function by which an executor loads the Arrow batches of a partition."""

    def copy(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = -1 if context is None else context.taskAttemptId()
        count, error = 0, None
        # No connection is opened for a partition without rows.
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is not None:
            try:
                with refusals(loader, target):
                    count = loader.load_partition(table, _chained(first, filled), task)
            except HoldfastError as ours:
                error = json.dumps({"kind": type(ours).__name__, "fact": ours.fact, **ours.facts()})
                for _ in filled:  # a worker must read its complete input
                    pass
        yield pa.RecordBatch.from_pydict(
            {
                "task": pa.array([task], pa.int64()),
                "row_count": pa.array([count], pa.int64()),
                "error": pa.array([error], pa.string()),
            }
        )

    return copy


def _chained(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _raised(text: str) -> HoldfastError:
    said = json.loads(text)
    kind, fact = getattr(kinds, said.pop("kind")), said.pop("fact")
    error: HoldfastError = kind(fact, **said)
    return error


def columns_with_task(columns: Sequence[str]) -> str:
    """Return the column definitions of a staging table, with the task column."""
    return ", ".join([*columns, f"{TASK} BIGINT NOT NULL"])


STAGE = "holdfast_stage"
# The maximum number of attempts to move staged rows, in case of conflicts with other writers.
MOVES = 4
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
PLAIN_TYPES = "numbers, decimal, string, boolean, timestamp, date and binary"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table that a query writes to.

    Attributes:
        name: The name of the column.
        kind: The Spark type.
        sql_type: The type in the database.
        made_type: The type in a table that Holdfast creates.
    """

    name: str
    kind: str
    sql_type: str
    made_type: str


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table that a query writes to, and the effect of a batch on its rows.

    Args:
        name: The table, or `schema.table`.
        columns: The query's columns.
        change: The change by a batch: `append` adds rows, `upsert` replaces the rows with the same keys,
            `replace` replaces all rows.
        keys: The key columns of an upsert.
    """

    name: str
    columns: tuple[TableColumn, ...]
    change: Change
    keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, name: str, schema: StructType, ledger: Ledger, change: Change, keys: Sequence[str] = ()
    ) -> SqlTable:
        """Return a table after checking that it can store a query's schema; opens and creates nothing.

        Raises:
            Invalid: A type is nested, two columns have the same name, a key is not a column, or the table
                name is invalid.
        """
        if not name or not all(name.split(".")) or "\0" in name:
            raise Invalid(
                "invalid table name",
                code="HF-E2384",
                found=repr(name),
                expected="`table` or `schema.table`",
                hint='write table="orders" or "shop.orders"',
            )
        columns = tuple(
            _column(field.name, field.dataType.simpleString(), ledger, name, keys) for field in schema
        )
        names = [column.name.lower() for column in columns]
        if len(set(names)) < len(names):
            repeated = [column.name for column in columns if names.count(column.name.lower()) > 1]
            raise Invalid(
                "two columns of the query have the same name, ignoring upper and lower case",
                code="HF-E2385",
                where=f"the query written to {name!r}",
                found=", ".join(repeated),
                hint="rename one of these columns with `withColumnRenamed` or `alias`",
            )
        if keys or change == "upsert":
            require_keys(keys, [column.name for column in columns], name)
        return cls(name, columns, change, tuple(keys))

    def prepare(self, ledger: Ledger) -> None:
        """Create the table if missing, and check that batches can be written to it.

        Raises:
            Invalid: The table lacks a column, or its key has no unique index.
            Unavailable: The database cannot be reached.
        """
        database = ledger.database
        lines = [f"{sql_identifier(column.name)} {column.made_type}" for column in self.columns]
        if self.keys:
            lines.append(f"PRIMARY KEY ({identifiers(self.keys)})")
        with translated(database):
            connection = database.connect(self.name)
        try:
            database.begin(connection)
            options = database.table_options(connection)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(lines)}){options}")
            database.check_table(connection, self.name, self.keys)
            # This changes no rows: it makes the database check the statements that batches will run.
            connection.execute(self._stage_like(database, connection))
            trial = self._move(STAGE, "true")
            for statement in (trial.insert,) if self.change == "replace" else database.moves(trial):
                connection.execute(statement)
            database.run(connection, "DROP TABLE " + STAGE)
            database.run(connection, "COMMIT")
        except HoldfastError:
            raise
        except Exception as error:
            raise database.translate(error) or Invalid(
                f"the table {self.name!r} does not fit the query's rows",
                code="HF-E2386",
                where=database.address,
                found=str(error).partition("\n")[0],
                expected=", ".join(lines),
                hint="alter the table, or name a new table, which the sink creates",
            ) from error
        finally:
            connection.close()

    def write(self, batch: DataFrame, transaction: Transaction) -> None:
        """Write a batch's rows into a staging table and move them to the table.

        It costs one Spark job if the executors write the rows. If the driver does, it costs one job per
        partition, with one partition's rows in the driver's memory at a time.

        Raises:
            Invalid: An upsert's key is null or occurs twice in the batch, or the table rejects a row.
            NotFound: The table does not exist any more.
        """
        loader = transaction.database.loader()
        if loader is None:
            self._write_from_driver(batch, transaction)
        else:
            self._write_from_executors(batch, transaction, loader)

    def _write_from_driver(self, batch: DataFrame, transaction: Transaction) -> None:
        database, staging = transaction.database, transaction.staging
        kinds = [column.kind for column in self.columns]
        with translated(database):
            staging.execute(self._stage_like(database, staging))
            transaction.rows = database.load(staging, STAGE, kinds, self._rows(batch))
            self._check_keys(staging, STAGE, "true")
        self._move_rows(transaction, STAGE, "true")

    def _write_from_executors(
        self, batch: DataFrame, transaction: Transaction, loader: PartitionLoader
    ) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        database, staging = transaction.database, transaction.staging
        schema, _, _ = self.name.rpartition(".")
        name = f"{transaction.stage}{transaction.token}_{transaction.batch_id}"
        stage = f"{sql_identifier(schema)}.{sql_identifier(name)}" if schema else sql_identifier(name)
        with translated(database):
            self._drop_leftovers(staging, transaction, schema)
            lines = columns_with_task(self._lines(database, staging))
            staging.execute(database.makes_stage(staging, stage, lines))
        try:
            rows = batch.select(*(F.col(quoted(column.name)) for column in self.columns))
            staged = stage_from_executors(rows, stage, loader, self.name)
            transaction.rows = staged.count
            with translated(database):
                require_all(staging, staged)
                self._check_keys(staging, stage, staged.condition)
        except BaseException:
            with suppress(Exception):  # the next attempt drops the table, too
                staging.execute(f"DROP TABLE {stage}")
            raise
        self._move_rows(transaction, stage, staged.condition)
        if database.drops_within:
            with translated(database):
                database.drop_stage(transaction.connection, stage)
        else:
            transaction.afterwards.append(lambda: database.drop_stage(staging, stage))

    def _move_rows(self, transaction: Transaction, stage: str, condition: str) -> None:
        """Move staged rows in the transaction, or in a new one after a conflict."""
        database = transaction.database
        for tries in range(MOVES):
            connection = transaction.connection
            try:
                with refusals(database, self.name):
                    # Without values: if given values, even none, psycopg replaces placeholders, and a name
                    # may contain `%`.
                    for statement in database.moves(self._move(stage, condition)):
                        connection.execute(statement)
                return
            except HoldfastError as error:
                if tries == MOVES - 1 or not database.came_between(error.__cause__, self.change):
                    raise
                transaction.begin_again()

    def _drop_leftovers(self, connection: Connection, transaction: Transaction, schema: str) -> None:
        """Drop the staging tables of earlier attempts and former owners, but not those of a later owner."""
        database = transaction.database
        of_schema = f"WHERE table_schema = coalesce(?, {database.own_schema})"
        statement = f"SELECT table_name FROM information_schema.tables {of_schema}"  # noqa: S608  ours
        listed = database.run(connection, statement, (schema or None,)).fetchall()
        for (name,) in listed:
            token = name.removeprefix(transaction.stage).partition("_")[0]
            ours = name.startswith(transaction.stage) and token.isdecimal()
            if not ours or int(token) > transaction.token:
                continue
            table = f"{sql_identifier(schema)}.{sql_identifier(name)}" if schema else sql_identifier(name)
            database.begin(connection)
            database.drop_stage(connection, table)
            database.run(connection, "COMMIT")

    def _rows(self, batch: DataFrame) -> Iterator[tuple[Any, ...]]:
        from pyspark.sql import functions as F  # noqa: N812

        # Collected directly, a timestamp would be in this machine's time zone, and ambiguous once a year.
        selected = [
            F.unix_micros(cell) if column.kind == "timestamp" else cell
            for column, cell in ((column, F.col(quoted(column.name))) for column in self.columns)
        ]
        instants = {at for at, column in enumerate(self.columns) if column.kind == "timestamp"}
        for row in batch.select(*selected).toLocalIterator():
            yield tuple(
                _instant(value) if at in instants and value is not None else value
                for at, value in enumerate(row)
            )

    def _check_keys(self, connection: Connection, stage: str, condition: str) -> None:
        if not self.keys:
            return
        nulls = " OR ".join(f"{sql_identifier(key)} IS NULL" for key in self.keys)
        (count,) = connection.execute(
            f"SELECT count(*) FROM {stage} WHERE {condition} AND ({nulls})"  # noqa: S608  quoted names
        ).fetchone()
        if count:
            raise null_key(f"table {self.name!r}", count, self.keys)
        keys = identifiers(self.keys)
        twice = connection.execute(
            f"SELECT {keys}, count(*) FROM {stage} WHERE {condition}"  # noqa: S608  quoted names
            f" GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if twice:
            key = ", ".join(f"{name}={value!r}" for name, value in zip(self.keys, twice, strict=False))
            raise repeated_key(f"table {self.name!r}", twice[-1], key)

    @property
    def _table(self) -> str:
        return ".".join(sql_identifier(part) for part in self.name.split("."))

    def _stage_like(self, database: Database, connection: Connection) -> str:
        return f"CREATE TEMPORARY TABLE {STAGE} ({', '.join(self._lines(database, connection))})"

    def _lines(self, database: Database, connection: Connection) -> list[str]:
        types = [(column.name, column.sql_type) for column in self.columns]
        staged = database.stage_types(connection, self.name, types, self.keys)
        return [f"{sql_identifier(name)} {sql_type}" for name, sql_type in staged]

    def _move(self, stage: str, condition: str) -> StagedMove:
        names = tuple(column.name for column in self.columns)
        return StagedMove(stage, condition, self._table, names, self.keys, self.change)


def _column(name: str, kind: str, ledger: Ledger, table: str, keys: Sequence[str]) -> TableColumn:
    database = ledger.database
    sql_type = database.column_type(kind)
    made_type = database.key_type(kind, len(keys)) if name in keys else sql_type
    if sql_type is None or made_type is None:
        raise Invalid(
            f"column {name!r} has a type that a table cannot store",
            code="HF-E2387",
            where=f"the query written to {table!r}",
            found=kind,
            expected=PLAIN_TYPES,
            hint="split the column into fields with `select`, or write it as text with `to_json`",
        )
    return TableColumn(name, kind, sql_type, made_type)


def _instant(micros: int) -> dt.datetime:
    try:
        return EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError as error:
        raise Invalid(
            "a timestamp is outside Python's range",
            code="HF-E2388",
            found=f"{micros} microseconds since 1970",
            expected="-62135596800000000 to 253402300799999999 microseconds, the years 1 to 9999",
            hint="filter such rows out, or write the column as text",
        ) from error
