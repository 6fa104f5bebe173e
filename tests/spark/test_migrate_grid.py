"""Any kind of query, from any backend to any other, in other partitions: every answer is right.

The whole grid takes minutes; `HOLDFAST_GRID=all` runs it. Otherwise most kinds of queries are moved once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import at_rest_queries
import grid_queries
import pytest
from grid import WHOLE
from grid_queries import KINDS
from grid_runs import PARTITIONS_KEY, PROVIDERS, run

import holdfast as hf
from holdfast import checkpoints
from holdfast.checkpoints.state.contents import contents
from holdfast.config.spark_defaults import FORMAT_KEY
from holdfast.engine.session.workers import ship_by_value
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]
ship_by_value(grid_queries)
ship_by_value(at_rest_queries)

# Spark looks at the checksum of every row that it reads.
LOOK = {"spark.sql.streaming.stateStore.rowChecksum.readVerificationRatio": "1"}
CHANGES = [(2, 2), (2, 3), (4, 2), (1, 5)]
MOVES = [
    (kind, here, there)
    for kind in KINDS
    for here in PROVIDERS
    for there in PROVIDERS
    if KINDS[kind].heap or "memory" not in (here, there)
]
FEW = [
    ("aggregate", "memory", "rocksdb2", (2, 3)),
    ("join", "rocksdb2", "memory", (2, 2)),
    ("session", "memory", "rocksdb1", (4, 2)),
    ("keyed", "rocksdb1", "rocksdb2", (2, 3)),
]
GRID = FEW
if WHOLE:
    GRID = [(*move, change) for move in MOVES for change in CHANGES]


@pytest.mark.parametrize(
    ("kind", "here", "there", "change"), GRID, ids=lambda each: str(each).replace(" ", "")
)
def test_a_query_goes_on_elsewhere(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    kind: str,
    here: str,
    there: str,
    change: tuple[int, int],
) -> None:
    before, after = change
    settings({**PROVIDERS[here], **LOOK, PARTITIONS_KEY: str(before)})
    made = grid_queries.files(7, count=3, size=20)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    rows = run(spark, kind, tmp_path, tmp_path / "first")
    moved = hf.migrate(
        tmp_path / "first",
        tmp_path / "second",
        backend="memory" if there == "memory" else "rocksdb",
        partitions=after,
        state_format=int(PROVIDERS[there][FORMAT_KEY]),
        stopped=True,
    )
    assert moved.rows > 0
    assert moved.before == moved.after
    assert checkpoints.verify(tmp_path / "second").problems == ()
    shutil.rmtree(tmp_path / "first")
    # What is noted in the checkpoint is stronger than the session: its backend, its partitions.
    settings({**PROVIDERS[there], **LOOK, PARTITIONS_KEY: "6"})
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    rows += run(spark, kind, tmp_path, tmp_path / "second")
    left = [event for sides in made for event in sides[0]]
    right = [event for sides in made for event in sides[1]]
    assert grid_queries.in_the_end(rows, KINDS[kind].key_columns) == KINDS[kind].model(left, right)
    [operator] = checkpoints.read(tmp_path / "second").operators
    assert operator.partitions == after


# What they keep depends on nothing but their input, so it can be held against that of a query that stayed.
STEADY = ["types", "everything", "dedupe", "dedupe_within", "join2", "join3", "groups_by_event"]
STAYING = [("join3", "rocksdb2", "rocksdb2")]
if WHOLE:
    STAYING = [
        (kind, here, there)
        for kind in STEADY
        for here in PROVIDERS
        for there in PROVIDERS
        if at_rest_queries.KINDS[kind].heap or "memory" not in (here, there)
    ]


@pytest.mark.parametrize(("kind", "here", "there"), STAYING, ids=str)
def test_state_goes_on_as_that_of_a_query_that_stayed(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    kind: str,
    here: str,
    there: str,
) -> None:
    """Every operator, and every form in which Spark keeps a join."""
    query = at_rest_queries.KINDS[kind]
    both = {**query.settings, **LOOK, PARTITIONS_KEY: "2"}

    def go_on(checkpoint: Path, provider: str, files: int) -> None:
        settings({**PROVIDERS[provider], **both})
        at_rest_queries.write_input(tmp_path / "in", files)
        frame = query.build(spark, tmp_path / "in")
        writer = frame.writeStream.format("noop").outputMode(query.mode)
        running = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        running.awaitTermination()

    go_on(tmp_path / "moving", here, 4)
    go_on(tmp_path / "staying", here, 4)
    moved = hf.migrate(
        tmp_path / "moving",
        tmp_path / "moved",
        backend="memory" if there == "memory" else "rocksdb",
        partitions=3,
        state_format=int(PROVIDERS[there][FORMAT_KEY]),
        stopped=True,
    )
    assert moved.rows > 0
    go_on(tmp_path / "moved", there, 7)
    go_on(tmp_path / "staying", here, 7)
    assert contents(LocalStorage(tmp_path / "moved")) == contents(LocalStorage(tmp_path / "staying"))
    found = checkpoints.read(tmp_path / "moved")
    assert found.batch_id is not None
    assert found.batch_id > moved.batch_id


def test_every_family_of_transform_with_state_finds_its_keys(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    """Values, lists and maps with a time to live, and timers: all of a key is where the key is."""
    settings({**PROVIDERS["rocksdb2"], **LOOK, PARTITIONS_KEY: "3"})
    made = grid_queries.files(9, count=3, size=30)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    run_kept(spark, tmp_path, tmp_path / "first")
    moved = hf.migrate(tmp_path / "first", tmp_path / "second", partitions=5, stopped=True)
    families = {each.state.family for each in moved.after if each.rows}
    assert {"count", "amounts", "often"} < families
    assert len([each for each in families if each.startswith("$ttl_")]) == 3
    assert len([each for each in families if "Timers" in each]) == 2
    shutil.rmtree(tmp_path / "first")
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    found = run_kept(spark, tmp_path, tmp_path / "second")
    model = grid_queries.held([each for sides in made for each in sides[0]], [])
    assert found
    assert set(found) <= set(model)


def run_kept(spark: SparkSession, folder: Path, checkpoint: Path) -> list[tuple[Any, ...]]:
    """A query with every kind of state; its rows of the last batch."""
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Kept(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n long", 3_600_000)
            self.amounts = handle.getListState("amounts", "amount long", 3_600_000)
            self.often = handle.getMapState("often", "amount long", "n long", 3_600_000)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            amounts = [int(each) for batch in rows for each in batch["amount"]]
            noted = self.count.get()
            count = (noted[0] if noted else 0) + len(amounts)
            self.count.update((count,))
            for each in amounts:
                self.amounts.appendValue((each,))
                self.often.updateValue((each,), (1,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
            spent = sum(each[0] for each in self.amounts.get())
            distinct = sum(1 for _ in self.often.iterator())
            yield pd.DataFrame({"who": [key[0]], "n": [count], "spent": [spent], "distinct": [distinct]})

        def close(self) -> None:
            pass

    rows: list[tuple[Any, ...]] = []
    output = (
        grid_queries.read(spark, folder, late=None)
        .groupBy("who")
        .transformWithStateInPandas(
            Kept(), "who string, n long, spent long, distinct long", "Update", "ProcessingTime"
        )
    )
    writer = output.writeStream.foreachBatch(
        lambda batch, _: rows.extend(grid_queries.plain(row) for row in batch.collect())
    )
    # Where the clock has a say there is always one more batch, so it is one that is asked for.
    query = (
        writer.outputMode("update").option("checkpointLocation", str(checkpoint)).trigger(once=True).start()
    )
    query.awaitTermination()
    return rows
