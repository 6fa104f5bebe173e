"""Rows that tasks bring to a real server: what one of them leaves, and which of them count."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from ledger_processes import database_open, deadlock, stages

from holdfast.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.stream.sinks import sql_table
from holdfast.stream.sinks.database import Database, PartitionLoader, refusals
from holdfast.stream.sinks.ledger import Ledger, ledger
from holdfast.stream.sinks.postgresql import PostgreSQL
from holdfast.stream.sinks.sql_table import (
    SqlTable,
    StagedRows,
    TableColumn,
    columns_with_task,
    copied_by,
    require_all,
)

pytestmark = pytest.mark.services

UTC = dt.timezone.utc


@pytest.fixture
def database(ledger_address: Callable[[str], str]) -> PostgreSQL:
    return PostgreSQL(ledger_address("postgres"), 5.0)


@pytest.fixture(params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest, ledger_address: Callable[[str], str]) -> Database:
    return ledger(ledger_address(request.param)).database


@pytest.fixture
def connection(database: PostgreSQL) -> Iterator[Any]:
    opened = database.connect("looking on")
    yield opened
    opened.close()


@pytest.fixture
def looking_on(server: Database) -> Iterator[Any]:
    opened = server.connect("looking on")
    yield opened
    opened.close()


@pytest.fixture
def loader(server: Database, looking_on: Any) -> PartitionLoader:
    """What tasks have, for a staging table `stage` with a column `word`."""
    text = server.column_type("string")
    looking_on.execute(server.makes_stage(looking_on, "stage", columns_with_task([f"word {text}"])))
    found = server.loader()
    assert found is not None
    return found


def found(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    return list(connection.execute(statement).fetchall())


def batch(*values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"word": list(values)})


def test_of_a_task_that_ran_twice_one_run_counts(loader: PartitionLoader, looking_on: Any) -> None:
    assert loader.load_partition("stage", [batch("a", "b"), batch("c")], 7) == 3
    assert loader.load_partition("stage", [batch("a", "b"), batch("c")], 8) == 3
    assert loader.load_partition("stage", [batch("d"), batch()], 9) == 1
    staged = StagedRows("stage", (8, 9), 4)
    require_all(looking_on, staged)
    counted = found(looking_on, f"SELECT word FROM stage WHERE {staged.condition} ORDER BY word")
    assert counted == [("a",), ("b",), ("c",), ("d",)]
    with pytest.raises(Unavailable, match="staging table of the batch lacks rows"):
        require_all(looking_on, StagedRows("stage", (9,), 4))
    assert found(looking_on, f"SELECT 1 FROM stage WHERE {StagedRows('stage', (), 0).condition}") == []


def test_a_task_that_dies_leaves_nothing(loader: PartitionLoader, looking_on: Any) -> None:
    def dying() -> Iterator[pa.RecordBatch]:
        yield batch("a", "b")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        loader.load_partition("stage", dying(), 1)
    assert found(looking_on, "SELECT count(*) FROM stage") == [(0,)]


def test_every_value_comes_as_it_is(database: PostgreSQL, connection: Any) -> None:
    at, wall = dt.datetime(2024, 10, 27, 0, 30, 0, 2, tzinfo=UTC), dt.datetime(2024, 10, 27, 2, 30)
    rows = {
        "t": pa.array(["", None, 'a"b,c\n\\.', "\\N", "ä\t"]),
        "x": pa.array([b"", None, b"\x00\xff", b"\\x41", b"a"]),
        "d": pa.array([1.5, None, float("inf"), -0.1, 1e-300]),
        "f": pa.array([0.1, None, 1.5, 2.5, 3e38], pa.float32()),
        "n": pa.array(
            [Decimal("1.50"), None, Decimal("-0.01"), Decimal(0), Decimal(10) ** 15], pa.decimal128(20, 2)
        ),
        "at": pa.array(
            [at, None, at, dt.datetime(1, 1, 1, tzinfo=UTC), at], pa.timestamp("us", "Europe/Berlin")
        ),
        "wall": pa.array([wall, None, wall, wall, dt.datetime(9999, 12, 31)], pa.timestamp("us")),
        "day": pa.array(
            [dt.date(2024, 2, 29), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)]
        ),
        "yes": pa.array([True, None, False, True, False]),
        "i": pa.array([1, None, -(2**63), 2**63 - 1, 0], pa.int64()),
    }
    types = "t text, x bytea, d double precision, f real, n numeric(20,2), at timestamptz, wall timestamp,"
    connection.execute(
        f"CREATE TABLE stage ({columns_with_task([types + ' day date, yes boolean, i bigint'])})"
    )
    connection.execute("SET timezone = 'UTC'")
    assert database.load_partition("stage", [pa.RecordBatch.from_pydict(rows)], 3) == 5
    found = connection.execute(f"SELECT {', '.join(rows)} FROM stage").fetchall()
    expected = list(zip(*(column.to_pylist() for column in rows.values()), strict=True))
    # A float of 32 bits comes as the nearest of 64, a time of an hour that is there twice as UTC has it.
    assert [tuple(map(str, row)) for row in found if row[5] is None] == [("None",) * 10]
    assert [row for row in found if row[0] is not None] == [
        (*row[:3], pytest.approx(row[3]), row[4], row[5].astimezone(UTC), *row[6:])
        for row in expected
        if row[0] is not None
    ]


def test_times_go_to_a_column_without_a_zone_as_utc_has_them(
    database: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the zone of the role, or of the driver's process."""
    with database_open(database) as connection:
        (name,) = connection.execute("SELECT current_database()").fetchone()
        connection.execute(f"ALTER ROLE holdfast IN DATABASE {name} SET timezone = 'Europe/Berlin'")
    monkeypatch.setenv("PGTZ", "America/New_York")
    at = dt.datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
    times = SqlTable(
        "times",
        (TableColumn("at", "timestamp", str(database.column_type("timestamp")), "timestamp"),),
        "append",
    )
    book = Ledger(database)
    token = book.claim("times", "me")
    with database_open(database) as connection:
        connection.execute("CREATE TABLE times (at timestamp without time zone)")
        connection.execute(f"CREATE TABLE stage ({columns_with_task(['at timestamptz'])})")
    rows = pa.RecordBatch.from_pydict({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    database.load_partition("stage", [rows], 1)
    with book.transaction("times", "q", 0, token) as tx:
        assert tx is not None
        times._move_rows(tx, "stage", "true")
        assert tx.execute("SELECT at::timestamp FROM stage").fetchone() == (dt.datetime(2026, 7, 1, 12, 30),)
    with database_open(database) as connection:
        assert found(connection, "SELECT at FROM times") == [(dt.datetime(2026, 7, 1, 12, 30),)]


def test_what_a_task_met_is_told_to_the_driver(database: PostgreSQL, connection: Any) -> None:
    """By its answer: the text of an exception would be all that Spark passes on."""
    connection.execute(f"CREATE TABLE stage ({columns_with_task(['word text'])})")
    (answer,) = copied_by(database, "stage", "words")(iter([batch("a", "b\0c"), batch("d")]))
    assert answer.column("row_count").to_pylist() == [0]
    assert "a value of the batch does not fit into the table 'words'" in answer.column("error").to_pylist()[0]
    (answer,) = copied_by(database, "stage", "words")(iter([batch("a"), batch("d")]))
    assert (answer.column("row_count").to_pylist(), answer.column("error").to_pylist()) == ([2], [None])
    (answer,) = copied_by(database, "nowhere", "words")(iter([batch()]))
    assert answer.column("error").to_pylist() == [None]


@pytest.mark.parametrize(
    ("statement", "kind", "fact"),
    [
        ("INSERT INTO gone VALUES (1)", NotFound, "the table 'orders' no longer exists"),
        ("INSERT INTO orders (id, gone) VALUES (1, 2)", Invalid, "the table 'orders' lacks a column"),
        ("INSERT INTO orders (id) VALUES (1), (1)", Invalid, "violates a constraint of the table 'orders'"),
        ("INSERT INTO orders (id) VALUES (null)", Invalid, "violates a constraint of the table 'orders'"),
        ("INSERT INTO orders (id) VALUES (-1)", Invalid, "violates a constraint of the table 'orders'"),
        ("INSERT INTO orders (id) VALUES (99999999999)", Invalid, "does not fit into the table 'orders'"),
        ("INSERT INTO orders (id, day) VALUES (1, '2024-02-30')", Invalid, "does not fit into the table"),
        ("INSERT INTO orders (id, word) VALUES (1, 'abcdef')", Invalid, "does not fit into the table"),
    ],
)
def test_a_refusal_of_the_server_is_told(
    server: Database, looking_on: Any, statement: str, kind: type[HoldfastError], fact: str
) -> None:
    looking_on.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY CHECK (id > 0), day DATE, word VARCHAR(5))"
    )
    with pytest.raises(kind, match=fact) as caught, refusals(server, "orders"):
        looking_on.execute(statement)
    assert "p@ss" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        ("53100", "the disk of the PostgreSQL server is full"),
        ("25006", "is unreachable, or ended the session"),  # read-only, as a server after a failover
        ("25P03", "is unreachable, or ended the session"),  # idle in its transaction for too long
        ("25P04", "is unreachable, or ended the session"),  # in one transaction for too long
    ],
)
def test_what_a_server_met_is_told(database: PostgreSQL, connection: Any, state: str, fact: str) -> None:
    with pytest.raises(Unavailable, match=fact), refusals(database, "t"):
        connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'it is so' USING ERRCODE = '{state}'; END $$")


