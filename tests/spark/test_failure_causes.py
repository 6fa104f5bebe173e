"""Real failures of each kind, in real queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf
from holdfast.engine.queries.watch import await_end, failure_text
from holdfast.jobs import failures as failure
from holdfast.model import Failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


class Failing:
    """Queries over one folder of JSON, which fail."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.give(1, 0)

    def give(self, *values: int) -> None:
        place = self.folder / "in"
        place.mkdir(exist_ok=True)
        lines = [json.dumps({"k": value % 3, "v": str(value)}) for value in values]
        (place / f"{len(list(place.iterdir()))}.json").write_text("\n".join(lines))

    def read(self) -> DataFrame:
        return self.spark.readStream.schema("k long, v string").json(str(self.folder / "in"))

    def start(
        self, frame: DataFrame, name: str, mode: str = "append", to: Path | None = None
    ) -> StreamingQuery:
        writer = frame.writeStream.format("noop" if to is None else "parquet").outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.folder / name)).trigger(availableNow=True)
        return writer.start() if to is None else writer.start(str(to))

    def failure(self, make: Callable[[], StreamingQuery]) -> Failure:
        try:
            query = make()
        except Exception as error:
            return failure.from_exception(error, str(error), label="start")
        await_end(query)
        text = failure_text(query)
        assert text is not None
        return failure.from_text(text, label="query")


@pytest.fixture
def failing(spark: SparkSession, tmp_path: Path) -> Failing:
    return Failing(spark, tmp_path)


def test_a_function_of_the_user(failing: Failing) -> None:
    share = F.udf(lambda value: 1 // int(value), "long")
    found = failing.failure(lambda: failing.start(failing.read().select(share("v")), "udf"))
    assert (found.cause, found.error_class) == ("user code", "ZeroDivisionError")

    def look_up(_frame: DataFrame, _batch: int) -> None:
        raise KeyError("no such customer")

    sink = hf.sink(failing.read()).foreach_batch(look_up)
    place = str(failing.folder / "batch")
    found = failing.failure(lambda: sink.start(checkpoint=place, trigger=hf.available_now()))
    assert (found.cause, found.error_class, found.line) == ("user code", "KeyError", "'no such customer'")
    assert found.place is not None
    file, number, code = found.place.split(":", 2)
    assert (file, code) == (__file__, ' raise KeyError("no such customer")')
    assert Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1].strip() == code.strip()
    assert str(found) == f"KeyError: 'no such customer', at {found.place}"


def test_what_the_query_asks_for(failing: Failing) -> None:
    divided = failing.read().select((F.lit(1) / F.col("v").cast("long")).alias("share"))
    found = failing.failure(lambda: failing.start(divided, "divided"))
    assert (found.cause, found.error_class) == ("user code", "DIVIDE_BY_ZERO")


def test_a_source_that_has_gone(failing: Failing) -> None:
    def lose(frame: DataFrame, _batch: int) -> None:
        for each in (failing.folder / "in").iterdir():
            each.unlink()
        frame.write.format("noop").mode("overwrite").save()

    sink = hf.sink(failing.read()).foreach_batch(lose)
    place = str(failing.folder / "lost")
    found = failing.failure(lambda: sink.start(checkpoint=place, trigger=hf.available_now()))
    assert (found.cause, found.error_class) == ("source", "FileNotFoundException")


def test_a_sink_that_cannot_be_written(failing: Failing) -> None:
    (failing.folder / "file").write_text("in the way")
    found = failing.failure(lambda: failing.start(failing.read(), "sink", to=failing.folder / "file" / "x"))
    assert (found.cause, found.error_class) == ("sink", "ParentNotDirectoryException")


def test_the_log_of_a_table_lacks_a_batch(
    failing: Failing, settings: Callable[[dict[str, str]], None]
) -> None:
    """What the error says to do makes the query run, and the table whole."""
    settings({"spark.sql.streaming.fileSink.log.compactInterval": "3"})
    for value in (1, 2, 3):
        # The third batch goes into a table of its own, whose log lacks the first two.
        table = failing.folder / ("one" if value < 3 else "two")
        failing.give(value)
        query = failing.start(failing.read(), "table", to=table)
        await_end(query)
    text = failure_text(query)
    assert text is not None
    found = failure.from_text(text, label="query")
    log = failing.folder / "two" / "_spark_metadata"
    assert (found.cause, found.error_class) == ("sink", "BATCH_METADATA_NOT_FOUND")
    assert "which is missing from the sink's log" in found.line
    assert f"{log}/0" in found.line
    assert failure.is_permanent(found)
    for missing in (0, 1):
        (log / str(missing)).write_text("v1")
    query = failing.start(failing.read(), "table", to=failing.folder / "two")
    await_end(query)
    assert failure_text(query) is None
    rows = failing.spark.read.parquet(str(failing.folder / "two")).collect()
    assert [row.v for row in rows] == ["3"]


def test_state_that_is_damaged(failing: Failing, settings: Callable[[dict[str, str]], None]) -> None:
    counted = failing.read().groupBy("k").count()
    await_end(failing.start(counted, "counted", "complete"))
    for each in (failing.folder / "counted" / "state").rglob("*"):
        if each.suffix in (".zip", ".changelog"):
            each.write_bytes(each.read_bytes()[:20])
            each.with_name(f".{each.name}.crc").unlink(missing_ok=True)
    failing.give(2)
    settings({"spark.sql.streaming.stateStore.unloadOnCommit": "true"})
    found = failing.failure(lambda: failing.start(counted, "counted", "complete"))
    assert found.cause == "state"


def test_a_heap_that_is_full(failing: Failing) -> None:
    endless = failing.read().select(F.explode(F.sequence(F.lit(0), F.lit(2_000_000_000))))
    found = failing.failure(lambda: failing.start(endless, "heap"))
    assert (found.cause, found.error_class) == ("resources", "OutOfMemoryError")
