"""A checkpoint that is replaced under a query that runs: the old one comes back with all its batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast import checkpoints
from holdfast.changes.erase import erasing_checkpoint
from holdfast.changes.erase.searching import subject
from holdfast.clock import now_ms
from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_guard import Timing, guarded
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.spark

ARRIVED_S = 1_750_000_000


def arrive(folder: Path, number: int, *who: str) -> None:
    beside = folder / f"{number}.tmp"
    beside.write_text("".join(f'{{"who": "{each}"}}\n' for each in who))
    # Spark reads the files in this order; written within a millisecond, their order would be open.
    os.utime(beside, (ARRIVED_S + number, ARRIVED_S + number))
    (folder / "in").mkdir(exist_ok=True)
    beside.rename(folder / "in" / f"{number}.json")


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_batches_that_a_query_commits_at_that_moment_are_kept(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path, provider: str
) -> None:
    """The query rests until the directories have changed places, then two batches come at once."""
    settings(
        {
            "spark.sql.streaming.stateStore.providerClass": (
                f"org.apache.spark.sql.execution.streaming.state.{provider}"
            ),
            "spark.sql.streaming.stateStore.checkpointFormatVersion": "1" if "HDFS" in provider else "2",
            "spark.sql.shuffle.partitions": "2",
        }
    )
    told: dict[int, dict[str, int]] = {}

    def put(rows: DataFrame, batch_id: int) -> None:
        told[batch_id] = {row["who"]: row["count"] for row in rows.collect()}

    arrive(tmp_path, 0, "ann", "bob", "bob")
    names = spark.readStream.schema("who string").option("maxFilesPerTrigger", "1").json(str(tmp_path / "in"))
    writer = names.groupBy("who").count().writeStream.outputMode("update").foreachBatch(put)
    query = writer.option("checkpointLocation", str(tmp_path / "ck")).start()
    try:
        query.processAllAvailable()
        checkpoint = LocalStorage(tmp_path / "ck")
        now = [0.0]
        replaced: list[int] = []
        old = (tmp_path / "ck").stat().st_ino

        def pause(seconds: float) -> None:
            now[0] += seconds
            if (tmp_path / "ck").stat().st_ino != old and not replaced:
                replaced.append((tmp_path / "ck").stat().st_ino)
                arrive(tmp_path, 1, "bob")
                arrive(tmp_path, 2, "bob", "cid")
                query.processAllAvailable()

        timing = Timing(now_ms, lambda: now[0], pause)
        (tmp_path / "work").mkdir()
        with (
            pytest.raises(Conflict, match="restored, with the files written meanwhile"),
            guarded(checkpoint, "state erase", stopped=True, hint="", timing=timing) as guard,
        ):
            erasing_checkpoint.erase_checkpoint(
                checkpoint,
                subject("bob", None),
                tmp_path / "work",
                guard=guard,
                who="ada",
                why=None,
            )
        assert replaced
        assert (tmp_path / "ck").stat().st_ino == old
        arrive(tmp_path, 3, "ann", "bob")
        query.processAllAvailable()
    finally:
        query.stop()
    assert told == {0: {"ann": 1, "bob": 2}, 1: {"bob": 3}, 2: {"bob": 4, "cid": 1}, 3: {"ann": 2, "bob": 5}}
    found = checkpoints.verify(tmp_path / "ck")
    assert (found.problems, found.batch_id) == ((), 3)
    assert not list(tmp_path.glob("ck.replaced-*"))
    # And a new start reads of it what the query had written.
    arrive(tmp_path, 4, "bob")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert told[4] == {"bob": 6}
    assert json.loads((tmp_path / "ck" / "metadata").read_text())["id"] == query.id
