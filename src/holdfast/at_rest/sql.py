"""SQL over states: DuckDB over Arrow tables, in this process.

The dialect is DuckDB's, which is close to PostgreSQL's. A query has access only to the states: it cannot read
files, load extensions or change settings.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.formats.sql_names import sql_identifier

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


# The maximum memory of a query in addition to the states that it reads.
_MEMORY: Final = "1GB"
ROWS: Final = "rows"
_FEW_ROWS: Final = 2048


def tables_in(query: str, known: Mapping[str, pa.Schema]) -> list[str]:
    """Return the tables that a query names, such as `regulars` and `processor.count`.

    Args:
        query: The query.
        known: The columns of each existing table.

    Raises:
        Invalid: The text is not a query, or names an unknown table.
    """
    import duckdb

    with _translate_errors(query), duckdb.connect() as connection:
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise _no_select(query)
        parsed = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    named = set(_tables(json.loads(parsed[0] if parsed else "{}")))
    # Empty tables reveal errors in the query before any state is read.
    empty = {name: schema.empty_table() for name, schema in known.items()}
    with _connected(empty) as connection, _translate_errors(query, tables=known):
        connection.execute(f"EXPLAIN {query}")
    return [name for name in known if name.lower() in named]


def _tables(parsed: Any) -> Iterator[str]:
    """Yield the names of tables in a parsed query, in lower case."""
    for node in nodes(parsed):
        if node.get("type") == "BASE_TABLE":
            schema, name = str(node.get("schema_name") or ""), str(node.get("table_name") or "")
            yield (f"{schema}.{name}" if schema else name).lower()


def nodes(parsed: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every node of SQL parsed by DuckDB, parents first."""
    if isinstance(parsed, dict):
        yield parsed
    parts = parsed.values() if isinstance(parsed, dict) else parsed if isinstance(parsed, list) else ()
    for part in parts:
        yield from nodes(part)


def _no_select(query: str) -> Invalid:
    return Invalid(
        "the SQL query is not a single SELECT statement",
        code="HF-E2027",
        found=query[:200],
        hint="write one SELECT statement; it may begin with a WITH clause: `with t as (…) select …`",
    )


def answer(
    query: str,
    tables: Mapping[str, pa.Table | pa.RecordBatchReader],
    *,
    most_rows: int | None = None,
    timeout_s: float | None = None,
) -> pa.Table:
    """Return the result of a query.

    Args:
        query: A `SELECT` in DuckDB's dialect.
        tables: The tables that the query may read, by name; a name with a dot is a table of a schema.
        most_rows: The maximum number of result rows; further rows are omitted.
        timeout_s: The maximum duration in seconds.

    Raises:
        Invalid: The query is invalid, or names an unknown table.
        Unavailable: The query exceeded the maximum duration.
    """
    with _connected(tables) as connection, _translate_errors(query), _within(connection, timeout_s):
        return _whole_numbers(_run_query(connection, query, most_rows).to_arrow_table())


