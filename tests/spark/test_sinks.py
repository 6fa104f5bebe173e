"""Sinks on a real query: promises, exact rows after a batch ran again, and what Spark itself reads."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from grid import one_in
from ledger_processes import LEDGERS, database_open

from holdfast.config.policies import AvailableNow
from holdfast.errors import Conflict, Invalid, Unsupported
from holdfast.formats.logs.table_logs import committed_files
from holdfast.stream.sinks.ledger import Ledger, Transaction, ledger
from holdfast.stream.sinks.query_sink import PromiseLevel, Sink
from holdfast.stream.sinks.sinks import adopt, sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "customer string, amount long"


class Shop:
    """A directory of order files, read one file a batch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.orders = root / "orders"
        self.orders.mkdir()
        self.checkpoint = root / "checkpoint"

    def put(self, name: str, *orders: tuple[str | None, int]) -> None:
        lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in orders]
        (self.orders / f"{name}.json").write_text("\n".join(lines))

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.orders))

    def totals(self) -> DataFrame:
        return self.stream().groupBy("customer").agg({"amount": "sum"}).toDF("customer", "total")

    def run(self, to: Sink) -> None:
        query = to.start(checkpoint=str(self.checkpoint), trigger=AvailableNow())
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if the driver had died after the batch and before Spark noted it."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger.sqlite(tmp_path / "shop.db")


def rows(book: Ledger, statement: str) -> list[tuple[Any, ...]]:
    connection = book.database.connect("looking on")
    try:
        return list(connection.execute(statement).fetchall())
    finally:
        connection.close()


@pytest.mark.parametrize("database", LEDGERS)
def test_a_batch_that_spark_runs_again_leaves_the_table_as_it_is(
    shop: Shop, database: str, ledger_address: Callable[[str], str]
) -> None:
    book = ledger(ledger_address(database))
    shop.put("a", ("ann", 3), ("bob", 5))
    shop.put("b", ("ann", 4))
    shop.run(sink(shop.stream()).append("orders", book))
    shop.forget_last_commit()
    shop.put("c", ("cem", 7))
    shop.run(sink(shop.stream()).append("orders", book))
    assert rows(book, "SELECT customer, amount FROM orders ORDER BY amount") == [
        ("ann", 3),
        ("ann", 4),
        ("bob", 5),
        ("cem", 7),
    ]
    history = [(row.batch_id, row.token, row.rows) for row in book.history("orders")]
    assert [(batch, token) for batch, token, _ in history] == [(0, 1), (1, 1), (2, 2)]
    assert sorted(count for *_, count in history if count is not None) == [1, 1, 2]
    identity = json.loads((shop.checkpoint / "metadata").read_text())["id"]
    assert {row.query_id for row in book.history("orders")} == {identity}


@pytest.mark.parametrize("change", ["append", "upsert", "replace"])
@pytest.mark.parametrize("database", one_in(3, LEDGERS))
def test_names_may_hold_the_marks_of_a_driver(
    shop: Shop, database: str, change: str, ledger_address: Callable[[str], str]
) -> None:
    book = ledger(ledger_address(database))
    table, share = "share % of %s? (100%)", "%s of 100 % ?"
    shop.put("a", ("ann", 3), ("bob", 5))
    if change == "replace":
        to = sink(shop.totals().withColumnRenamed("total", share), mode="complete").replace(table, book)
    elif change == "upsert":
        to = sink(shop.stream().withColumnRenamed("amount", share)).upsert(table, ["customer"], book)
    else:
        to = sink(shop.stream().withColumnRenamed("amount", share)).append(table, book)
    shop.run(to)
    assert sorted(rows(book, f'SELECT customer, "{share}" FROM "{table}"')) == [("ann", 3), ("bob", 5)]


def test_a_skipped_batch_still_saves_the_operators_state(shop: Shop, book: Ledger) -> None:
    shop.put("a", ("ann", 3), ("bob", 5))
    shop.put("b", ("ann", 4))
    shop.run(sink(shop.totals(), name="totals").upsert("totals", ["customer"], book))
    assert dict(rows(book, "SELECT customer, total FROM totals")) == {"ann": 7, "bob": 5}
    shop.forget_last_commit()
    shop.put("c", ("ann", 100), ("bob", 1))
    shop.run(sink(shop.totals(), name="totals").upsert("totals", ["customer"], book))
    assert dict(rows(book, "SELECT customer, total FROM totals")) == {"ann": 107, "bob": 6}


