"""Rows that tasks bring into a real MariaDB, and how an upsert finds the rows that are there."""

from __future__ import annotations

import datetime as dt
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pymysql
import pytest
from ledger_processes import database_open, rival
from required import require
from self_signed import self_signed

from holdfast.errors import HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.stream.sinks import mysql
from holdfast.stream.sinks.database import StagedMove, refusals, translated
from holdfast.stream.sinks.ledger import Ledger
from holdfast.stream.sinks.mysql import MySQL, client_options
from holdfast.stream.sinks.sql_table import SqlTable, TableColumn, columns_with_task, copied_by
from holdfast_bench.tables.mariadb import MariaDB

pytestmark = pytest.mark.services


@pytest.fixture
def database(ledger_address: Callable[[str], str]) -> MySQL:
    return MySQL(ledger_address("mysql"), 5.0)


@pytest.fixture
def connection(database: MySQL) -> Iterator[Any]:
    opened = database.connect("looking on")
    yield opened
    opened.close()


@pytest.fixture
def stage(database: MySQL, connection: Any) -> Callable[..., None]:
    """Makes the staging table `stage` of the columns."""

    def make(*columns: str) -> None:
        connection.execute("DROP TABLE IF EXISTS stage")
        connection.execute(database.makes_stage(connection, "stage", columns_with_task(columns)))

    return make


def batch(*values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"word": list(values)})


def found(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    return list(connection.execute(statement).fetchall())


def test_every_value_comes_as_it_is(database: MySQL, connection: Any, stage: Callable[..., None]) -> None:
    at, wall = (
        dt.datetime(2024, 10, 27, 0, 30, 0, 2, tzinfo=dt.timezone.utc),
        dt.datetime(2024, 10, 27, 2, 30),
    )
    columns = {
        "t": pa.array(["", None, "a\"b,c\n\\.'; DROP TABLE stage; --", "\\N\0%s", "ä\t👋 "]),
        "x": pa.array([b"", None, b"\x00\xff", b"\\x41'", b"a"]),
        "d": pa.array([1.5, None, -1.7976931348623157e308, -0.1, 1e-300]),
        "f": pa.array([0.1, None, 1.5, 2.5, 3e38], pa.float32()),
        "n": pa.array(
            [Decimal("1.50"), None, Decimal("-0.00000001"), Decimal(0), Decimal(10) ** 15],
            pa.decimal128(30, 8),
        ),
        "at": pa.array(
            [at, None, at, dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc), at],
            pa.timestamp("us", "Europe/Berlin"),
        ),
        "wall": pa.array([wall, None, wall, wall, dt.datetime(9999, 12, 31)], pa.timestamp("us")),
        "day": pa.array(
            [dt.date(2024, 2, 29), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)]
        ),
        "yes": pa.array([True, None, False, True, False]),
        "i": pa.array([1, None, -(2**63), 2**63 - 1, 0], pa.int64()),
        "none": pa.nulls(5, pa.int32()),
    }
    kinds = ["string", "binary", "double", "float", "decimal(30,8)", "timestamp", "timestamp_ntz", "date"]
    types = [database.column_type(kind) for kind in [*kinds, "boolean", "bigint", "int"]]
    stage(*(f"{name} {kind}" for name, kind in zip(columns, types, strict=True)))
    assert database.load_partition("stage", [pa.RecordBatch.from_pydict(columns)], 3) == 5
    rows = found(connection, f"SELECT {', '.join(columns)} FROM stage ORDER BY holdfast_row")
    expected = []
    for row in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        values = list(row)
        values[5] = row[5] and row[5].astimezone(dt.timezone.utc).replace(tzinfo=None)
        expected.append(tuple(values))
    assert rows == expected


