"""A query starts with the state-checkpoint format that its checkpoint has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden import golden_on_disk
from holdfast.config.spark_defaults import FORMAT_KEY
from holdfast.errors import Invalid
from holdfast.jobs.processes.restore_on_start import state_format_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("name", "format_"), [("aggregate-changelog", "1"), ("aggregate-format2", "2")])
def test_the_setting_is_that_of_the_checkpoint_and_put_back(
    spark: SparkSession, tmp_path: Path, name: str, format_: str
) -> None:
    before = spark.conf.get(FORMAT_KEY)
    place = golden_on_disk(f"4.2/{name}", tmp_path / "ck").as_uri()
    with state_format_of(place, spark, {}):
        assert spark.conf.get(FORMAT_KEY) == format_
    assert spark.conf.get(FORMAT_KEY) == before
    with state_format_of(place, spark, {FORMAT_KEY: str(before)} if before == format_ else {}):
        assert spark.conf.get(FORMAT_KEY) == format_


def test_a_job_that_asks_for_another_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(FORMAT_KEY)
    assert before == "2"
    place = golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck").as_uri()
    with (
        pytest.raises(Invalid, match="the state-checkpoint format set for the job differs") as caught,
        state_format_of(place, spark, {FORMAT_KEY: "2"}),
    ):
        pass
    assert caught.value.expected is not None
    assert caught.value.expected.endswith("checkpointFormatVersion=1")


def test_where_there_is_no_checkpoint_nothing_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(FORMAT_KEY)
    with state_format_of((tmp_path / "none").as_uri(), spark, {FORMAT_KEY: "1"}):
        assert spark.conf.get(FORMAT_KEY) == before
