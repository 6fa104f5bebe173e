"""SIGKILL around a MERGE into a Delta table: each batch is in it once, and the rows are those of a model."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest
from delta_rows import batches, rows
from process_table import working_in
from running_job import JOBS, BatchLogs, kill_at, running
from small_day import BATCHES, FILES, SmallDay

from holdfast.engine.session.jars import has_build

pytestmark = [
    pytest.mark.fault,
    pytest.mark.spark,
    pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark"),
]

SEED = 20260305
# By default each look at a table of ten commits is fifty tasks.
CONF = {"spark.databricks.delta.snapshotPartitions": "1"}


def test_a_driver_killed_around_a_merge_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Once before the MERGE is in the table, once when it is and Spark has not noted the batch."""
    rng = random.Random(SEED)
    day = SmallDay.make(SEED)
    day.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    table, logs = tmp_path / "out" / "totals", BatchLogs(tmp_path / "checkpoint")
    first = rng.randrange(1, FILES // 2)
    second = rng.randrange(first + 1, FILES - 1)

    def begun(batch: int) -> bool:
        return logs.newest >= batch and logs.uncommitted and logs.newest not in merged(table)

    def written(batch: int) -> bool:
        return logs.newest >= batch and logs.uncommitted and logs.newest in merged(table)

    with running(JOBS / "merged_totals.py:merged_totals", tmp_path, conf=CONF) as job:
        for attempt, (reached, batch) in enumerate(((begun, first), (written, second)), start=1):
            kill_at(job.driver(attempt), partial(reached, batch), "the point around a MERGE")
        ended = job.ended()
    assert (ended.code, ended.words) == (0, ""), f"seed {SEED}"
    assert ended.kinds.count("starting") == 3
    assert logs.offsets == logs.commits
    assert rows(table, "account", "orders", "amount") == day.totals()
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    # The two last files hold a row of the next day each.
    assert batches(table) == [(query, batch) for batch in range(BATCHES)]
    assert working_in(tmp_path) == []


def merged(table: Path) -> set[int]:
    """The batches that are in the table; a commit appears whole."""
    return {batch for _, batch in batches(table)} if (table / "_delta_log").is_dir() else set()
