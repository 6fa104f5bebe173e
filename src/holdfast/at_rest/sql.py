"""SQL over states: DuckDB over tables of Arrow, in this process.

The dialect is DuckDB's, which is close to PostgreSQL's. A query sees the states and nothing else: it can
read no file, load no extension and change no setting.
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


# What a query may take besides the states that it reads.
_MEMORY: Final = "1GB"
ROWS: Final = "rows"
_FEW_ROWS: Final = 2048


def tables_in(query: str, known: Mapping[str, pa.Schema]) -> list[str]:
    """The tables that a query names, such as `regulars` and `processor.count`.

    Args:
        query: The query.
        known: The columns of each table that there is.

    Raises:
        Invalid: It is not a query, or names something else.
    """
    import duckdb

    with _translate_errors(query), duckdb.connect() as connection:
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise _no_select(query)
        parsed = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    named = set(_tables(json.loads(parsed[0] if parsed else "{}")))
    # Tables without rows tell what is wrong with the query before anything is read.
    empty = {name: schema.empty_table() for name, schema in known.items()}
    with _connected(empty) as connection, _translate_errors(query, tables=known):
        connection.execute(f"EXPLAIN {query}")
    return [name for name in known if name.lower() in named]


def _tables(parsed: Any) -> Iterator[str]:
    """The names of tables in a query that DuckDB has parsed, in lower case."""
    for node in nodes(parsed):
        if node.get("type") == "BASE_TABLE":
            schema, name = str(node.get("schema_name") or ""), str(node.get("table_name") or "")
            yield (f"{schema}.{name}" if schema else name).lower()


def nodes(parsed: Any) -> Iterator[Mapping[str, Any]]:
    """Every node of SQL that DuckDB has parsed, those that hold others first."""
    if isinstance(parsed, dict):
        yield parsed
    parts = parsed.values() if isinstance(parsed, dict) else parsed if isinstance(parsed, list) else ()
    for part in parts:
        yield from nodes(part)


def _no_select(query: str) -> Invalid:
    return Invalid(
        "state is only asked, by one statement",
        code="HF-E2027",
        found=query[:200],
        expected="a SELECT",
        hint="write one SELECT; named parts may stand before it, as in `with t as (…) select …`",
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
        tables: What it may read, by name; a name with a dot is a table of a schema.
        most_rows: So many rows of the answer at most; the rest is left out.
        timeout_s: So long at most.

    Raises:
        Invalid: The query is wrong, or reaches for something else than the tables.
        Unavailable: It took too long.
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
    """The same as a stream of some rows at a time; read it inside the block.

    Args:
        query: As for `answer`.
        tables: As for `answer`.
        most_rows: As for `answer`.
        threads: So many threads of DuckDB; as many as there are cores by default.

    Raises:
        Invalid: As `answer`.
        Unavailable: It needs more memory than it may take.
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
    """Sums of whole numbers as such, where they fit: DuckDB gives them as decimals of 38 digits."""
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
    """The rows of a stream for which a condition holds, as a stream; read them inside the block.

    Raises:
        Invalid: It is no condition on the columns.
    """
    query = f'SELECT * FROM "{ROWS}" WHERE ({where}\n)'  # noqa: S608 - it reaches the rows and nothing else
    failed: list[HoldfastError] = []
    with _connected({ROWS: _noting(table, failed)}) as connection, _translate_errors(where, failed):
        relation = connection.sql(query)
        yield relation.to_arrow_reader(1 << 16)


def _noting(table: pa.RecordBatchReader, failed: list[HoldfastError]) -> pa.RecordBatchReader:
    """The same stream; why it fails would be lost on its way through DuckDB."""
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
    """A database in memory that knows the tables and can reach nothing else."""
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
    """Let a database reach nothing but the tables that it has."""
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
            "the query took too long",
            code="HF-E5003",
            found=f"more than {timeout_s:g} s",
            hint="ask for less, or take a savepoint and ask that with `holdfast state scan --sql`",
        ) from error
    finally:
        clock.cancel()


@contextmanager
def _translate_errors(
    query: str, failed: Sequence[HoldfastError] = (), tables: Iterable[str] = ()
) -> Iterator[None]:
    """DuckDB's errors, and those of Arrow on the way from it, as ours; ours from behind it as they were."""
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
    # Arrow tells what DuckDB says on the way to it as an error of its own.
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in str(error):
        return Unavailable(
            "the query needs more memory than it may take",
            code="HF-E5004",
            found=_first(error),
            expected=_MEMORY,
            hint="ask for less, or export the state with `holdfast state scan --to FILE` and ask that",
        )
    return Invalid(
        "the query cannot be answered",
        code="HF-E2028",
        where=query[:200],
        found=_first(error),
        expected=f"the states {', '.join(tables)}" if tables else None,
        hint="the dialect is DuckDB's; a state's columns are listed by `holdfast state list`",
    )


def _first(error: Any) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300] if lines else type(error).__name__
