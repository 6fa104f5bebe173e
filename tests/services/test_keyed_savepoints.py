"""Savepoints of keyed state in a database have all of it in their files, and go on exactly without one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blob_databases import PRODUCTS, Keeper, keeper_of
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import by_batch_and_key, expected, program, read_stream, ship, write_batch

import holdfast as hf
from holdfast import savepoints
from holdfast.checkpoints.keyed import operators_elsewhere
from holdfast.engine.spark_state import stored_groups
from holdfast.errors import Corrupt
from holdfast.storage.local import LocalStorage
from holdfast.worker.state.blob_store import is_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.usefixtures("guards_wait_no_time")]
ship()

Rows = list[tuple[int, dict[str, Any]]]
FIRST, ALL = 4, 6


def started(spark: SparkSession, folder: Path, checkpoint: str, **options: Any) -> Rows:
    """Run what there is to its end; each row with the number of its batch."""
    rows: Rows = []

    def take(batch: DataFrame, batch_id: int) -> None:
        rows.extend((batch_id, row.asDict(recursive=True)) for row in batch.collect())

    events = read_stream(spark, folder / "in", EVENTS).withWatermark("ts", "5 seconds")
    answers = hf.keyed(events, by="who", key_groups=3).process(
        Everything(), output=OUTPUT, name="everything", **options
    )
    query = (
        hf.sink(answers, mode="update")
        .foreach_batch(take)
        .start(checkpoint=str(folder / checkpoint), trigger=hf.available_now())
    )
    query.awaitTermination()
    return rows


@pytest.fixture(params=PRODUCTS)
def keeper(request: pytest.FixtureRequest) -> Keeper:
    return keeper_of(request, request.param)


def agrees(rows: Rows, folder: Path, checkpoint: str, batches: Sequence[list[dict[str, Any]]]) -> None:
    wanted = expected([folder / "former", folder / checkpoint], batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}


def named(spark: SparkSession, checkpoint: Path) -> set[bool]:
    """Whether Spark's store has names of blobs, blobs, or both."""
    return {
        is_name(blob)
        for store in stored_groups(spark, str(checkpoint))
        for group in store.groups
        for blob in (*store.load(group).base, *store.load(group).log)
    }


def test_a_savepoint_needs_no_database_and_its_query_goes_on_with_and_without_one(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"blobs": keeper.choice(prefix="saved"), "blobs_from": "1b"}
    batches = program(21, batches=ALL, events=30)
    for number in range(FIRST):
        write_batch(tmp_path / "in", number, batches[number])
    rows = started(spark, tmp_path, "checkpoint", **kept)
    assert named(spark, tmp_path / "checkpoint") == {True}

    taken = savepoints.take(tmp_path / "checkpoint", tmp_path / "savepoints", label="with blobs", deep=True)
    assert savepoints.verify(taken.uri).ok
    assert taken.manifest.checkpoint == (tmp_path / "checkpoint").as_uri()
    # It is the only thing in its catalog, and the checkpoint is as it was.
    assert [each.uri for each in savepoints.list(tmp_path / "savepoints")] == [taken.uri]
    assert operators_elsewhere(LocalStorage(tmp_path / "checkpoint")) == {"everything": keeper.product}

    elsewhere = {"Redis": "redis://127.0.0.1:1", "Cassandra": "cassandra://127.0.0.1:1/blobs"}
    variable = f"HOLDFAST_{keeper.product.upper()}_ADDRESS"
    monkeypatch.setenv(variable, elsewhere[keeper.product])
    for place in ("without", "with", "wider"):
        savepoints.restore(taken.uri, tmp_path / place)
        assert named(spark, tmp_path / place) == {False}
        assert operators_elsewhere(LocalStorage(tmp_path / place)) == {}
    shutil.rmtree(tmp_path / "wider")
    savepoints.rescale(taken.uri, tmp_path / "wider", partitions=5)
    monkeypatch.delenv(variable)

    # The same is made of the checkpoint itself, on the way to other partitions.
    savepoints.rescale(tmp_path / "checkpoint", tmp_path / "rescaled", partitions=3, stopped=True)
    assert named(spark, tmp_path / "rescaled") == {False}

    shutil.copytree(tmp_path / "checkpoint" / "offsets", tmp_path / "former" / "offsets")
    for number in range(FIRST, ALL):
        write_batch(tmp_path / "in", number, batches[number])
    agrees(
        rows + started(spark, tmp_path, "checkpoint", **kept),
        tmp_path,
        "checkpoint",
        batches,
    )
    for place, options in (("without", {}), ("with", kept), ("wider", {}), ("rescaled", kept)):
        agrees(rows + started(spark, tmp_path, place, **options), tmp_path, place, batches)


def test_a_blob_that_is_gone_is_named_and_no_savepoint_is_there(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    kept = {"blobs": keeper.choice(prefix="gone"), "blobs_from": "1b"}
    for number, batch in enumerate(program(22, batches=2, events=30)):
        write_batch(tmp_path / "in", number, batch)
    started(spark, tmp_path, "checkpoint", **kept)
    before = sorted(path for path in (tmp_path / "checkpoint").rglob("*"))
    for key in keeper.keys("gone"):
        keeper.lose(key)
    with pytest.raises(Corrupt, match=f"is missing in {keeper.product}"):
        savepoints.take(tmp_path / "checkpoint", tmp_path / "savepoints")
    assert savepoints.list(tmp_path / "savepoints") == ()
    assert sorted(path for path in (tmp_path / "checkpoint").rglob("*")) == before
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".holdfast")] == []