def test_replace_leaves_the_whole_result_and_nothing_else(shop: Shop, book: Ledger) -> None:
    shop.put("a", ("ann", 3), ("bob", 5))
    shop.put("b", ("ann", 4))
    shop.run(sink(shop.totals(), mode="complete").replace("totals", book))
    assert sorted(rows(book, "SELECT customer, total FROM totals")) == [("ann", 7), ("bob", 5)]


@pytest.mark.parametrize(
    ("orders", "fact"),
    [
        ([("ann", 1), ("ann", 2)], "a batch has several rows for one key"),
        ([("ann", 1), (None, 2)], "the key of an upsert is null"),
    ],
)
def test_an_upsert_without_one_row_per_key_is_refused(
    shop: Shop, book: Ledger, orders: list[tuple[str | None, int]], fact: str
) -> None:
    shop.put("a", *orders)
    to = sink(shop.stream()).upsert("orders", ["customer"], book)
    query = to.start(checkpoint=str(shop.checkpoint), trigger=AvailableNow())
    with pytest.raises(Exception, match=fact):
        query.awaitTermination()
    assert isinstance(to.error, Invalid)
    assert to.error.fact == fact
    assert rows(book, "SELECT * FROM orders") == []
    assert book.history("orders") == []


EVERY_TYPE = """cast(amount as tinyint) as tiny, cast(amount as smallint) as small, cast(amount as int) as i,
    amount as l, cast(amount as float) / 4 as f, cast(amount as double) / 8 as d,
    cast(amount as decimal(20,2)) as n, customer as s, amount > 2 as yes,
    timestamp_micros(amount * 1000001) as at, date_add(date'2024-02-28', cast(amount as int)) as day,
    cast(customer as binary) as b, cast(null as timestamp) as none,
    timestamp_ntz'2024-10-27 02:30:00' as wall"""


def test_every_type_in_sqlite(shop: Shop, book: Ledger) -> None:
    shop.put("a", ("ann", 2))
    shop.run(sink(shop.stream().selectExpr(*split(EVERY_TYPE))).append("every", book))
    assert rows(book, "SELECT * FROM every") == [
        (2, 2, 2, 2, 0.5, 0.25, "2.00", "ann", 0, "1970-01-01 00:00:02.000002+00:00", "2024-03-01", b"ann",
         None, "2024-10-27 02:30:00.000000")
    ]  # fmt: skip


@pytest.mark.services
def test_every_type_in_postgres(shop: Shop, ledger_address: Callable[[str], str]) -> None:
    book = Ledger.postgres(ledger_address("postgres"))
    shop.put("a", ("ann", 2))
    shop.run(sink(shop.stream().selectExpr(*split(EVERY_TYPE))).append("public.every", book))
    at = dt.datetime(1970, 1, 1, 0, 0, 2, 2, tzinfo=dt.timezone.utc)
    wall = dt.datetime(2024, 10, 27, 2, 30)
    assert rows(book, "SELECT * FROM every") == [
        (2, 2, 2, 2, 0.5, 0.25, Decimal("2.00"), "ann", False, at, dt.date(2024, 3, 1), b"ann", None, wall)
    ]


@pytest.mark.services
def test_every_type_in_mysql(shop: Shop, ledger_address: Callable[[str], str]) -> None:
    address = ledger_address("mysql")
    book = Ledger.mysql(address)
    shop.put("a", ("ann", 2))
    other = address.rpartition("/")[2]
    shop.run(sink(shop.stream().selectExpr(*split(EVERY_TYPE))).append(f"{other}.every", book))
    at, wall = dt.datetime(1970, 1, 1, 0, 0, 2, 2), dt.datetime(2024, 10, 27, 2, 30)  # in UTC; without a zone
    assert rows(book, "SELECT * FROM every") == [
        (2, 2, 2, 2, 0.5, 0.25, Decimal("2.00"), "ann", 0, at, dt.date(2024, 3, 1), b"ann", None, wall)
    ]