@contextmanager
def streamed(
    query: str,
    tables: Mapping[str, pa.Table | pa.RecordBatchReader],
    *,
    most_rows: int | None = None,
    threads: int | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Yield the result of a query as a stream, to be read inside the block.

    Args:
        query: As for `answer`.
        tables: As for `answer`.
        most_rows: As for `answer`.
        threads: The number of DuckDB threads; the number of cores by default.

    Raises:
        Invalid: As for `answer`.
        Unavailable: The query needs more memory than allowed.
    """
    with _connected(tables, threads) as connection, _translate_errors(query):
        yield _run_query(connection, query, most_rows).to_arrow_reader(_FEW_ROWS)


def _run_query(
    connection: duckdb.DuckDBPyConnection, query: str, most_rows: int | None
) -> duckdb.DuckDBPyRelation:
    relation = connection.sql(query)
    if relation is None:
        raise _no_select(query)
    return relation if most_rows is None else relation.limit(most_rows)


def _whole_numbers(table: pa.Table) -> pa.Table:
    """Convert whole-number sums, which DuckDB returns as decimals of 38 digits, to integers if they fit."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):
            try:
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table


@contextmanager
def filtered(table: pa.RecordBatchReader, where: str) -> Iterator[pa.RecordBatchReader]:
    """Yield the rows of a stream that match a condition, as a stream to be read inside the block.

    Raises:
        Invalid: The text is not a condition on the columns.
    """
    query = f'SELECT * FROM "{ROWS}" WHERE ({where}\n)'  # noqa: S608 - it can access only the rows
    failed: list[HoldfastError] = []
    with _connected({ROWS: _noting(table, failed)}) as connection, _translate_errors(where, failed):
        relation = connection.sql(query)
        yield relation.to_arrow_reader(1 << 16)


def _noting(table: pa.RecordBatchReader, failed: list[HoldfastError]) -> pa.RecordBatchReader:
    """Return a copy of a stream that also stores its errors in `failed`, because DuckDB would lose them."""
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from table
        except HoldfastError as error:
            failed.append(error)
            raise

    return pa.RecordBatchReader.from_batches(table.schema, batches())


@contextmanager
def _connected(
    tables: Mapping[str, pa.Table | pa.RecordBatchReader], threads: int | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield an in-memory database with access only to the given tables."""
    import duckdb

    config: dict[str, Any] = {"memory_limit": _MEMORY, "temp_directory": ""}
    if threads is not None:
        config["threads"] = threads
    with duckdb.connect(config=config) as connection:
        for number, (name, table) in enumerate(tables.items()):
            alias = f"_state_{number}"
            connection.register(alias, table)
            schema, dot, own = name.partition(".")
            if dot:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {sql_identifier(schema)}")
            called = f"{sql_identifier(schema)}.{sql_identifier(own)}" if dot else sql_identifier(name)
            connection.execute(f"CREATE VIEW {called} AS SELECT * FROM {alias}")  # noqa: S608 - quoted
        lock_down(connection)
        yield connection


def lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    """Restrict a database to its own tables."""
    for setting in (
        "python_enable_replacements=false",
        "enable_external_access=false",
        "autoload_known_extensions=false",
        "autoinstall_known_extensions=false",
        "TimeZone='UTC'",
        "lock_configuration=true",
    ):
        connection.execute(f"SET {setting}")


@contextmanager
def _within(connection: duckdb.DuckDBPyConnection, timeout_s: float | None) -> Iterator[None]:
    import duckdb

    if timeout_s is None:
        yield
        return
    clock = threading.Timer(timeout_s, connection.interrupt)
    clock.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise Unavailable(
            "the SQL query exceeded its time limit",
            code="HF-E5003",
            expected=f"at most {timeout_s:g} s",
            hint=(
                "select fewer states or rows; or take a savepoint, and query it with `holdfast state"
                " scan --sql`"
            ),
        ) from error
    finally:
        clock.cancel()


@contextmanager
def _translate_errors(
    query: str, failed: Sequence[HoldfastError] = (), tables: Iterable[str] = ()
) -> Iterator[None]:
    """Convert errors of DuckDB and Arrow to Holdfast's errors; leave Holdfast's errors unchanged."""
    import duckdb

    try:
        yield
    except HoldfastError:
        raise
    except (duckdb.Error, OSError) as error:
        raise _as_ours(query, failed, tables, error) from error


def _as_ours(
    query: str, failed: Sequence[HoldfastError], tables: Iterable[str], error: Exception
) -> HoldfastError:
    import duckdb

    if failed:
        return failed[0]
    # Arrow wraps errors of DuckDB in its own errors.
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in str(error):
        return Unavailable(
            "the SQL query exceeded its memory limit",
            code="HF-E5004",
            found=_first(error),
            expected=f"at most {_MEMORY}",
            hint=(
                "select fewer states or rows; or export the state with `holdfast state scan --output"
                " FILE` and query the file"
            ),
        )
    return Invalid(
        "the SQL query is not valid",
        code="HF-E2028",
        where=query[:200],
        found=_first(error),
        expected=f"the states {', '.join(tables)}" if tables else None,
        hint="correct the query: use DuckDB's dialect, and the columns that `holdfast state list CHECKPOINT`"
        " lists",
    )


def _first(error: Any) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300] if lines else type(error).__name__
