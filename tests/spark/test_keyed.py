"""Keyed state in Spark puts out what the rules say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import START, by_batch_and_key, expected, program, read_stream, run, ship, write_batch
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody gives it

import holdfast as hf
from holdfast.engine import keyed_operator
from holdfast.formats.key_groups import META
from holdfast.stream.operator_check import SPREAD_KEY
from holdfast.worker.state.group_numbers import EVEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship()


def everything(spark: SparkSession, folder: Path, key_groups: int) -> DataFrame:
    events = read_stream(spark, folder, EVENTS).withWatermark("ts", "5 seconds")
    keyed = hf.keyed(events, by="who", key_groups=key_groups)
    return keyed.process(Everything(), output=OUTPUT, name="everything")


@pytest.mark.parametrize(("seed", "key_groups"), [(1, 128), (2, 3)])
def test_random_programs_with_restarts_agree_with_the_model(
    spark: SparkSession, tmp_path: Path, seed: int, key_groups: int
) -> None:
    batches = program(seed, batches=9, events=30)
    rows = []
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
        if number % 3 == 2:
            rows += run(everything(spark, tmp_path / "in", key_groups), tmp_path / "checkpoint")
    model = Model()
    wanted = expected(tmp_path / "checkpoint", batches, model.batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}
    assert model.late


@pytest.mark.parametrize("key_groups", [1, 12])
def test_keys_may_be_of_a_column_that_is_never_null(
    spark: SparkSession, tmp_path: Path, key_groups: int
) -> None:
    """Batches with events, with timers that are due, and with both, over a restart."""
    batches = [[{**event, "who": event["who"] or "eve"} for event in each] for each in program(5, 6, 30)]
    rows = []
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
        if number % 3 == 2:
            events = read_stream(spark, tmp_path / "in", EVENTS).withWatermark("ts", "5 seconds")
            events = events.withColumn("who", F.coalesce("who", F.lit("nobody")))
            assert not events.schema["who"].nullable
            keyed = hf.keyed(events, by="who", key_groups=key_groups)
            rows += run(keyed.process(Everything(), output=OUTPUT, name="all"), tmp_path / "checkpoint")
    wanted = expected(tmp_path / "checkpoint", batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}


def test_the_public_operator_answers_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_operator, "grafts", lambda: False)
    batches = program(3, batches=4, events=20)
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
    rows = run(everything(spark, tmp_path / "in", 4), tmp_path / "checkpoint")
    wanted = expected(tmp_path / "checkpoint", batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}


def test_key_groups_are_spread_evenly_over_partitions(spark: SparkSession, tmp_path: Path) -> None:
    keys = [{"who": str(n), "op": "add", "n": 1, "ts": START} for n in range(400)]
    write_batch(tmp_path / "in", 0, keys)
    run(everything(spark, tmp_path / "in", 12), tmp_path / "checkpoint")
    reader = spark.read.format("statestore").option("stateVarName", META)
    found: dict[int, set[int]] = {}
    for row in reader.load(str(tmp_path / "checkpoint")).collect():
        found.setdefault(row["partition_id"], set()).add(EVEN.group_at(row["key"][0]))
    count = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    assert found == {partition: set(range(partition, 12, count)) for partition in range(count)}


@pytest.mark.parametrize("graft", [True, False])
def test_a_checkpoint_with_groups_under_their_own_numbers_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Callable[[dict[str, str]], None],
    graft: bool,
) -> None:
    """As checkpoints were before key groups were spread: never read as if they were like the new ones."""
    monkeypatch.setattr(keyed_operator, "grafts", lambda: graft)
    batches = program(4, batches=6, events=30)
    checkpoint = tmp_path / "checkpoint"
    rows = []
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
        if number == 2:
            settings({SPREAD_KEY: "false"})
            rows += run(everything(spark, tmp_path / "in", 12), checkpoint)
            spark.conf.unset(SPREAD_KEY)
    with pytest.raises(StreamingQueryException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        run(everything(spark, tmp_path / "in", 12), checkpoint)
    settings({SPREAD_KEY: "false"})
    rows += run(everything(spark, tmp_path / "in", 12), checkpoint)
    wanted = expected(checkpoint, batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}
