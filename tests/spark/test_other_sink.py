"""A query writes to a table of files from now on: the table has every row of its batches, and no other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grid import WHOLE

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]


def read(rows: DataFrame, _: int) -> None:
    """Read a batch, as a sink does."""
    rows.collect()


ROWS = [f"c{number % 3}" for number in range(14)]


@pytest.mark.skipif(not WHOLE, reason="runs fourteen batches; HOLDFAST_GRID=all runs it")
@pytest.mark.parametrize("prepared", [True, False])
def test_a_query_goes_on_into_a_table_of_files(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None], prepared: bool
) -> None:
    settings({"spark.sql.shuffle.partitions": "2"})
    (tmp_path / "in").mkdir()

    def write(numbers: range) -> None:
        for number in numbers:
            file = tmp_path / "in" / f"{number:03}.json"
            at = f"2026-03-05T08:{number:02}:00Z"
            file.write_text(json.dumps({"customer": ROWS[number], "number": number, "at": at}) + "\n")
            os.utime(file, (1_772_697_600 + number,) * 2)

    def distinct() -> DataFrame:
        stream = spark.readStream.schema("customer string, number long, at timestamp")
        events = stream.option("maxFilesPerTrigger", "1").json(str(tmp_path / "in"))
        return events.withWatermark("at", "1 hour").dropDuplicates(["number", "at"])

    write(range(7))
    writer = distinct().writeStream.foreachBatch(read)
    writer = writer.option("checkpointLocation", str(tmp_path / "old")).trigger(availableNow=True)
    writer.start().awaitTermination()
    change = hf.change(tmp_path / "old").table(tmp_path / "table" if prepared else tmp_path / "other")
    assert change.plan(tmp_path / "new").steps == ()
    assert not (tmp_path / "table").exists()
    batch_id = change.to(tmp_path / "new", stopped=True).batch_id
    write(range(7, 14))
    files = distinct().writeStream.format("parquet").option("path", str(tmp_path / "table"))
    files = files.option("checkpointLocation", str(tmp_path / "new")).trigger(availableNow=True)
    if not prepared:
        with pytest.raises(Exception, match="BATCH_METADATA_NOT_FOUND"):
            files.start().awaitTermination()
        return
    files.start().awaitTermination()
    assert batch_id < 9  # the table's log is compacted at batch 9
    assert sorted(row["number"] for row in spark.read.parquet(str(tmp_path / "table")).collect()) == list(
        range(7, 14)
    )
    rows = hf.state(tmp_path / "new").scan("dedupe")
    assert sorted(row.key["number"] for row in rows) == list(range(14))
    with pytest.raises(hf.Conflict, match="not empty"):
        hf.change(tmp_path / "old").table(tmp_path / "table").plan(tmp_path / "third")
