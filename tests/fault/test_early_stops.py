"""A job that is stopped while Spark starts ends at once: its function is not called, and nothing is made."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from process_table import working_in
from running_job import running

pytestmark = [pytest.mark.fault, pytest.mark.spark]

JOB = """
from pathlib import Path

import holdfast as hf

@hf.job(name="counts", checkpoint="counts", trigger="available now")
def counts(spark):
    Path("called").touch()
    events = spark.readStream.schema("customer string").json("in")
    return events.groupBy("customer").count().writeStream.outputMode("update").format("noop")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_begun_for_a_job_that_is_to_stop(number: int, tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"customer": "ann"}\n')
    with running("counts.py", tmp_path) as job:
        job.await_event("log")  # the driver has been told to go, and starts a JVM
        os.kill(job.pid, number)
        ended = job.ended()
    assert ended.code == 0
    assert "query" not in ended.kinds
    assert ended.kinds[-1] == "finished"
    assert not (tmp_path / "called").exists()
    assert not (tmp_path / "counts").exists()
    assert working_in(tmp_path) == []
    with running("counts.py", tmp_path) as job:
        assert job.ended().code == 0
    assert (tmp_path / "counts" / "commits" / "0").exists()
