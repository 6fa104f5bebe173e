"""Batches that executors bring to a real database: what a failed attempt leaves counts nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ledger_processes import stages

from holdfast.config.policies import AvailableNow
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.stream.sinks.ledger import ledger
from holdfast.stream.sinks.query_sink import Sink
from holdfast.stream.sinks.sinks import sink
from holdfast.stream.sinks.sql_table import SqlTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]


class Orders:
    """A stream of order files, one a batch, and the database that it is written to."""

    def __init__(self, spark: SparkSession, root: Path, address: str) -> None:
        self.spark = spark
        self.folder = root / "orders"
        self.folder.mkdir()
        self.checkpoint = root / "checkpoint"
        self.book = ledger(address)

    def put(self, name: str, *orders: tuple[int, str]) -> None:
        lines = [json.dumps({"id": number, "word": word}) for number, word in orders]
        file = self.folder / f"{name}.json"
        file.write_text("\n".join(lines))
        # Spark reads them in the order of their times.
        os.utime(file, (1_700_000_000 + int(name), 1_700_000_000 + int(name)))

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema("id int, word string").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder)).repartition(3)

    def run(self, to: Sink) -> None:
        to.start(checkpoint=str(self.checkpoint), trigger=AvailableNow()).awaitTermination()

    def failed(self, to: Sink) -> HoldfastError:
        query = to.start(checkpoint=str(self.checkpoint), trigger=AvailableNow())
        with pytest.raises(Exception, match=r"STREAM_FAILED|holdfast"):
            query.awaitTermination()
        assert isinstance(to.error, HoldfastError)
        return to.error

    def sql(self, statement: str) -> Any:
        connection = self.book.database.connect("looking on")
        try:
            cursor = connection.execute(statement)
            return sorted(cursor.fetchall()) if cursor.description else None
        finally:
            connection.close()

    def stages(self) -> list[str]:
        with closing(self.book.database.connect("looking on")) as connection:
            return stages(connection, self.book.database)


@pytest.fixture(params=["postgres", "mysql"])
def orders(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, ledger_address: Callable[[str], str]
) -> Orders:
    return Orders(spark, tmp_path, ledger_address(request.param))


def test_a_failed_attempt_is_dropped_and_its_rows_count_nowhere(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unique rule refuses the second batch; once that row is gone the batch is written, and once."""
    orders.sql("CREATE TABLE words (id integer, word varchar(50) UNIQUE)")
    orders.put("0", *((number, f"w{number}") for number in range(40)))
    orders.put("1", (100, "w7"), (101, "new"))
    monkeypatch.setattr(SqlTable, "_rows", None)  # the driver's way
    error = orders.failed(sink(orders.stream()).append("words", orders.book))
    assert isinstance(error, Invalid)
    assert error.fact == "a row of the batch violates a constraint of the table 'words'"
    assert "(word)=(w7) already exists" in str(error.found) or "Duplicate entry 'w7'" in str(error.found)
    first = [(number, f"w{number}") for number in range(40)]
    assert orders.sql("SELECT * FROM words") == first
    (left,) = orders.stages()
    assert left.endswith("_1_1")
    # A later owner's table is not touched.
    later = left.removesuffix("1_1") + "99_0"
    orders.sql(f'CREATE TABLE "{later}" (id integer)')
    orders.sql("DELETE FROM words WHERE word = 'w7'")
    orders.run(sink(orders.stream()).append("words", orders.book))
    assert orders.sql("SELECT * FROM words") == sorted([*first[:7], *first[8:], (100, "w7"), (101, "new")])
    assert orders.stages() == [later]
    assert [row.rows for row in orders.book.history("words")] == [40, 2]


def test_a_table_that_is_gone_or_lacks_a_column_is_told(orders: Orders) -> None:
    def meanwhile(statement: str) -> HoldfastError:
        to = sink(orders.stream()).upsert("words", ["id"], orders.book)
        started = to.start(checkpoint=str(orders.checkpoint), trigger=AvailableNow())
        started.awaitTermination()
        table = SqlTable.of("words", orders.stream().schema, orders.book, "upsert", ["id"])
        token = orders.book.claim("words", "test")
        orders.sql(statement)
        rows = orders.spark.createDataFrame([(1, "a"), (2, "b")], "id int, word string")
        with pytest.raises(HoldfastError) as caught:
            write(table, rows, token)
        return caught.value

    def write(table: SqlTable, rows: DataFrame, token: int) -> None:
        with orders.book.transaction("words", "q", token, token) as transaction:
            assert transaction is not None
            table.write(rows, transaction)

    lacking = meanwhile("ALTER TABLE words RENAME COLUMN word TO text")
    assert isinstance(lacking, Invalid)
    assert lacking.fact == "the table 'words' lacks a column of the query"
    orders.sql("ALTER TABLE words RENAME COLUMN text TO word")
    gone = meanwhile("DROP TABLE words")
    assert isinstance(gone, NotFound)
    assert gone.fact == "the table 'words' no longer exists"
