"""How far a job is behind a Delta table that it reads, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast
from delta_job import run_delta_job

from holdfast.engine.session.jars import has_build
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark"),
]

JOB = """\
from pathlib import Path

import holdfast as hf

SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "1"}


@hf.job(name="rows", checkpoint="checkpoint", trigger=hf.available_now(), extras=["delta"],
        restart=hf.no_restart(), conf=SETTINGS)
def rows(spark):
    if Path("in").exists():
        spark.sql(f"OPTIMIZE delta.`{Path('in').resolve()}`")
    else:
        for number in range(4):
            spark.range(3).coalesce(1).write.format("delta").mode("append").save("./in")
    numbers = spark.readStream.format("delta").option("startingVersion", 0).option("maxFilesPerTrigger", 1)
    return numbers.load("./in").writeStream.format("parquet").option("path", "./out")
"""


def test_versions_that_are_left_are_told_and_those_without_rows_pass(
    holdfast: Holdfast, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the versions 0 to 3 has a file, and a batch reads one, which ends the version before."""
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB)
    run_delta_job(holdfast, home)
    table = f"file:{tmp_path.resolve()}/in"
    positions = [
        (position.topic, position.unit, position.next, position.latest)
        for batch in Registry(StateHome(home).registry).batches("rows")
        for source in batch.sources
        for position in source.positions
    ]
    assert positions == [(table, "versions", next_, 4) for next_ in (0, 1, 2, 3, 4)][-len(positions) :]
    assert len(positions) >= 4
    (lag,) = json.loads(holdfast("status", "rows", "--json").stdout)["lag"]
    assert (lag["topic"], lag["versions"], lag["records"], lag["behind_ms"]) == (table, 0, None, 0)
    # A version that only rewrites files has no rows; the source reads past it.
    run_delta_job(holdfast, home)
    (lag,) = json.loads(holdfast("status", "rows", "--json").stdout)["lag"]
    assert (lag["next"], lag["latest"], lag["versions"]) == (5, 5, 0)