def split(columns: str) -> list[str]:
    """Columns between commas that stand outside brackets."""
    parts, depth = [""], 0
    for letter in columns:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def test_what_a_table_cannot_hold_is_refused_before_the_query_starts(shop: Shop, book: Ledger) -> None:
    nested = shop.stream().selectExpr("array(amount) as amounts")
    with pytest.raises(Invalid, match="a type that a table cannot store"):
        sink(nested).append("orders", book)
    with pytest.raises(Invalid, match="two columns of the query have the same name"):
        sink(shop.stream().selectExpr("amount", "customer as AMOUNT")).append("orders", book)
    for keys in ([], ["nobody"], ["customer", "customer"]):
        with pytest.raises(Invalid, match="invalid key columns"):
            sink(shop.stream()).upsert("orders", keys, book)
    with pytest.raises(Invalid, match="invalid table name"):
        sink(shop.stream()).append("a..b", book)


def test_a_table_that_does_not_fit_is_refused_before_the_query_starts(shop: Shop, book: Ledger) -> None:
    connection = book.database.connect("looking on")
    connection.execute("CREATE TABLE orders (customer TEXT)")
    connection.execute("CREATE TABLE keyless (customer TEXT, amount INTEGER)")
    connection.close()
    for to in (
        sink(shop.stream()).append("orders", book),
        sink(shop.stream()).upsert("keyless", ["customer"], book),
    ):
        with pytest.raises(Invalid, match="does not fit the query's rows"):
            to.start(checkpoint=str(shop.checkpoint))
    assert book.holder("orders") is None


def test_a_function_with_the_transaction_writes_once(shop: Shop, book: Ledger) -> None:
    connection = book.database.connect("looking on")
    connection.execute("CREATE TABLE counted (batch_id INTEGER, n INTEGER)")
    connection.close()

    def count(batch: DataFrame, batch_id: int, tx: Transaction) -> None:
        tx.execute("INSERT INTO counted VALUES (?, ?)", (batch_id, batch.count()))

    def run() -> Sink:
        to = sink(shop.stream(), name="counts").foreach_batch(count, ledger=book)
        shop.run(to)
        return to

    shop.put("a", ("ann", 3), ("bob", 5))
    assert run().promise.level is PromiseLevel.EXACTLY_ONCE
    shop.forget_last_commit()
    run()
    assert rows(book, "SELECT batch_id, n FROM counted") == [(0, 2)]


def test_a_function_is_not_called_for_a_recorded_batch_and_a_stale_owner_stops(
    shop: Shop, book: Ledger
) -> None:
    called: list[int] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        called.append(batch_id)

    def to(name: str = "notes") -> Sink:
        return sink(shop.stream(), name=name).foreach_batch(note, ledger=book)

    shop.put("a", ("ann", 3))
    shop.run(to())
    shop.forget_last_commit()
    shop.run(to())
    assert called == [0]

    def usurp(batch: DataFrame, batch_id: int) -> None:
        book.claim("notes", "somebody else")

    shop.put("b", ("bob", 5))
    stale = sink(shop.stream(), name="notes").foreach_batch(usurp, ledger=book)
    query = stale.start(checkpoint=str(shop.checkpoint), trigger=AvailableNow())
    with pytest.raises(Exception, match="the sink 'notes' has a different owner"):
        query.awaitTermination()
    assert isinstance(stale.error, Conflict)
    assert [row.batch_id for row in book.history("notes")] == [0]


def test_without_a_ledger_a_batch_runs_again_as_promised(shop: Shop) -> None:
    called: list[int] = []

    def note(batch: DataFrame, batch_id: int, unused: int = 0) -> None:
        called.append(batch_id)

    shop.put("a", ("ann", 3))
    to = sink(shop.stream()).foreach_batch(note)
    assert to.promise.level is PromiseLevel.AT_LEAST_ONCE
    shop.run(to)
    shop.forget_last_commit()
    shop.run(to)
    assert called == [0, 0]


