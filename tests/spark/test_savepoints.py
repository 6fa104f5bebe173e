"""Savepoints of queries that really run, and queries that really go on from them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.config.spark_defaults import FORMAT_KEY, MEMORY_PROVIDER, PROVIDER_KEY
from holdfast.engine.session.workers import ship_by_value
from holdfast.savepoints.planning import SMALL_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

PLAIN = Path(__file__).parents[1] / "support" / "plain_query.py"
# Of each of the two queries, so there are a hundred takes and twenty that go on elsewhere.
TAKES = 50
FORKS = 10
ROWS = 20
RESTS = 50
PLAIN_SETTINGS = {
    "defaults": {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"},
    "rocksdb": {},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two plain queries at work, in a process of their own; their checkpoints are in this folder."""
    folder = tmp_path_factory.mktemp("plain")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PLAIN), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n", (folder / "log").read_text()[-3000:]
        yield folder
        process.stdin.close()
        assert process.wait(60) == 0, (folder / "log").read_text()[-3000:]
        process.stdout.close()


def count_on(spark: SparkSession, checkpoint: Path, batches: int) -> dict[int, dict[int, int]]:
    """Let the plain query go on for some batches: what it puts out, by batch."""
    found: dict[int, dict[int, int]] = {}
    enough = threading.Event()

    def take(batch: DataFrame, batch_id: int) -> None:
        found[batch_id] = {row.rest: row["count"] for row in batch.collect()}
        if len(found) >= batches:
            enough.set()

    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    counts = numbers.groupBy((numbers.value % RESTS).alias("rest")).count()
    writer = counts.writeStream.foreachBatch(take).outputMode("update")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    assert enough.wait(120), query.exception()
    query.stop()
    return found


def counted(batch_id: int) -> dict[int, int]:
    """The model: what a batch puts out, the new counts of the numbers that it brought."""
    counts = Counter(value % RESTS for value in range((batch_id + 1) * ROWS))
    return {value % RESTS: counts[value % RESTS] for value in range(batch_id * ROWS, (batch_id + 1) * ROWS)}


