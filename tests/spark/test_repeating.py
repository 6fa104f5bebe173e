"""Batches that were lost with a checkpoint run again, with the same input, through sinks of every promise."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf
from holdfast import savepoints
from holdfast.checkpoints.logs import Logs
from holdfast.engine.queries.watch import await_end
from holdfast.jobs.processes.restore_on_start import repeat
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = ([1, 2, 2], [2, 3], [1, 1, 3, 4])


def changes() -> Counter[tuple[int, int]]:
    """The count of each key that a file has, after that file."""
    rows: Counter[tuple[int, int]] = Counter()
    counts: Counter[int] = Counter()
    for file in ROWS:
        counts.update(file)
        rows.update((key, counts[key]) for key in set(file))
    return rows


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Counts by key, one file a batch."""
    place = tmp_path / "in"
    place.mkdir()
    for number, keys in enumerate(ROWS):
        file = place / f"{number}.json"
        file.write_text("\n".join(json.dumps({"k": key}) for key in keys))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    rows = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).json(str(place))
    return rows.groupBy("k").agg(F.count("*").alias("n"))


def lose(folder: Path) -> tuple[str, str]:
    """Put the checkpoint back to its first batch; where it is, and where the damaged one is."""
    taken = savepoints.take(folder / "checkpoint", folder / "savepoints", batch=0)
    (folder / "checkpoint").rename(folder / "damaged")
    savepoints.restore(taken.uri, folder / "checkpoint")
    return str(folder / "checkpoint"), str(folder / "damaged")


def test_a_ledger_passes_them_by(counted: DataFrame, tmp_path: Path) -> None:
    ledger = hf.Ledger.sqlite(tmp_path / "results.db")
    sink = hf.sink(counted, mode="update").append("changes", ledger=ledger)
    await_end(sink.start(checkpoint=str(tmp_path / "checkpoint"), trigger=hf.available_now()))
    checkpoint, damaged = lose(tmp_path)
    again = repeat(sink, checkpoint, damaged)
    assert list(again) == [1, 2]
    assert Logs(LocalStorage(tmp_path / "checkpoint")).committed == (0, 1, 2)
    # It goes on as if nothing had been, and has nothing to do.
    await_end(sink.start(checkpoint=checkpoint, trigger=hf.available_now()))
    with ledger.transaction("look", "look", 0, ledger.claim("look", "test")) as transaction:
        assert transaction is not None
        found = Counter(transaction.execute("SELECT k, n FROM changes").fetchall())
    assert found == changes()


def test_what_was_planned_and_not_committed_runs_with_the_input_that_was_planned(
    counted: DataFrame, tmp_path: Path
) -> None:
    written: list[tuple[int, set[tuple[int, int]]]] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        written.append((batch_id, {(row.k, row.n) for row in batch.collect()}))

    sink = hf.sink(counted, mode="update").foreach_batch(write)
    await_end(sink.start(checkpoint=str(tmp_path / "checkpoint"), trigger=hf.available_now()))
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    first = list(written)
    checkpoint, damaged = lose(tmp_path)
    # A killed try has put the files of a batch there, and not run it.
    written.clear()
    again = repeat(sink, checkpoint, damaged)
    assert next(again) == 1
    again.close()  # type: ignore[attr-defined]
    again = repeat(sink, checkpoint, damaged)
    assert list(again) == [2]
    assert written == first[1:]