def test_the_sink_log_names_what_spark_reads(
    spark: SparkSession, shop: Shop, tmp_path: Path, settings: Callable[[dict[str, str]], None]
) -> None:
    settings({"spark.sql.streaming.fileSink.log.compactInterval": "3"})
    for at, name in enumerate(["ann", "b b", "c:c%", "dün", "ann"]):
        shop.put(str(at), (name, at))
    table = tmp_path / "table"
    to = sink(shop.stream(), mode="append").parquet(table, partition_by=["customer"])
    assert to.promise.level is PromiseLevel.EXACTLY_ONCE
    shop.run(to)
    assert (table / "_spark_metadata" / "2.compact").exists()
    stray = next(table.rglob("*.parquet"))
    stray.with_name("part-of-a-failed-attempt.parquet").write_bytes(stray.read_bytes())
    committed = committed_files(table)
    names = spark.read.parquet(str(table)).selectExpr("_metadata.file_path").distinct().collect()
    assert set(committed) == {Path(unquote(urlsplit(row[0]).path)) for row in names}
    assert len(committed) == 5
    assert all(file.is_file() for file in committed)


@pytest.mark.parametrize("adopted", [False, True])
def test_a_new_table_of_files_is_prepared_and_one_that_lacks_a_batch_is_refused(
    shop: Shop, tmp_path: Path, adopted: bool
) -> None:
    """Without that Spark fails for good at batch 9, which reads the entries of all batches before."""

    def to(table: Path) -> Sink:
        writer = shop.stream().writeStream.format("parquet").option("path", str(table))
        return adopt(writer) if adopted else sink(shop.stream()).parquet(table)

    for number in range(3):
        shop.put(str(number), ("ann", number))
    shop.run(to(tmp_path / "first"))
    for number in range(3, 12):
        shop.put(f"{number:02}", ("bob", number))
    second = tmp_path / "second"
    shop.run(to(second))
    table = shop.spark.read.parquet(str(second))
    assert sorted(row.amount for row in table.collect()) == list(range(3, 12))
    assert (second / "_spark_metadata" / "9.compact").exists()
    (second / "_spark_metadata" / "10").unlink()
    shop.put("12", ("bob", 12))
    with pytest.raises(Conflict, match="lacks a batch") as caught:
        to(second).start(checkpoint=str(shop.checkpoint), trigger=AvailableNow())
    assert caught.value.found == "no entry for batch 10"
    assert f"{second}/_spark_metadata/10" in str(caught.value.hint)


@pytest.mark.parametrize("adopted", [False, True])
def test_a_checkpoint_that_was_put_back_under_a_table_of_files_is_refused(
    spark: SparkSession, shop: Shop, tmp_path: Path, adopted: bool
) -> None:
    """What Spark does with such a one is shown at the end: rows are gone, and nobody is told."""
    table, before = tmp_path / "table", tmp_path / "before"

    def to() -> Sink:
        writer = shop.stream().writeStream.format("parquet").option("path", str(table))
        return adopt(writer) if adopted else sink(shop.stream()).parquet(table)

    shop.put("0", ("ann", 1))
    shop.run(to())
    shutil.copytree(shop.checkpoint, before)
    shop.put("1", ("bob", 2))
    shop.run(to())
    shop.run(to())  # as it is, it goes on
    shutil.rmtree(shop.checkpoint)
    for put_back, expected in (
        (None, "no batch, because the checkpoint is new"),
        (before, "no batch after batch 0"),
    ):
        if put_back is not None:
            shutil.copytree(put_back, shop.checkpoint, dirs_exist_ok=True)
        with pytest.raises(Conflict, match="batches that the checkpoint does not have") as caught:
            shop.run(to())
        assert (caught.value.found, caught.value.expected) == ("batch 1", expected)
        assert "separate table" in str(caught.value.hint)
    shop.put("2", ("cid", 3))
    plain = spark.readStream.schema(SCHEMA).json(str(shop.orders)).writeStream
    started = plain.option("checkpointLocation", str(shop.checkpoint)).trigger(availableNow=True)
    started.start(str(table)).awaitTermination()
    assert {row["customer"] for row in spark.read.parquet(str(table)).collect()} == {"ann", "bob"}


