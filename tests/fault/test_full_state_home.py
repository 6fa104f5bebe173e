"""A state home without room when a driver begins: it is told, and tried again by the restart strategy."""

from __future__ import annotations

import errno
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from small_disk import small_disk

from holdfast.config.policies import fixed_delay
from holdfast.config.settings import make_directory
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.events import JobEvent, JobOutcome
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import Channel, Go, JobDefined, JobFailed, Message
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.model import JobState

pytestmark = pytest.mark.fault

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
FULL = "No space left on device"
JOB = """\
import holdfast as hf

@hf.job(name="job", checkpoint={checkpoint!r})
def build(spark):
    raise AssertionError("it has begun")
"""


class SmallDisk:
    """A file system that has no room for one file more, until it is given some."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = iter(range(1000))

    def fill(self) -> None:
        with suppress(OSError):
            for number in self._numbers:
                (self._place / f"filler-{number}").touch()

    def clear(self) -> None:
        for file in self._place.glob("filler-*"):
            file.unlink()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk where a state home keeps what belongs to jobs; its registry has a larger one."""
    with small_disk(tmp_path / "home" / "jobs", "nr_inodes=16") as place:
        yield SmallDisk(place)


def supervised(folder: Path, on_event: Callable[[JobEvent], None], attempts: int = 5) -> JobOutcome:
    """Run a job whose driver finishes as soon as it is let go."""
    definition = {
        "name": "job",
        "checkpoint": (folder / "checkpoint").as_uri(),
        "on_cancel": "retain",
        "timeout_ms": None,
        "tolerable_failures": 0,
        "restart": strategy_fields(fixed_delay(attempts=attempts, delay="1ms")),
    }
    script = folder / "job.json"
    script.write_text(json.dumps({"definition": definition, "attempts": [["batch", "finish"]]}))
    now = iter(range(1, 1_000_000))
    return Supervisor(
        DriverSpec(target=str(script), home=str(folder / "home")),
        StateHome(folder / "home"),
        on_event,
        clock=lambda: next(now),
        rng=random.Random(7),
        launch=lambda each: DriverProcess.start(each, FAKE),
    ).run()


def test_a_job_begins_when_there_is_room(jobs: SmallDisk, tmp_path: Path) -> None:
    """The first thing that is made there is the job's directory with the lock of its supervisor."""
    told: list[str] = []

    def tell(event: JobEvent) -> None:
        if event.kind == "restarting":
            told.append(event.text)
            jobs.clear()

    jobs.fill()
    outcome = supervised(tmp_path, tell)
    assert (outcome.state, outcome.attempts, outcome.batches) == (JobState.FINISHED, 2, 1)
    place = tmp_path / "home" / "jobs" / "job"
    assert [
        each.startswith(f"job: start: OSError: the driver could not start: {FULL}: {place}") for each in told
    ]
    assert len(told) == 1


@pytest.mark.parametrize("attempts", [5, 1])
def test_a_log_that_cannot_be_begun_is_a_failure_of_that_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """Where no disk can be mounted: what makes the directory answers as a full disk does, twice."""
    (tmp_path / "home").mkdir()
    full = iter([True] * 2)

    def make(path: Path) -> None:
        if next(full, False):
            raise OSError(errno.ENOSPC, FULL, str(path))
        make_directory(path)

    monkeypatch.setattr("holdfast.jobs.state_home.make_directory", make)
    told: list[Any] = []
    outcome = supervised(tmp_path, told.append, attempts)
    waits = [each.text for each in told if each.kind == "restarting"]
    assert all(FULL in each and "(hint: free disk space there)" in each for each in waits)
    known = Registry(tmp_path / "home" / "registry.db").attempts("job")
    if attempts == 5:
        assert (outcome.state, outcome.attempts, len(waits)) == (JobState.FINISHED, 3, 2)
        assert [each.ending for each in known] == ["failed", "failed", "finished"]
    else:
        assert (outcome.state, outcome.attempts, len(waits)) == (JobState.FAILED, 2, 1)
        assert outcome.reason is not None
        assert FULL in outcome.reason
        assert [each.ending for each in known] == ["failed"] * 2
    assert known[0].failure is not None
    assert (known[0].failure.label, known[0].failure.cause) == ("start", "resources")


def test_a_supervisor_that_cannot_make_its_lock_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    full = iter([True])

    def make(path: Path) -> None:
        if path.name == "job" and next(full, False):
            raise OSError(errno.ENOSPC, FULL, str(path))
        make_directory(path)

    monkeypatch.setattr("holdfast.storage.file_lock.make_directory", make)
    told: list[JobEvent] = []
    outcome = supervised(tmp_path, told.append)
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 2)
    assert [FULL in each.text for each in told if each.kind == "restarting"] == [True]


def test_a_driver_that_cannot_make_its_log_says_so(
    jobs: SmallDisk, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.py"
    file.write_text(JOB.format(checkpoint=str(tmp_path / "checkpoint")))
    jobs.fill()
    log = tmp_path / "home" / "jobs" / "driver-1.log"
    driver = DriverProcess.start(DriverSpec(target=str(file), home=str(tmp_path / "home")))
    try:
        assert isinstance(heard(driver.channel), JobDefined)
        driver.channel.send(Go(str(log), restore=False, repeat={}, term=None, election="", machine="m"))
        said = heard(driver.channel)
    finally:
        driver.kill()
        driver.reap()
    assert isinstance(said, JobFailed)
    expected = f"the driver could not start: {FULL}: {log} (hint: free disk space there)"
    assert (said.failure.line, said.failure.cause) == (expected, "resources")
    assert capfd.readouterr().err == ""


def heard(channel: Channel) -> Message:
    """The next thing that a driver says."""
    while True:
        messages = channel.receive()
        assert messages is not None
        if messages:
            return messages[0]
