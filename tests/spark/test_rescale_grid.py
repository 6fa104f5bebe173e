"""Any kind of query, any provider, another number of partitions in the middle: every answer is right.

The whole grid takes minutes; `HOLDFAST_GRID=all` runs it. Otherwise every kind of query meets every provider,
and the changes take turns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grid_queries
import pytest
from grid import WHOLE
from grid_queries import KINDS
from grid_runs import PARTITIONS_KEY, PROVIDERS, run

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]
ship_by_value(grid_queries)

CHANGES = [(2, 2), (2, 4), (4, 2), (3, 5)]
PAIRS = [(kind, each) for each in PROVIDERS for kind in KINDS if each != "memory" or KINDS[kind].heap]
# Each kind with one provider or two.
GRID = [(*pair, CHANGES[index % len(CHANGES)]) for index, pair in enumerate(PAIRS) if index % 2 == 0]
if WHOLE:
    GRID = [(*pair, change) for pair in PAIRS for change in CHANGES]


def fingerprint(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("kind", "provider", "change"), GRID, ids=lambda each: str(each).replace(" ", ""))
def test_a_query_goes_on_in_other_partitions(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    kind: str,
    provider: str,
    change: tuple[int, int],
) -> None:
    before, after = change
    settings({**PROVIDERS[provider], PARTITIONS_KEY: str(before)})
    made = grid_queries.files(7, count=3, size=20)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    rows = run(spark, kind, tmp_path, tmp_path / "first")
    kept = fingerprint(tmp_path / "first")
    rescaled = savepoints.rescale(tmp_path / "first", tmp_path / "second", partitions=after, stopped=True)
    assert fingerprint(tmp_path / "first") == kept
    [operator] = checkpoints.read(tmp_path / "second").operators
    assert operator.partitions == after
    assert rescaled.rows > 0
    assert checkpoints.verify(tmp_path / "second").problems == ()
    # What it was made of is not needed any more.
    shutil.rmtree(tmp_path / "first")
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    rows += run(spark, kind, tmp_path, tmp_path / "second")
    left = [event for sides in made for event in sides[0]]
    right = [event for sides in made for event in sides[1]]
    assert grid_queries.in_the_end(rows, KINDS[kind].key_columns) == KINDS[kind].model(left, right)
    # No session may still be there that works in the source's directory; the source's lock lies beside it.
    assert {each.name for each in tmp_path.iterdir()} == {".first.holdfast.lock", "left", "right", "second"}


@pytest.mark.parametrize("provider", ["rocksdb1", "rocksdb2"])
def test_spark_moves_keys_that_are_encoded_as_avro(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path, provider: str
) -> None:
    encoding = {"spark.sql.streaming.stateStore.encodingFormat": "avro"}
    settings({**PROVIDERS[provider], **encoding, PARTITIONS_KEY: "2"})
    made = grid_queries.files(7, count=3, size=20)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    rows = run(spark, "state", tmp_path, tmp_path / "first")
    with pytest.raises(Unsupported, match="Avro"):
        hf.plan_migrate(tmp_path / "first", partitions=3)
    assert savepoints.plan_rescale(tmp_path / "first", partitions=3).starts_spark
    rescaled = savepoints.rescale(tmp_path / "first", tmp_path / "second", partitions=3, stopped=True)
    assert rescaled.rows > 0
    assert checkpoints.verify(tmp_path / "second").problems == ()
    [operator] = checkpoints.read(tmp_path / "second").operators
    assert operator.partitions == 3
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    rows += run(spark, "state", tmp_path, tmp_path / "second")
    kind = KINDS["state"]
    left = [event for sides in made for event in sides[0]]
    assert grid_queries.in_the_end(rows, kind.key_columns) == kind.model(left, [])


@pytest.mark.parametrize(
    ("key", "starts_spark"),
    [
        ("make_dt_interval(amount % 3, amount % 5)", True),
        ("map(who, amount % 3)", True),
        ("cast(who as varchar(10))", False),
        ("null", False),
    ],
)
def test_spark_moves_keys_whose_hash_is_not_known_here(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    key: str,
    starts_spark: bool,
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    def counts() -> DataFrame:
        seen = grid_queries.read(spark, tmp_path, late=None)
        return seen.select(F.expr(key).alias("key")).groupBy("key").count()

    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    write_all(tmp_path)
    run_out(counts(), tmp_path / "first", "update")
    assert savepoints.plan_rescale(tmp_path / "first", partitions=3).starts_spark is starts_spark
    rescaled = savepoints.rescale(tmp_path / "first", tmp_path / "second", partitions=3, stopped=True)
    assert rescaled.rows > 0
    if starts_spark:
        with pytest.raises(Unsupported, match=r"the partitions of keys of type .* cannot be computed"):
            hf.plan_migrate(tmp_path / "first", partitions=3)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_aggregate_without_keys_beside_another_operator(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path, provider: str
) -> None:
    """One task has all of its state, whatever the number; the keys of the other operator move."""
    settings({**PROVIDERS[provider], PARTITIONS_KEY: "2"})
    found: list[int] = []

    def count_distinct(checkpoint: Path) -> None:
        distinct = grid_queries.dedupe(spark, tmp_path).groupBy().count()
        writer = distinct.writeStream.foreachBatch(
            lambda batch, _: found.extend(row[0] for row in batch.collect())
        )
        query = writer.outputMode("complete").option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    made = grid_queries.files(7, count=3, size=20)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    count_distinct(tmp_path / "first")
    rescaled = savepoints.rescale(tmp_path / "first", tmp_path / "second", partitions=3, stopped=True)
    assert rescaled.plan.before == (2,)
    assert checkpoints.verify(tmp_path / "second").problems == ()
    partitions = {each.name: each.partitions for each in checkpoints.read(tmp_path / "second").operators}
    assert partitions == {"dedupe": 3, "stateStoreSave": 1}
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    count_distinct(tmp_path / "second")
    left = [event for sides in made for event in sides[0]]
    assert found[-1] == len(grid_queries.deduplicated(left, []))


def write_all(folder: Path) -> None:
    for number, sides in enumerate(grid_queries.files(7, count=3, size=20)):
        grid_queries.write(folder, number, sides)


def run_out(frame: DataFrame, checkpoint: Path, mode: str) -> None:
    writer = frame.writeStream.format("noop").outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