def test_a_database_that_takes_no_writes_is_told(database: PostgreSQL, connection: Any) -> None:
    connection.execute("CREATE TABLE words (word text)")
    connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(Unavailable, match="ended the session") as caught, refusals(database, "words"):
        connection.execute("INSERT INTO words VALUES ('a')")
    assert caught.value.found == "cannot execute INSERT in a read-only transaction"


def test_a_server_that_is_away_is_told(connection: Any) -> None:
    away = Ledger.postgres("postgresql://holdfast@127.0.0.1:1/nowhere", patience_s=2).database
    loader = away.loader()
    assert loader is not None
    (answer,) = copied_by(loader, "stage", "words")(iter([batch("a")]))
    assert "is unreachable" in answer.column("error").to_pylist()[0]


def test_a_staging_table_in_use_does_not_hold_a_batch_up(
    server: Database, loader: PartitionLoader, looking_on: Any
) -> None:
    """A task that Spark has given up may still write to it; what follows goes on without the drop."""
    looking_on.execute("CREATE TABLE result (n integer)")
    task = server.connect("a task")
    server.begin(task)
    task.execute("INSERT INTO stage (word, holdfast_task) VALUES ('late', 1)")
    server.begin(looking_on)
    looking_on.execute("INSERT INTO result VALUES (1)")
    server.drop_stage(looking_on, "stage")
    looking_on.execute("INSERT INTO result VALUES (2)")
    looking_on.execute("COMMIT")
    assert found(looking_on, "SELECT n FROM result ORDER BY n") == [(1,), (2,)]
    assert stages(looking_on, server, "stage") == ["stage"]
    task.close()
    server.begin(looking_on)
    server.drop_stage(looking_on, "stage")
    looking_on.execute("COMMIT")
    assert stages(looking_on, server, "stage") == []


@pytest.mark.parametrize("moves", [1, 2])
def test_rows_that_met_a_deadlock_are_moved_again_and_once(
    server: Database, looking_on: Any, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_table, "MOVES", moves)
    looking_on.execute("CREATE TABLE stage (id integer, n integer)")
    looking_on.execute("INSERT INTO stage VALUES (1, 10), (1000, 20)")
    table = SqlTable(
        "lanes",
        tuple(TableColumn(name, "int", "integer", "integer") for name in ("id", "n")),
        "upsert",
        ("id",),
    )
    book = Ledger(server)
    token = book.claim("lanes", "me")

    def move() -> None:
        with book.transaction("lanes", "q", 0, token) as tx:
            assert tx is not None
            with deadlock(server, tx.execute):
                table._move_rows(tx, "stage", "true")

    if moves == 1:
        with pytest.raises(Unavailable, match="the transaction conflicts with a concurrent transaction"):
            move()
    else:
        move()
    written = [(1, 10), (1000, 20)] if moves == 2 else [(1, 0)]
    assert found(looking_on, "SELECT id, n FROM lanes WHERE id IN (1, 1000) ORDER BY id") == written
    assert [record.batch_id for record in book.history("lanes")] == [0] * (moves - 1)