def test_not_a_number_becomes_null_and_infinity_is_refused(
    database: MySQL, connection: Any, stage: Callable[..., None]
) -> None:
    stage("d DOUBLE")
    numbers = pa.RecordBatch.from_pydict({"d": pa.array([float("nan"), 1.0])})
    database.load_partition("stage", [numbers], 1)
    assert found(connection, "SELECT d FROM stage ORDER BY holdfast_row") == [(None,), (1.0,)]
    endless = pa.RecordBatch.from_pydict({"d": pa.array([1.0, float("-inf")])})
    (answer,) = copied_by(database, "stage", "numbers")(iter([endless]))
    assert "infinite number, which MySQL cannot store" in answer.column("error").to_pylist()[0]


def test_rows_come_in_statements_that_a_server_takes(
    database: MySQL, connection: Any, stage: Callable[..., None]
) -> None:
    """One row of more than a statement's usual size, and more rows than go into one."""
    stage("word LONGTEXT")
    words = ["x" * 3_000_000, *("y" * 100_000 for _ in range(30)), "z"]
    assert database.load_partition("stage", [batch(*words)], 1) == 32
    lengths = found(connection, "SELECT length(word) FROM stage ORDER BY holdfast_row")
    assert lengths == [(len(word),) for word in words]


def upsert(*names: str) -> StagedMove:
    """Of the staged rows into `words`, by the first column."""
    return StagedMove("stage", "true", '"words"', names, names[:1], "upsert")


def moved(database: MySQL, connection: Any, *names: str) -> None:
    move = upsert(*names)
    with refusals(database, "words"):
        connection.execute("START TRANSACTION")
        try:
            for statement in database.moves(move):
                connection.execute(statement)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def test_an_upsert_goes_by_its_key_alone(
    database: MySQL, connection: Any, stage: Callable[..., None]
) -> None:
    """A row that meets another unique rule does not take the place of that rule's row."""
    connection.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word VARCHAR(20) UNIQUE)")
    connection.execute("INSERT INTO words VALUES (1, 'one'), (2, 'two')")
    stage("id INTEGER", "word LONGTEXT")
    connection.execute("INSERT INTO stage (id, word, holdfast_task) VALUES (2, 'zwei', 1), (3, 'drei', 1)")
    moved(database, connection, "id", "word")
    after = [(1, "one"), (2, "zwei"), (3, "drei")]
    assert found(connection, "SELECT * FROM words ORDER BY id") == after
    connection.execute("DELETE FROM stage")
    connection.execute("INSERT INTO stage (id, word, holdfast_task) VALUES (4, 'one', 1)")
    with pytest.raises(Invalid, match="a row of the batch violates a constraint of the table 'words'"):
        moved(database, connection, "id", "word")
    assert found(connection, "SELECT * FROM words ORDER BY id") == after
    connection.execute("UPDATE stage SET word = 'vier'")
    moved(database, connection, "id")
    assert found(connection, "SELECT * FROM words WHERE id = 4") == [(4, None)]


@pytest.mark.parametrize("before", [0, 1])
def test_a_row_that_another_writer_adds_between_two_statements_is_written_over(
    database: MySQL, connection: Any, stage: Callable[..., None], before: int
) -> None:
    """Or cannot be added any more."""
    connection.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word VARCHAR(20))")
    connection.execute("INSERT INTO words VALUES (2, 'two')")
    stage("id INTEGER", "word LONGTEXT")
    connection.execute("INSERT INTO stage (id, word, holdfast_task) VALUES (1, 'eins', 1), (2, 'zwei', 1)")
    with database_open(database) as other:
        other.execute("SET innodb_lock_wait_timeout = 0")
        connection.execute("START TRANSACTION")
        for at, statement in enumerate(database.moves(upsert("id", "word"))):
            if at == before:
                for number in (1, 2):
                    with suppress(pymysql.err.OperationalError):
                        other.execute(f"REPLACE INTO words VALUES ({number}, 'another')")
            connection.execute(statement)
        connection.execute("COMMIT")
    assert found(connection, "SELECT * FROM words ORDER BY id") == [(1, "eins"), (2, "zwei")]