def test_a_ledger_that_lost_batches_is_refused_and_one_without_maintenance_batches_is_not(
    shop: Shop, book: Ledger, tmp_path: Path
) -> None:
    backups = [tmp_path / f"backup-{number}" for number in range(2)]

    def lose(number: int) -> str:
        database: Any = book.database
        shutil.copy(backups[number], database.path)
        to = sink(shop.stream(), name="sales").append("sales", ledger=book)
        with pytest.raises(Exception, match="has lost batches"):
            shop.run(to)
        assert isinstance(to.error, Conflict)
        return str(to.error.found)

    def run() -> None:
        shop.run(sink(shop.stream(), name="sales").append("sales", ledger=book))

    with database_open(book.database):
        database: Any = book.database
        shutil.copy(database.path, backups[0])  # before the first batch
    shop.put("0", ("ann", 1))
    run()
    shutil.copy(database.path, backups[1])
    shop.put("1", ("bob", 2))
    run()
    newest = tmp_path / "newest"
    shutil.copy(database.path, newest)
    shop.put("2", ("cid", 3))
    assert lose(1) == "batch 0 as the newest"
    assert lose(0).startswith("no batch of query ")
    shutil.copy(newest, database.path)
    for log in ("offsets", "commits"):  # as a repartition leaves them
        for name in ("2", ".2.crc"):
            (shop.checkpoint / log / name).unlink(missing_ok=True)
        (shop.checkpoint / log / "2").write_bytes((shop.checkpoint / log / "1").read_bytes())
    run()
    assert rows(book, "SELECT customer, amount FROM sales ORDER BY amount") == [
        ("ann", 1),
        ("bob", 2),
        ("cid", 3),
    ]
    assert [record.batch_id for record in book.history("sales")] == [0, 1, 3]


def test_console_memory_and_modes(spark: SparkSession, shop: Shop) -> None:
    shop.put("a", ("ann", 3))
    to = sink(shop.stream()).memory("looked_at")
    assert to.promise.level is PromiseLevel.NONE
    shop.run(to)
    assert [tuple(row) for row in spark.table("looked_at").collect()] == [("ann", 3)]
    assert sink(shop.stream()).console().promise.level is PromiseLevel.NONE
    for wrong in (
        lambda: sink(spark.range(1)),
        lambda: sink(shop.stream(), mode="upsert"),  # type: ignore[arg-type]
        lambda: sink(shop.totals(), mode="update").parquet("x"),
        lambda: sink(shop.totals(), mode="complete").upsert("x", ["customer"], "x.db"),
        lambda: sink(shop.totals(), mode="append").replace("x", "x.db"),
        lambda: sink(shop.stream()).files("kafka", "x"),  # type: ignore[arg-type]
        lambda: sink(shop.stream()).foreach_batch(lambda a, b, c: None),
        lambda: sink(shop.stream()).foreach_batch(lambda a: None),
        lambda: sink(shop.stream()).foreach_batch(lambda a, b: None, ledger="x.db"),
    ):
        with pytest.raises(Invalid):
            wrong()


def test_a_format_that_the_session_lacks(shop: Shop, tmp_path: Path) -> None:
    shop.put("a", ("ann", 3))
    to = adopt(shop.stream().writeStream.format("nosuchformat"))
    assert to.promise.level is PromiseLevel.NONE
    with pytest.raises(Unsupported, match="nosuchformat"):
        to.start(checkpoint=str(shop.checkpoint))


def test_an_adopted_writer_keeps_its_own_promise(shop: Shop, tmp_path: Path) -> None:
    writer = shop.stream().writeStream
    assert adopt(writer.format("kafka")).promise.level is PromiseLevel.AT_LEAST_ONCE
    assert (
        adopt(writer.foreachBatch(lambda batch, batch_id: None)).promise.level is PromiseLevel.AT_LEAST_ONCE
    )
    shop.put("a", ("ann", 3))
    to = adopt(writer.format("json").option("path", str(tmp_path / "out")), name="out")
    assert (to.name, to.kind, to.promise.level) == ("out", "json", PromiseLevel.EXACTLY_ONCE)
    shop.run(to)
    (file,) = committed_files(tmp_path / "out")
    assert json.loads(file.read_text()) == {"customer": "ann", "amount": 3}
