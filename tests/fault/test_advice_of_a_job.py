"""Lint and advice of a job that has run: they go by its own batches."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import command_in

pytestmark = [pytest.mark.fault, pytest.mark.spark]

JOB = """\
from pyspark.sql import functions as F

import holdfast as hf


@hf.job(name="hours", checkpoint="checkpoint", trigger=hf.available_now())
def hours(spark):
    files = spark.readStream.schema("at timestamp, who string").option("maxFilesPerTrigger", 1)
    events = files.json("arrivals")
    late = events.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour")).count()
    return hf.sink(late).parquet("counts")
"""


def test_rows_that_a_job_dropped_as_late_are_told(tmp_path: Path, home: Path) -> None:
    """Noon moves the watermark to 11:50. Spark drops by it one batch later: 08:01 in the fourth."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "arrivals").mkdir()
    files = [["08:00", "08:02"], ["12:00"], ["12:30"], ["08:01", "12:40"]]
    for number, times in enumerate(files):
        rows = [json.dumps({"at": f"2026-03-05T{time}:00Z", "who": "ann"}) for time in times]
        file = tmp_path / "arrivals" / f"{number}.json"
        file.write_text("\n".join(rows))
        os.utime(file, (number, number))  # Spark takes files by their times
    holdfast = command_in(tmp_path, home)
    ran = holdfast("run", "job.py", "--no-rest", "--conf", "spark.sql.shuffle.partitions=2")
    assert ran.returncode == 0, ran.stderr
    linted = holdfast("lint", "hours", "--json")
    assert linted.returncode == 0, linted.stderr
    report = json.loads(linted.stdout)
    assert report["evidence"] == ["facts"]
    (late,) = [finding for finding in report["findings"] if finding["rule"] == "HF701"]
    assert late["seen"].startswith("1 row was dropped as late, 16.7% of the input, in 1 of "), late
    advised = holdfast("advise", "hours", "--json")
    assert advised.returncode == 0, advised.stderr
    assert json.loads(advised.stdout)["place"] == (tmp_path / "checkpoint").as_uri()