def test_a_row_that_another_writer_adds_while_rows_are_inserted_is_written_over(
    database: MySQL, connection: Any, stage: Callable[..., None]
) -> None:
    connection.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word VARCHAR(20))")
    stage("id INTEGER", "word LONGTEXT")
    connection.execute("INSERT INTO stage (id, word, holdfast_task) VALUES (1, 'eins', 1), (2, 'zwei', 1)")
    columns = (
        TableColumn("id", "int", "INTEGER", "INTEGER"),
        TableColumn("word", "string", "LONGTEXT", "LONGTEXT"),
    )
    table, book = SqlTable("words", columns, "upsert", ("id",)), Ledger(database)
    token = book.claim("words", "me")

    def move() -> None:
        with book.transaction("words", "q", 0, token) as tx:
            assert tx is not None
            table._move_rows(tx, "stage", "true")

    with rival(database, "INSERT INTO words VALUES (1, 'one')") as other, ThreadPoolExecutor() as threads:
        moving = threads.submit(move)
        other.until_waiting('INSERT INTO "words"')
        other.commit()
        moving.result()
    assert found(connection, "SELECT * FROM words ORDER BY id") == [(1, "eins"), (2, "zwei")]
    assert [record.batch_id for record in book.history("words")] == [0]


@pytest.mark.parametrize("other", ["Ann", "ann ", "änn"])
def test_keys_that_a_table_takes_for_one_are_refused_and_not_mixed(
    database: MySQL, connection: Any, stage: Callable[..., None], other: str
) -> None:
    connection.execute(
        "CREATE TABLE words (word VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY,"
        " n INTEGER)"
    )
    connection.execute("INSERT INTO words VALUES ('ann', 1)")
    types = database.stage_types(connection, "words", [("word", "LONGTEXT"), ("n", "INTEGER")], keys=["word"])
    assert types[0] == ("word", "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NULL")
    stage(*(f"{name} {kind}" for name, kind in types))
    connection.execute("INSERT INTO stage (word, n, holdfast_task) VALUES (%s, 2, 1)", (other,))
    with pytest.raises(Invalid, match="violates a constraint"):
        moved(database, connection, "word", "n")
    assert found(connection, "SELECT * FROM words") == [("ann", 1)]
    connection.execute("UPDATE stage SET word = 'ann'")
    moved(database, connection, "word", "n")
    assert found(connection, "SELECT * FROM words") == [("ann", 2)]


@pytest.mark.parametrize(
    ("own_type", "made_for", "key"),
    [
        ("DATETIME", "timestamp", dt.datetime(2026, 7, 1, 12, 30)),
        ("DATETIME(3)", "timestamp", dt.datetime(2026, 7, 1, 12, 30, 0, 5000)),
        (
            "DATETIME",
            "timestamp",
            dt.datetime(2026, 7, 1, 12, 30, 0, 400_000),
        ),  # the table keeps whole seconds
        ("TIMESTAMP", "timestamp", dt.datetime(2026, 7, 1, 12, 30)),
        ("DATE", "date", dt.date(2026, 7, 1)),
        ("DECIMAL(12,4)", "decimal(10,2)", Decimal("1.50")),
        ("DECIMAL(10,0)", "decimal(10,2)", Decimal("3.00")),
        ("FLOAT", "float", 0.1),
        ("BIGINT UNSIGNED", "int", 7),
        ("VARCHAR(20)", "int", 7),
        ("CHAR(20)", "string", "ann"),
        ("VARCHAR(20) CHARACTER SET latin1", "string", "änn"),
        ("BINARY(4)", "binary", b"ab\0\0"),
    ],
)
def test_an_upsert_finds_the_keys_of_a_table_with_types_of_its_own(
    database: MySQL, connection: Any, stage: Callable[..., None], own_type: str, made_for: str, key: object
) -> None:
    connection.execute(f"CREATE TABLE words (k {own_type} PRIMARY KEY, n INTEGER)")
    made = database.column_type(made_for)
    types = database.stage_types(connection, "words", [("k", str(made)), ("n", "INTEGER")], keys=["k"])
    for n in (1, 2):
        stage(*(f"{name} {kind}" for name, kind in types))
        rows = pa.RecordBatch.from_pydict({"k": pa.array([key]), "n": pa.array([n])})
        database.load_partition("stage", [rows], 1)
        moved(database, connection, "k", "n")
    assert found(connection, "SELECT n FROM words") == [(2,)]


