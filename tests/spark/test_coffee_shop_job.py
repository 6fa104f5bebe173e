"""The coffee shop's job against the model that does not know it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.config.policies import available_now
from holdfast.demo.coffee_shop.day import CoffeeDay
from holdfast.demo.coffee_shop.model import QuestionAnswer, answers, compare, late_counts, read_day, rows_of
from holdfast.formats.logs.table_logs import committed_files
from holdfast.stream.cautions import WatermarkWarning
from holdfast.stream.late import late_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def records(answer: QuestionAnswer, tables: Path) -> Sequence[Mapping[str, Any]]:
    """What the job's sinks hold."""
    from pyarrow import parquet

    if answer.name == "visits":
        ledger = sqlite3.connect(tables / "answers.db")
        ledger.row_factory = sqlite3.Row
        rows = [dict(row) for row in ledger.execute("SELECT * FROM visits")]
        ledger.close()
        return rows
    files = committed_files(tables / answer.name)
    return [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]


def test_the_job_gives_the_model_s_answers_and_counts_its_late_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    from holdfast.demo.coffee_shop.job import coffee_shop

    CoffeeDay.make(11, customers=60, files=9).write(tmp_path / "day")
    (tmp_path / "tables").mkdir()
    day = read_day(tmp_path / "day")
    late = late_counts(day)
    sinks = coffee_shop(spark, day=str(tmp_path / "day"), out=str(tmp_path / "tables"))
    with pytest.warns(WatermarkWarning) as warned:
        running = {
            sink.name: sink.start(
                checkpoint=str(tmp_path / "checkpoints" / sink.name), trigger=available_now()
            )
            for sink in sinks
        }
    assert len(warned) == 3  # two of the five queries read one stream
    for expected in answers(day):
        query = running[expected.name]
        assert query.awaitTermination(180)
        found = rows_of(records(expected, tmp_path / "tables"), expected.columns)
        comparison = compare(expected, found)
        assert comparison.exact, comparison
        assert comparison.equal == len(expected.rows) > 0
        assert late[expected.name] > 0
        assert sum(map(late_rows, query.recentProgress)) == late[expected.name]
    assert set(running) == {each.name for each in answers(day)}


def test_two_files_a_batch_give_the_same_answer(spark: SparkSession, tmp_path: Path) -> None:
    from holdfast.demo.coffee_shop import job

    CoffeeDay.make(12, customers=40, files=9).write(tmp_path / "day")
    day = read_day(tmp_path / "day")
    (expected,) = (each for each in answers(day) if each.name == "unpaid")

    def stream(name: str, schema: str) -> Any:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        return reader.json(str(tmp_path / "day" / name))

    frame = job.unpaid(stream("orders", job.ORDERS), stream("payments", job.PAYMENTS))
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "tables" / "unpaid"))
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(180)
    found = rows_of(records(expected, tmp_path / "tables"), expected.columns)
    assert compare(expected, found).exact