@pytest.mark.parametrize("kind", PLAIN_SETTINGS)
def test_a_plain_query_is_saved_while_it_runs_and_goes_on_elsewhere(
    spark: SparkSession,
    plain: Path,
    tmp_path: Path,
    settings: Callable[[dict[str, str]], None],
    kind: str,
) -> None:
    catalog = tmp_path / "catalog"
    taken = [
        savepoints.take(plain / kind, catalog, label=f"take {number}", gentle=False)
        for number in range(TAKES)
    ]
    for each in taken:
        assert savepoints.verify(each.uri).problems == ()
    batches = [each.manifest.batch_id for each in taken]
    assert batches == sorted(batches)
    # It runs on: nothing holds it up, and nothing is written into its checkpoint.
    newest = checkpoints.read(plain / kind)
    assert newest.batch_id is not None
    assert newest.batch_id >= batches[-1]
    assert not (plain / kind / "_holdfast").exists()
    # The catalog is whole by itself: it goes on elsewhere without what it was made from.
    moved = tmp_path / "elsewhere" / "catalog"
    moved.parent.mkdir()
    shutil.move(catalog, moved)
    settings(PLAIN_SETTINGS[kind])
    for number, each in enumerate(taken[:: TAKES // FORKS]):
        saved = moved / "savepoints" / each.manifest.savepoint_id
        target = tmp_path / f"made-{number}"
        make = savepoints.restore if number == 1 else savepoints.fork
        made = make(saved, target)
        enough = 3 if number < 2 else 1
        found = count_on(spark, target, enough)
        first = each.manifest.batch_id + 1
        assert sorted(found)[:enough] == [*range(first, first + enough)]
        assert found == {batch_id: counted(batch_id) for batch_id in found}
        assert checkpoints.read(target).query_id == made.query_id
        assert (made.query_id == each.manifest.query_id) is (make is savepoints.restore)
        assert savepoints.verify(saved).problems == ()


class Visits(hf.Keyed):
    """How often each customer came."""

    visits = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.visits += 1
        yield {"customer": event.customer, "visits": state.visits}


def visits(spark: SparkSession, inputs: Path) -> DataFrame:
    events = spark.readStream.schema("customer string").option("maxFilesPerTrigger", "1").json(str(inputs))
    return hf.keyed(events, by="customer").process(
        Visits(), output="customer string, visits long", name="visits"
    )


def arrive(inputs: Path, number: int) -> list[str]:
    inputs.mkdir(exist_ok=True)
    rows = [f"c{(number * 3 + each) % 7}" for each in range(5)]
    beside = inputs / f".{number:03}"
    beside.write_text("".join(json.dumps({"customer": who}) + "\n" for who in rows))
    beside.rename(inputs / f"{number:03}.json")
    return rows


def run(frame: DataFrame, checkpoint: Path) -> tuple[list[int], dict[str, int]]:
    """Work off what there is: the batches, and the newest answer for each customer."""
    batches: list[int] = []
    answers: dict[str, int] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        batches.append(batch_id)
        for row in batch.collect():
            answers[row.customer] = max(answers.get(row.customer, 0), row.visits)

    writer = frame.writeStream.outputMode("update").foreachBatch(take)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches, answers


def test_keyed_state_goes_on_elsewhere_after_its_checkpoint_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs, original = tmp_path / "in", tmp_path / "original"
    rows = [who for number in range(3) for who in arrive(inputs, number)]
    batches, _ = run(visits(spark, inputs), original)
    taken = savepoints.take(original, tmp_path / "catalog", label="before the fire")
    assert taken.manifest.batch_id == batches[-1]
    later = [who for number in range(3, 5) for who in arrive(inputs, number)]
    counts = Counter([*rows, *later])
    shutil.rmtree(original)
    made = savepoints.restore(taken.uri, tmp_path / "new")
    assert made.query_id == taken.manifest.query_id
    went_on, answers = run(visits(spark, inputs), tmp_path / "new")
    assert went_on[0] == taken.manifest.batch_id + 1
    assert answers == {who: counts[who] for who in later}
    assert checkpoints.verify(tmp_path / "new").problems == ()
    assert not original.exists()
    # What the query did to its new checkpoint has not touched what they share.
    assert savepoints.verify(taken.uri).problems == ()


KEYS = 60_000


def test_large_state_of_a_query_is_digested_behind_the_take(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries over the same input, with other stores and partitions, have the same rows and digests."""
    for file in range(2):
        # Text that no compression makes small.
        keys = spark.range(file * KEYS // 2, (file + 1) * KEYS // 2 + 10, 1, 1)
        keys = keys.selectExpr("sha2(string(id), 256) AS user")
        keys.write.mode("append").parquet(str(tmp_path / "events"))

    def run(name: str, partitions: int, settings: dict[str, str]) -> Path:
        given = {**settings, "spark.sql.shuffle.partitions": str(partitions)}
        before = {key: spark.conf.get(key, None) for key in given}
        for key, value in given.items():
            spark.conf.set(key, value)
        try:
            events = spark.readStream.schema("user string").option("maxFilesPerTrigger", "1")
            counts = events.parquet(str(tmp_path / "events")).groupBy("user").count()
            writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()
        finally:
            for key, old in before.items():
                spark.conf.unset(key) if old is None else spark.conf.set(key, old)
        return tmp_path / name

    sides = {
        "rocksdb": run("rocksdb", 2, {}),
        "memory": run("memory", 3, PLAIN_SETTINGS["defaults"]),
    }
    told = {}
    for name, checkpoint in sides.items():
        catalog = tmp_path / f"catalog-{name}"
        taken = savepoints.take(checkpoint, catalog, digest=False)
        assert savepoints.verify(taken.uri, deep=True).content == "pending"
        [state] = savepoints.digest(taken.uri, gentle=False).states or ()
        proof = savepoints.verify(taken.uri, deep=True)
        assert (proof.problems, proof.content, proof.compared) == ((), "compared", 1)
        told[name] = (state.rows, state.digest)
        assert taken.manifest.size_bytes > SMALL_BYTES, name
    assert told["rocksdb"] == told["memory"]
    assert told["rocksdb"][0] == KEYS + 10
