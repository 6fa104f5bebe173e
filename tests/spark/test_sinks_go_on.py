"""Every verb that makes a checkpoint, with every sink, and 25 more batches: every row is right.

The whole grid takes half an hour; `HOLDFAST_GRID=all` runs it. Otherwise each sink has one cell of 12
batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sink_grid
from grid import WHOLE
from grid_runs import PARTITIONS_KEY, PROVIDERS
from sink_grid import MOVES, SINKS, fits, run_cell

from holdfast.engine.session.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]
ship_by_value(sink_grid)

# Delta and Kafka need a session of their own: see tests/services/test_sinks_go_on_elsewhere.py.
HERE = [name for name in SINKS if "delta" not in name and "kafka" not in name]
FEW = [
    ("parquet", "rescale"),
    ("json", "restore_older"),
    ("own_parquet", "migrate"),
    ("foreachBatch", "skip_file"),
    ("memory", "evolve"),
    ("console", "migrate_twice"),
    ("own_append", "edit"),
    ("own_upsert", "restore"),
]
GRID = [(sink, move) for sink in HERE for move in MOVES if fits(sink, move)] if WHOLE else FEW


@pytest.mark.parametrize(("sink", "move"), GRID)
def test_a_moved_query_goes_on(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    sink: str,
    move: str,
) -> None:
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    expected, found = run_cell(spark, tmp_path / "cell", sink, move)
    assert found == expected
