"""Queries that meet at a Delta table: a fork beside its original, and a table whose columns change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from command import Holdfast
from delta_job import run_delta_job
from delta_rows import batches, rows

from holdfast import savepoints
from holdfast.engine.session.jars import has_build

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark"),
]

FORKED = """
import holdfast as hf

@hf.job(name="rows", checkpoint={checkpoint!r}, trigger=hf.available_now(), extras=["delta"],
        restart=hf.no_restart(), conf={{"spark.ui.enabled": "false"}})
def rows(spark):
    return hf.sink(spark.readStream.schema("n long").json("in")).delta("./table")
"""
# The first batch gives the table that is read another column, and a row that has it.
CHANGED = """
from pathlib import Path

import holdfast as hf

@hf.job(name="rows", checkpoint="checkpoint", trigger=hf.every("100ms"), extras=["delta"],
        restart=hf.no_restart(), conf={"spark.ui.enabled": "false"})
def rows(spark):
    table = f"delta.`{Path('source').absolute()}`"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (n BIGINT) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1)")

    def change(batch, batch_id):
        batch.write.format("noop").mode("overwrite").save()
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS (word STRING)")
        spark.sql(f"INSERT INTO {table} VALUES (2, 'b')")

    return hf.sink(spark.readStream.format("delta").load("source")).foreach_batch(change)
"""


def test_a_fork_appends_again_and_is_warned_of(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    """Row 0 comes before the savepoint, row 1 after it: both queries write row 1, each once."""
    (tmp_path / "in").mkdir()
    (tmp_path / "job.py").write_text(FORKED.format(checkpoint="checkpoint"))
    (tmp_path / "in" / "0.json").write_text('{"n": 0}\n')
    assert "rows of a different query" not in run_delta_job(holdfast, home)
    saved = savepoints.take(tmp_path / "checkpoint", tmp_path / "catalog").uri
    (tmp_path / "in" / "1.json").write_text('{"n": 1}\n')
    run_delta_job(holdfast, home)
    savepoints.fork(saved, tmp_path / "forked")
    (tmp_path / "job.py").write_text(FORKED.format(checkpoint="forked"))
    assert "./table has rows of a different query" in run_delta_job(holdfast, home)
    assert rows(tmp_path / "table", "n") == Counter({(0,): 1, (1,): 2})
    original, fork = dict.fromkeys(query for query, _ in batches(tmp_path / "table"))
    assert batches(tmp_path / "table") == [(original, 0), (original, 1), (fork, 1)]


def test_a_source_whose_columns_change_is_told(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(CHANGED)
    said = run_delta_job(holdfast, home, code=1)
    assert "DELTA_SCHEMA_CHANGED" in said
    assert "restart the job to read the new columns" in said
    assert "Traceback" not in said
