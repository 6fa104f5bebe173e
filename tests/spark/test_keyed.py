"""Keyed state in Spark puts out what the rules say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import by_batch_and_key, expected, program, read_stream, run, ship, write_batch

import holdfast as hf
from holdfast.engine import keyed_operator

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
