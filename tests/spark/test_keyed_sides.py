"""The sides of `holdfast bench keyed` compute the same, so that their times can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast_bench.keyed.keyed_data import SCHEMA, Files, Shape, write
from holdfast_bench.keyed.keyed_process import Task, measure, wait_for
from holdfast_bench.keyed.keyed_sides import ON_BATCH, ON_EVENT, RAW, SIDES, SQL, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Totals = dict[int, tuple[int, float]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write(tmp_path_factory.mktemp("bench") / "events", Shape(keys=40, rows=120, batches=3))


def expected(files: Files) -> list[Totals]:
    """Counts and sums of all users after each batch, with a plain loop."""
    seen: Totals = {}
    after = []
    for path in files.batches:
        table: pa.Table = pq.read_table(path)
        for user, amount in zip(table["user"].to_pylist(), table["amount"].to_pylist(), strict=True):
            n, total = seen.get(user, (0, 0.0))
            seen[user] = (n + 1, total + amount)
        after.append(dict(seen))
    return after


@pytest.mark.parametrize(
    ("side", "timed"),
    [*((side, False) for side in SIDES), (RAW, True), (ON_EVENT, True), (ON_BATCH, True)],
    ids=lambda value: {True: "timed", False: "plain"}.get(value, value),
)
def test_every_side_gives_the_running_count_and_sum(
    spark: SparkSession, files: Files, tmp_path: Path, side: str, timed: bool
) -> None:
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    answer = totals(side, events.parquet(str(files.batches[0].parent)), timed=timed)
    after: list[Totals] = []
    seen: Totals = {}

    def collect(batch: Any, _: int) -> None:
        rows = batch.collect()
        for user, n, total in sorted(rows):  # of one user the largest count is the last
            seen[user] = (n, total)
        if rows:
            after.append(dict(seen))

    query = (
        answer.writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(collect)
        .start()
    )
    try:
        wait_for(query, len(files.batches))
    finally:
        query.stop()
    assert after == expected(files)


@pytest.mark.parametrize("side", [SQL, ON_BATCH])
def test_a_run_counts_the_batches_after_the_warm_up(
    spark: SparkSession, files: Files, tmp_path: Path, side: str
) -> None:
    paths = tuple(map(str, files.batches))
    task = Task(
        side, timed=False, load=paths[:1], batches=paths[1:], warm_up=1, snapshots=False, folder=str(tmp_path)
    )
    found = measure(spark, task)
    assert found.rows == 120
    assert len(found.trigger_ms) == len(found.add_batch_ms) == 1
    assert 0 < found.add_batch_ms[0] <= found.trigger_ms[0]
    assert found.written.changelog > 0
    # The session's daemon of Python workers may be there already.
    assert found.memory.private_bytes > 0 or side == SQL
