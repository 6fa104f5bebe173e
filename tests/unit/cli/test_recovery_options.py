"""What `run` and `status` say of recovery and of leaders; nothing here starts Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk
from holdfast.jobs.recovery import PHASES, RecoveryTimes, StateSize
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome
from holdfast.model import Failure, JobState, QueryStarted
from holdfast.ownership.election import Leader


@pytest.fixture
def registry(home: Path, tmp_path: Path) -> Registry:
    """A job that has recovered twice, and whose checkpoint is a real one."""
    home.mkdir()
    checkpoint = golden_on_disk("4.2/aggregate-changelog", tmp_path / "checkpoint").as_uri()
    registry = Registry(StateHome(home).registry, 7)
    registry.lead("job", Leader(7, "host pid 1", "zookeeper://a:1/x", 10_000, 0, 0))
    registry.start_job(
        JobRecord(
            "job", job_id("job"), "job.py", checkpoint, "retain", JobState.CREATED, None, 10, 10, None, 42
        )
    )
    for number, load in ((1, 100), (2, 300)):
        attempt = registry.start_attempt("job", number, 1000 * number, recovers=number > 1)
        registry.queries_started(
            "job", attempt, [QueryStarted("q", "id", "run", checkpoint, "none: x")], 1000 * number
        )
        failure = Failure("query", "FileNotFoundException", "no such file", "q", "", "source")
        registry.end_attempt("job", attempt, "failed", failure, 1000 * number + 500)
        phases = {**dict.fromkeys(PHASES, 0), "start": 6000, "load": load}
        registry.add_recovery(
            "job", RecoveryTimes(number, 0, "source: gone", phases, size=StateSize(load * 100, 0))
        )
    return registry


def test_status_tells_what_recoveries_took_and_what_the_next_will(
    holdfast: Holdfast, registry: Registry
) -> None:
    said = holdfast("status", "job", "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["recoveries_ms"] == [6100, 6300]
    assert [each["phases_ms"]["load"] for each in found["recoveries"]] == [100, 300]
    assert found["leader"]["holder"] == "host pid 1"
    prediction = found["prediction"]
    # A hundredth of a millisecond for each byte; test_fallback.py counts the 14721 of the checkpoint by hand.
    assert prediction["phases_ms"]["load"] == 147
    assert prediction["recovery_ms"] == 6147
    assert prediction["error_ms"] == 0
    said = holdfast("status", "job")
    assert "next (predicted)" in said.stdout
    assert "± 0.0 s" in said.stdout or "± 0 ms" in said.stdout
    assert "source" in said.stdout
    assert "host pid 1, elected at zookeeper://a:1/x" in said.stdout


def test_a_way_back_that_there_is_not_is_refused(holdfast: Holdfast) -> None:
    said = holdfast("run", "job.py", "--on-damage", "yesterday")
    assert said.returncode == 2
    assert "unknown fallback" in said.stderr
    assert "batch or savepoint" in said.stderr


@pytest.mark.parametrize("address", ["zookeeper://host:2181", "ftp://host/x", "hdfs://host/x"])
def test_elections_need_a_place(holdfast: Holdfast, address: str) -> None:
    said = holdfast("run", "job.py", "--ha", address)
    assert said.returncode in (2, 7)
    assert address in said.stderr


@pytest.mark.slow
def test_a_job_that_a_leader_has_is_not_run_beside_it(
    holdfast: Holdfast, home: Path, tmp_path: Path, registry: Registry
) -> None:
    Registry(StateHome(home).registry, 7).beat("job", int(time.time() * 1000))
    (tmp_path / "job.py").write_text(
        "import holdfast as hf\n\n@hf.job(name='job', checkpoint='checkpoint')\ndef job(spark):\n    pass\n"
    )
    said = holdfast("run", "job.py")
    assert said.returncode == 4
    assert "a leader of job 'job': host pid 1" in said.stderr
    assert "--ha zookeeper://a:1/x" in said.stderr
