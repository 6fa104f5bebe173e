"""What schedulers and the GitHub Action do with a job that runs: Airflow and Dagster themselves, and bash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from github_runner import Runner
from loopback import free_ports
from required import require
from running_job import RunningJob, running
from scripted_job import serving

from golden import golden_on_disk
from holdfast import savepoints

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "orchestrators"
TOKEN = "0123456789abcdef"

sys.path.append(str(PROGRAMS))
from holdfast_api import Holdfast, OperationFailed  # noqa: E402

pytestmark = pytest.mark.fault


def run(*words: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_retry_continues_what_the_first_try_has_started(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-changelog", tmp_path / "checkpoints" / "counts")
    catalog = tmp_path / "savepoints"
    options = (str(tmp_path / "checkpoints"), "--savepoint-dir", str(catalog), "--token", TOKEN)
    with serving(tmp_path / "home", *options) as (_, url):
        server = Holdfast(url, TOKEN)
        [first] = server.take_savepoint("counts", "monday take", label="monday")
        assert server.take_savepoint("counts", "monday take", label="monday") == [first]
        server.verify(first, "monday verify")
        assert [savepoint.uri for savepoint in savepoints.list(catalog)] == [first]

        with pytest.raises(OperationFailed, match="known from its checkpoint alone"):
            server.restart("counts", "monday restart")
        with pytest.raises(OperationFailed, match="unknown job"):
            server.take_savepoint("nothing", "monday take")
        with pytest.raises(OperationFailed, match="token"):
            Holdfast(url, TOKEN[::-1]).verify(first, "monday verify")

        # An operation that has failed is not what a retry waits for.
        commit = checkpoint / "commits"
        commit.rename(tmp_path / "aside")
        with pytest.raises(OperationFailed):
            server.take_savepoint("counts", "tuesday take")
        (tmp_path / "aside").rename(commit)
        [second] = server.take_savepoint("counts", "tuesday take")
        assert second != first

        damaged = max(catalog.rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
        damaged.chmod(0o600)
        damaged.write_bytes(damaged.read_bytes()[:-1])
        with pytest.raises(OperationFailed, match="damaged"):
            server.verify(first, "wednesday verify")


@dataclass(frozen=True)
class StreamingJob:
    """A job that runs under its supervisor.

    Attributes:
        run: The process.
        folder: Where its checkpoint is.
        url: Its server.
    """

    run: RunningJob
    folder: Path
    url: str

    @property
    def savepoints(self) -> list[str]:
        catalog = self.folder / "checkpoints" / "counts.savepoints"
        return [savepoint.uri for savepoint in savepoints.list(catalog)] if catalog.exists() else []

    @property
    def drivers(self) -> int:
        return [event.get("event") for event in self.run.events].count("starting")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamingJob]:
    """The job of `deploy/jobs`, as it is but for its directory."""
    folder = tmp_path_factory.mktemp("streaming")
    code = (ROOT / "deploy" / "jobs" / "counts.py").read_text().replace("/var/lib/holdfast", str(folder))
    (folder / "counts.py").write_text(code)
    [port] = free_ports(1)
    with running("counts.py", folder, port=port, options=("--token", TOKEN)) as started:
        started.await_event("batch")
        yield StreamingJob(started, folder, f"http://127.0.0.1:{port}")


AIRFLOW = """
from airflow_savepoints import nightly

run = nightly.test(run_conf={"job": "counts"})
for task in sorted(run.get_task_instances(), key=lambda task: task.task_id):
    print("STATE", task.task_id, task.state)
"""


def test_airflow_takes_verifies_and_restarts(job: StreamingJob, tmp_path: Path) -> None:
    python = require("airflow").parent / "bin" / "python"
    before, drivers = len(job.savepoints), job.drivers
    environ = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROGRAMS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_HOLDFAST_DEFAULT": job.url.replace("://", f"://:{TOKEN}@"),
        "PYTHONPATH": str(PROGRAMS),
    }
    said = run(python, "-m", "airflow", "db", "migrate", cwd=tmp_path, **environ)
    assert said.returncode == 0, said.stderr[-3000:]
    said = run(python, "-c", AIRFLOW, cwd=tmp_path, **environ)
    states = dict(line.split()[1:] for line in said.stdout.splitlines() if line.startswith("STATE "))
    assert states == {"take": "success", "verify": "success", "restart": "success"}, said.stderr[-3000:]
    assert len(job.savepoints) == before + 1
    job.run.driver(drivers + 1)


DAGSTER = """
import sys
import holdfast_api
from dagster import RunConfig
from dagster_savepoints import StreamingJob, defs