def test_a_null_stays_one_in_a_staged_key(
    database: MySQL, connection: Any, stage: Callable[..., None]
) -> None:
    """A TIMESTAMP that may not be null becomes the time of day."""
    connection.execute("CREATE TABLE words (k TIMESTAMP PRIMARY KEY, n INTEGER)")
    types = database.stage_types(connection, "words", [("k", "DATETIME(6)"), ("n", "INTEGER")], keys=["k"])
    stage(*(f"{name} {kind}" for name, kind in types))
    connection.execute("INSERT INTO stage (k, n, holdfast_task) VALUES (NULL, 1, 1)")
    assert found(connection, "SELECT k FROM stage") == [(None,)]


def test_a_table_that_is_made_tells_all_keys_apart(database: MySQL, connection: Any) -> None:
    options = database.table_options(connection)
    connection.execute(f"CREATE TABLE words (word {database.key_type('string', 1)} PRIMARY KEY){options}")
    words = ["ann", "Ann", "ann ", "änn", "ann\0", "x" * 700]
    for word in words:
        connection.execute("INSERT INTO words VALUES (%s)", (word,))
    assert sorted(word for (word,) in found(connection, "SELECT word FROM words")) == sorted(words)
    with pytest.raises(Invalid, match="does not fit"), refusals(database, "words"):
        connection.execute("INSERT INTO words VALUES (%s)", ("x" * 701,))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("table", "fact", "told"),
    [
        (
            "id INTEGER PRIMARY KEY, word LONGTEXT) ENGINE=MyISAM",
            "has no transactions",
            "MyISAM",
        ),
        ("id INTEGER, word LONGTEXT)", "has no unique key of the columns id", None),
        ("id INTEGER, word LONGTEXT, UNIQUE (id, word(5)))", "has no unique key of the columns id", None),
        ("id INTEGER UNIQUE)", "does not fit the query's rows", "word"),
    ],
)
def test_a_table_that_cannot_keep_its_promise_is_refused_before_the_start(
    database: MySQL, connection: Any, table: str, fact: str, told: str | None
) -> None:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    connection.execute(f"CREATE TABLE words ({table}")
    schema = StructType([StructField("id", IntegerType()), StructField("word", StringType())])
    book = Ledger(database)
    with pytest.raises(Invalid, match=fact) as caught:
        SqlTable.of("words", schema, book, "upsert", ["id"]).prepare(book)
    assert told is None or told in str(caught.value.found)


