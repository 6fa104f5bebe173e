"""Jobs started from Python: they run on without the caller, and one that cannot run gives its error."""

from __future__ import annotations

from pathlib import Path

import pytest
from process_table import processes
from running_job import JOBS, until
from small_day import SmallDay, found_in_files
from small_session import small_session

import holdfast as hf
from holdfast.errors import Failed, Invalid, NotFound

pytestmark = pytest.mark.fault

COLUMNS = ("begin", "account", "orders", "amount")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


@pytest.mark.spark
def test_a_job_is_started_stopped_and_started_again(tmp_path: Path) -> None:
    day = SmallDay.make(9)
    day.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    target, conf = JOBS / "windows.py", small_session("1g")
    started = hf.jobs.start(
        f"{target}:windows", conf=conf, master="local[2]", overrides={"trigger": "100 ms"}
    )
    assert (started.job.name, started.job.state, started.supervised) == ("windows", "RUNNING", True)
    assert [status.job.name for status in hf.jobs.list()] == ["windows"]
    hf.jobs.stop("windows")
    # The trigger of the job itself: it ends when all files are read.
    hf.jobs.start(f"{target}:windows", conf=conf, master="local[2]")
    until(lambda: hf.jobs.status("windows").details.status.job.state == "FINISHED", "all is read")
    assert found_in_files(tmp_path / "out" / "windows", *COLUMNS) == day.windows()
    pid = hf.jobs.status("windows").details.status.job.supervisor_pid
    until(lambda: pid not in {each.pid for each in processes()}, "the supervisor ends")
    assert list((tmp_path / "home").glob("supervisor-*.log")) == []
    assert (tmp_path / "home" / "jobs" / "windows" / "supervisor.log").read_text() == ""


def test_a_job_that_cannot_run_gives_the_error_of_its_supervisor(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        hf.jobs.start("missing.py")
    assert "missing.py" in str(missing.value)
    job = tmp_path / "plain.py"
    job.write_text(
        "import holdfast as hf\n\n@hf.job(name='plain', checkpoint='c')\ndef plain(spark):\n    pass\n"
    )
    with pytest.raises(Invalid, match="unknown setting"):
        hf.jobs.start(job, overrides={"nothing": "1"})
    assert hf.jobs.list() == ()
    assert list((tmp_path / "home").glob("supervisor-*.log")) == []


@pytest.mark.spark
def test_a_job_that_fails_before_it_runs_gives_its_failure(tmp_path: Path) -> None:
    job = tmp_path / "broken.py"
    job.write_text(
        "import holdfast as hf\n\n"
        "@hf.job(name='broken', checkpoint='c', restart=hf.no_restart())\n"
        "def broken(spark):\n    raise ValueError('the menu is missing')\n"
    )
    with pytest.raises(Failed, match="the menu is missing") as failed:
        hf.jobs.start(job, conf=small_session("1g"), master="local[1]")
    assert failed.value.code == "HF-E1003"