# The run of argument 2, to its end or killed after its savepoint.
if sys.argv[1] == "killed":
    take = holdfast_api.Holdfast.take_savepoint

    def killed(*arguments, **named):
        take(*arguments, **named)
        raise SystemExit(9)

    holdfast_api.Holdfast.take_savepoint = killed
config = RunConfig(ops={name: StreamingJob(name="counts") for name in ("take_savepoint", "restart_job")})
done = defs.resolve_job_def("nightly_savepoint").execute_in_process(run_config=config, run_id=sys.argv[2])
print("STATE", *sorted(event.step_key for event in done.all_events if event.is_step_success))
"""


def test_dagster_continues_what_a_killed_run_has_started(job: StreamingJob, tmp_path: Path) -> None:
    python = require("dagster").parent / "bin" / "python"
    before, drivers = len(job.savepoints), job.drivers
    environ = {
        "DAGSTER_HOME": "",
        "HOLDFAST_URL": job.url,
        "HOLDFAST_TOKEN": TOKEN,
        "PYTHONPATH": str(PROGRAMS),
    }
    number = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    said = run(python, "-c", DAGSTER, "killed", number, cwd=tmp_path, **environ)
    assert said.returncode != 0
    assert len(job.savepoints) == before + 1
    said = run(python, "-c", DAGSTER, "whole", number, cwd=tmp_path, **environ)
    assert said.returncode == 0, said.stderr[-3000:]
    assert "STATE restart_job take_savepoint verify_savepoints" in said.stdout
    # The same savepoint, and one restart.
    assert len(job.savepoints) == before + 1
    job.run.driver(drivers + 1)


def test_the_action_checks_new_code_against_the_running_job(job: StreamingJob, tmp_path: Path) -> None:
    runner = Runner(tmp_path, "http://nobody.example")
    code = (job.folder / "counts.py").read_text()
    (runner.workspace / "counts.py").write_text(code)
    text_keys = code.replace('% 10).alias("digit")', '% 10).cast("string").alias("digit")')
    assert text_keys != code
    (runner.workspace / "changed.py").write_text(text_keys)
    (runner.workspace / "clean.py").write_text(
        "a = 1\n"
    )  # lint refuses the checkpoints of a test, below /tmp
    assert runner.run("Lint", files="clean.py").returncode == 0
    against = str(job.folder / "checkpoints" / "counts")
    for name, verdict, exit_code in (("counts.py", "kept", 0), ("changed.py", "fails", 1)):
        said = runner.run("Check", job=name, against=against)
        assert said.returncode == 0, said.stderr
        assert runner.values["steps.check.outputs.verdict"] == verdict
        assert runner.run("Report", comment="false").returncode == exit_code
    assert runner.run("Check", job="counts.py", against=str(tmp_path / "nowhere")).returncode == 3


@pytest.mark.parametrize("name", ["airflow", "dagster"])
def test_the_schedules_are_loaded_as_a_scheduler_loads_them(name: str, tmp_path: Path) -> None:
    python = require(name).parent / "bin" / "python"
    environ = {
        "AIRFLOW_HOME": str(tmp_path),
        "HOLDFAST_URL": "http://nobody.example",
        "HOLDFAST_TOKEN": "",
        "PYTHONPATH": str(PROGRAMS),
    }
    looks = {
        "airflow": "from airflow_savepoints import nightly as n; print(sorted(n.task_ids), n.schedule)",
        "dagster": "from dagster_savepoints import defs\n"
        "print(defs.resolve_schedule_def('nightly_savepoint_schedule').cron_schedule)",
    }
    said = run(python, "-c", looks[name], cwd=tmp_path, **environ)
    assert said.returncode == 0, said.stderr[-3000:]
    assert "0 3 * * *" in said.stdout