@pytest.mark.parametrize(
    ("code", "kind", "fact"),
    [
        (1114, Unavailable, "the disk of the MySQL server is full"),
        (1213, Unavailable, "the transaction conflicts with a concurrent transaction"),
        (1836, Unavailable, "is unreachable, or ended the session"),
    ],
)
def test_what_a_server_met_is_told(
    database: MySQL, connection: Any, code: int, kind: type[HoldfastError], fact: str
) -> None:
    with pytest.raises(kind, match=fact), refusals(database, "t"):
        connection.execute(f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'it is so'")


def test_a_batch_in_which_a_table_is_made_is_not_recorded(database: MySQL) -> None:
    """MySQL commits before it makes one."""
    book = Ledger(database)
    token = book.claim("shop", "me")

    def make_table() -> None:
        with book.transaction("shop", "q", 0, token) as tx:
            assert tx is not None
            tx.execute("CREATE TABLE words (word VARCHAR(20))")

    with pytest.raises(Invalid, match="ended before the batch was recorded") as caught:
        make_table()
    assert "SAVEPOINT holdfast_batch does not exist" in str(caught.value.found)
    assert book.history("shop") == []


def test_a_session_that_the_server_ended_is_told(database: MySQL, connection: Any) -> None:
    other = database.connect("another")
    (number,) = connection.execute("SELECT connection_id()").fetchone()
    other.execute(f"KILL {number}")
    other.close()
    with pytest.raises(Unavailable, match="ended the session"), translated(database):
        connection.execute("SELECT 1")


def test_a_server_that_is_too_old_is_refused(database: MySQL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mysql.OLDEST, "MariaDB", (99, 1))
    with pytest.raises(Unsupported, match=r"MariaDB 10[0-9.]* is too old for a ledger"):
        Ledger(database).claim("shop", "me")


def test_a_wrong_password_is_told_without_it(mysql_server: MariaDB) -> None:
    wrong = Ledger.mysql(f"mysql://holdfast:secret@127.0.0.1:{mysql_server.port}/mysql")
    with pytest.raises(Unavailable, match="Access denied") as caught:
        wrong.claim("shop", "me")
    assert "secret" not in str(caught.value)
    nowhere = Ledger.mysql(f"mysql://holdfast:p%40ss%3Aword@127.0.0.1:{mysql_server.port}/nowhere")
    with pytest.raises(Unavailable, match="Unknown database"):
        nowhere.claim("shop", "me")


@pytest.fixture
def own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a user's options, empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".my.cnf"
    file.touch()
    return file


def test_a_users_options_say_who_logs_in_and_not_where(mysql_server: MariaDB, own_options: Path) -> None:
    parts = urlsplit(mysql_server.database())
    own_options.write_text(
        "[mysqld]\nuser=mysql\n[client]\nquick\nuser = holdfast\npassword='p@ss:word'\nsocket=/nowhere.sock\n"
        "bind_address=203.0.113.7\nhost=db.invalid\nport=1\ndatabase=nowhere\n"
    )
    here = f"{parts.hostname}:{parts.port}{parts.path}"
    assert Ledger.mysql(f"mysql://{here}").claim("shop", "me") == 1
    # The address goes first.
    with pytest.raises(Unavailable, match="Access denied for user 'somebody'"):
        Ledger.mysql(f"mysql://somebody@{here}").claim("shop", "me")


@pytest.mark.parametrize("text", ["password=secret\n", "[client\npassword=secret\n"])
def test_a_file_of_options_that_cannot_be_read_is_told_without_its_password(
    own_options: Path, text: str
) -> None:
    own_options.write_text(text)
    with pytest.raises(Invalid, match="cannot read the MySQL option file") as caught:
        Ledger.mysql("mysql://me@127.0.0.1:1/d").claim("shop", "me")
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_users_options_may_name_certificates(own_options: Path) -> None:
    own_options.write_text('[client]\nssl_ca = "/etc/ca.pem"\nssl-cert=mine.pem\npassword\n')
    assert client_options() == {"ssl": {"ca": "/etc/ca.pem", "cert": "mine.pem"}}
    own_options.unlink()
    assert client_options() == {}


def test_a_connection_is_encrypted_and_the_server_is_who_it_says() -> None:
    require("mariadb")
    # Not in a folder of pytest's: the server runs as another user.
    with tempfile.TemporaryDirectory(prefix="holdfast-tls-") as folder:
        certificate, key = self_signed(Path(folder))
        Path(folder).chmod(0o755)
        key.chmod(0o644)
        with MariaDB.running(f"--ssl-cert={certificate}", f"--ssl-key={key}") as server:
            address = server.database()
            trusting = MySQL(f"{address}?tls={certificate}", 5.0)
            session = trusting.connect("looking on")
            assert found(session, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1] != ""
            session.close()
            assert Ledger(trusting).claim("shop", "me") == 1
            with pytest.raises(Unavailable, match="certificate verify failed"):
                Ledger(MySQL(f"{address}?tls=on", 5.0)).claim("shop", "me")


def test_a_file_of_certificates_that_is_not_there_is_told(tmp_path: Path) -> None:
    absent = Ledger.mysql(f"mysql://me@127.0.0.1/d?tls={tmp_path / 'nothing.pem'}")
    with pytest.raises(Invalid, match="cannot read the certificate file"):
        absent.claim("shop", "me")
