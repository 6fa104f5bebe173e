"""A file at which every batch fails is left out, and the query goes on with its state: counted by hand."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import checkpoints
from holdfast.changes.offsets.offsets_api import move_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BEGIN = 1_772_697_600
GOOD = (["ann", "bob"], ["bob", "cid"], ["ann", "dora"])


def write(folder: Path, number: int, text: str, rest: str = "") -> Path:
    file = folder / f"{number:03}{rest}.json"
    file.write_text(text)
    os.utime(file, (BEGIN + number,) * 2)  # the order in which Spark takes them
    return file


def lines(customers: list[str]) -> str:
    return "".join(json.dumps({"customer": customer}) + "\n" for customer in customers)


@pytest.mark.parametrize(
    ("folder", "rest", "planned"),
    [("in", "", True), ("in put", " bad #1", True), ("in put", " %20 #[1]?", False)],
)
def test_a_query_goes_on_without_the_file(
    spark: SparkSession, tmp_path: Path, folder: str, rest: str, planned: bool
) -> None:
    inputs = tmp_path / folder
    inputs.mkdir()
    counts: dict[str, int] = {}

    def keep(rows: DataFrame, _: int) -> None:
        counts.update({row["customer"]: row["count"] for row in rows.collect()})

    def run(checkpoint: Path) -> None:
        events = (
            spark.readStream.schema("customer string")
            .option("maxFilesPerTrigger", "1")
            .option("mode", "FAILFAST")
            .json(str(inputs))
        )
        writer = events.groupBy("customer").count().writeStream.outputMode("update").foreachBatch(keep)
        writer.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    old, new = tmp_path / "old", tmp_path / "new"
    write(inputs, 0, lines(GOOD[0]))
    write(inputs, 1, lines(GOOD[1]))
    run(old)
    bad = write(inputs, 2, '{"customer": "eve"\n', rest)
    write(inputs, 3, lines(GOOD[2]))
    for _ in range(2 if planned else 0):  # and again: nothing that Spark has leads past it
        with pytest.raises(Exception, match="FAILFAST"):
            run(old)
    found = checkpoints.read(old)
    assert (found.batch_id, found.uncommitted) == (1, 2 if planned else None)
    made = move_offsets(old, new, skip_files=[str(bad)], stopped=True)
    assert made.plan.uncommitted == found.uncommitted
    run(new)
    assert counts == Counter(customer for part in GOOD for customer in part)
    assert checkpoints.verify(new).ok
