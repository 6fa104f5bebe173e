"""A registry that cannot be used for a while is waited for, and the driver goes on meanwhile."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from running_job import BatchLogs, until

from holdfast.config.policies import no_restart
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState

pytestmark = pytest.mark.fault

SCRIPT = Path(__file__).with_name("supervised_script.py")


class Working:
    """A supervised job that commits until it is told to stop, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.home = StateHome(folder / "home")
        self.home.path.mkdir()
        self.log = BatchLogs(folder / "checkpoint")
        definition = {
            "name": "job",
            "checkpoint": (folder / "checkpoint").as_uri(),
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "record": False,
            "restart": strategy_fields(no_restart()),
        }
        self._script = folder / "job.json"
        self._script.write_text(json.dumps({"definition": definition, "attempts": [["work"]]}))

    @contextmanager
    def supervised(self) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.home.path), str(self._script)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            hear(process, "batch")
            yield process
        finally:
            process.kill()
            process.communicate()

    def goes_on(self, what: str) -> None:
        newest = max(self.log.commits)
        until(lambda: max(self.log.commits) >= newest + 20, f"twenty more batches {what}")

    def check_all_is_written_down(self) -> None:
        registry = Registry(self.home.registry)
        (attempt,) = registry.attempts("job")
        assert (attempt.ending, registry.job("job").state) == ("stopped", JobState.FINISHED)
        known = {each.batch_id for each in registry.batches("job")}
        assert known == self.log.commits


def hear(process: subprocess.Popen[str], wanted: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == wanted:
            return
    raise AssertionError(f"it never said {wanted!r}")


@contextmanager
def locked(home: StateHome) -> Iterator[None]:
    """Somebody writes to the registry, and does not come to an end."""
    with closing(sqlite3.connect(home.registry, isolation_level=None, timeout=60)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def no_descriptors(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process cannot open anything more."""
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    yield
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)


def busy(job: Working, _: subprocess.Popen[str]) -> AbstractContextManager[None]:
    return locked(job.home)


def used_up(_: Working, process: subprocess.Popen[str]) -> AbstractContextManager[None]:
    return no_descriptors(process)


@pytest.mark.parametrize("away", [busy, used_up])
def test_a_job_goes_on_without_its_registry(
    tmp_path: Path, away: Callable[[Working, subprocess.Popen[str]], AbstractContextManager[None]]
) -> None:
    job = Working(tmp_path)
    with job.supervised() as process:
        with away(job, process):
            hear(process, "registry")
            job.goes_on("without the registry")
        hear(process, "registry")
        job.goes_on("with the registry")
        process.send_signal(signal.SIGTERM)
        hear(process, "finished")
        assert process.wait(120) == 0
    job.check_all_is_written_down()


def test_a_job_that_ends_without_its_registry_is_written_down_when_it_is_back(tmp_path: Path) -> None:
    job = Working(tmp_path)
    with job.supervised() as process:
        with locked(job.home):
            hear(process, "registry")
            process.send_signal(signal.SIGTERM)
            hear(process, "finished")
        hear(process, "registry")
        assert process.wait(120) == 0
    job.check_all_is_written_down()
