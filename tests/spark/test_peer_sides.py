"""The Spark sides of `holdfast bench peers` find the alerts that a plain loop finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast_bench.peers.on_spark import measure
from holdfast_bench.peers.peer_events import write
from holdfast_bench.peers.spark_sides import SPARK_SIDES, SQL
from holdfast_bench.peers.stopwatch import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("side", [side for side in SPARK_SIDES if side not in SQL])
def test_a_side_finds_all_alerts(spark: SparkSession, tmp_path: Path, side: str) -> None:
    expected = write(tmp_path / "events", rows=120, batches=3, users=20)
    place = tmp_path / "run"
    place.mkdir()
    run = measure(spark, Task(side, str(tmp_path / "events"), 120, 120, 360, str(place)))
    assert (run.events, run.alerts) == (240, expected)
    assert run.seconds > 0
