"""Several supervisors of one job as real processes: killed, frozen, cut off from their elections."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from running_job import JOBS, PATIENCE_S, freeze, running, until
from small_day import SmallDay, found_in_ledger
from zookeeper_server import Server

from holdfast.config.restart import fixed_delay
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.home import StateHome
from holdfast.jobs.registry import Registry
from holdfast.jobs.registry_file import writer_of
from holdfast.model import JobState

pytestmark = pytest.mark.fault

# Long enough for a busy machine to renew it in time; only takeovers wait for it to pass.
LEASE_S = 3
PROGRAM = (sys.executable, str(Path(__file__).with_name("one_of_several.py")))
LONG = pytest.mark.skipif(not WHOLE, reason="starts Spark several times; HOLDFAST_GRID=all runs it")


class Supervising:
    """One supervisor as a process."""

    def __init__(self, script: Path, home: Path, address: str) -> None:
        self.registry = StateHome(home).registry
        command = [*PROGRAM, str(script), str(home), address, f"{LEASE_S}s"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def heard(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in list(self.events) if each["event"] == kind]

    def await_event(self, kind: str, count: int = 1) -> dict[str, Any]:
        until(lambda: len(self.heard(kind)) >= count, f"event {kind} number {count} in {self.events}")
        return self.heard(kind)[count - 1]

    def await_batch_after(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The first batch after an event."""
        event = self.await_event(kind, count)

        def later() -> list[dict[str, Any]]:
            return [each for each in self.heard("batch") if each["at"] >= event["at"]]

        until(lambda: bool(later()), f"a batch after {kind} in {self.events}")
        return later()[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def freeze(self, *, writing: bool = False) -> None:
        """Stop it while it writes to the registry, or while it does not."""
        stat = Path("/proc") / str(self.process.pid) / "stat"
        while True:
            self.signal(signal.SIGSTOP)
            until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still")
            if (writer_of(self.registry) == self.process.pid) == writing:
                return
            self.signal(signal.SIGCONT)

    @property
    def driver(self) -> int:
        """Its newest driver."""
        return int(self.heard("starting")[-1]["pid"])

    def ended(self) -> dict[str, Any]:
        self.process.wait(PATIENCE_S)
        self._reader.join()
        return self.events[-1]

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for each in self.heard("starting"):
            with suppress(ProcessLookupError):
                os.killpg(int(each["pid"]), signal.SIGKILL)
        # The pipe is the drivers' too.
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Case:
    """A job whose driver writes a row a batch through a ledger, and its supervisors."""

    def __init__(self, folder: Path, stack: ExitStack, address: str) -> None:
        self.folder = folder
        self.address = address
        self.home = StateHome(folder / "home")
        self.home.path.mkdir()
        self.script = folder / "job.json"
        self._stack = stack
        definition = {
            "name": "job",
            "checkpoint": (folder / "checkpoint").as_uri(),
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "restart": strategy_fields(fixed_delay(attempts=3, delay="1ms")),
            "record": False,
        }
        self.script.write_text(json.dumps({"definition": definition, "attempts": [["work"]]}))

    def supervisor(self) -> Supervising:
        made = Supervising(self.script, self.home.path, self.address)
        self._stack.callback(made.close)
        return made

    def leader_and_standby(self) -> tuple[Supervising, Supervising]:
        leader = self.supervisor()
        leader.await_event("batch")
        standby = self.supervisor()
        standby.await_event("standby")
        assert standby.heard("leading") == []
        return leader, standby

    @property
    def registry(self) -> Registry:
        return Registry(self.home.registry)

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "results.db")) as db:
            return [row[0] for row in db.execute("SELECT batch FROM results ORDER BY rowid")]

    def check_exact(self) -> None:
        """Each batch was written once, in order, and those that were committed are there."""
        rows = self.rows()
        assert rows == list(range(len(rows)))
        commits = {int(each.name) for each in (self.folder / "checkpoint" / "commits").iterdir()}
        assert commits <= set(rows)
        # A batch whose row was there already is committed by the next leader, under a later term.
        terms = [int((self.folder / "checkpoint" / "commits" / str(each)).read_text()) for each in rows[:-1]]
        assert terms == sorted(terms)

    def stop(self) -> None:
        self.registry.request("job", "stop", int(time.time() * 1000))
        until(lambda: self.registry.job("job").state is JobState.FINISHED, "the job is stopped")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def case(tmp_path: Path, stack: ExitStack) -> Case:
    return Case(tmp_path, stack, "home")


def gone(pid: int) -> bool:
    """Whether a process is no more, or waits only to be collected."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_killed_leader_is_followed_within_two_leases_and_nothing_is_written_twice(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    driver = leader.driver
    killed = time.time()
    leader.signal(signal.SIGKILL)
    leading = standby.await_event("leading")
    assert leading["at"] - killed <= 2 * LEASE_S
    standby.await_batch_after("leading")
    assert gone(driver)
    recovered = standby.await_event("recovered")
    assert recovered["cause"].startswith("resources: ")
    # From the last sign of life to the new leader, and on to its first batch.
    assert 0 < recovered["phases_ms"]["detect"] <= 2000 * LEASE_S
    assert recovered["recovery_ms"] == sum(recovered["phases_ms"].values())
    case.stop()
    assert standby.ended() == {"event": "outcome", "state": "FINISHED"}
    lost, own = case.registry.attempts("job")
    assert (lost.ending, own.ending, own.recovers) == ("lost", "stopped", True)
    assert [each.attempt for each in case.registry.recoveries("job")] == [2]
    case.check_exact()


def test_a_frozen_leader_that_wakes_starts_nothing_and_writes_nothing(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    driver = leader.driver
    leader.freeze()
    standby.await_event("leading")
    # Nobody told the driver that its supervisor leads: it has ended itself.
    assert gone(driver)
    standby.await_batch_after("leading")
    batches = len(leader.heard("batch"))
    leader.signal(signal.SIGCONT)
    leader.await_event("deposed")
    leader.await_event("standby")
    assert len(leader.heard("starting")) == 1
    assert len(leader.heard("batch")) <= batches + 1
    assert [each.number for each in case.registry.attempts("job")] == [1, 2]
    token = case.registry.leader("job")
    assert token is not None
    assert token.token == standby.heard("leading")[0]["token"]
    # It wins the job back when the new leader dies.
    standby.signal(signal.SIGKILL)
    leader.await_batch_after("leading", 2)
    assert leader.heard("leading")[1]["token"] > token.token
    case.stop()
    assert leader.ended()["state"] == "FINISHED"
    case.check_exact()


def test_a_leader_frozen_with_its_driver_loses_the_driver(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    driver = leader.driver
    freeze(driver)
    leader.freeze()
    # The driver holds the checkpoint, and cannot let go of it: it has to be ended.
    standby.await_batch_after("leading")
    assert standby.heard("waiting")[0]["pid"] == driver
    assert gone(driver)
    leader.signal(signal.SIGCONT)
    leader.await_event("deposed")
    case.stop()
    assert leader.ended()["state"] == standby.ended()["state"] == "FINISHED"
    case.check_exact()


def test_a_leader_frozen_while_it_writes_to_the_registry_is_ended(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    leader.freeze(writing=True)
    standby.await_batch_after("leading")
    assert gone(leader.process.pid)
    case.stop()
    assert standby.ended()["state"] == "FINISHED"
    case.check_exact()


def test_a_leader_that_is_told_to_go_hands_the_job_over(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    leader.signal(signal.SIGTERM)
    assert leader.ended() == {"event": "outcome", "state": "RESTARTING"}
    standby.await_batch_after("leading")
    assert [each.ending for each in case.registry.attempts("job")] == ["stopped", None]
    case.stop()
    assert standby.ended()["state"] == "FINISHED"
    case.check_exact()


def test_a_standby_that_is_told_to_go_leaves_the_job_alone(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    standby.signal(signal.SIGTERM)
    assert standby.ended()["state"] == "FINISHED"
    assert case.registry.job("job").state is JobState.RUNNING
    case.stop()
    assert leader.ended()["state"] == "FINISHED"
    case.check_exact()


@LONG
@pytest.mark.spark
def test_a_real_driver_is_followed_by_another_and_nothing_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = SmallDay.make(9)
    day.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("HOLDFAST_HA", "home")
    monkeypatch.setenv("HOLDFAST_LEASE", f"{LEASE_S}s")
    job = JOBS / "appended.py:appended"
    with running(job, tmp_path) as leader:
        leader.await_event("leading")
        with running(job, tmp_path) as standby:
            standby.await_event("standby")
            leader.await_event("batch")
            driver = leader.driver()
            leader.kill()
            standby.await_event("running")
            assert gone(driver)
            ended = standby.ended()
    assert ended.code == 0, ended.words
    assert ended.only("recovered")["cause"].startswith("resources")
    found = found_in_ledger(tmp_path / "out" / "changes.db", "SELECT account, orders, amount FROM changes")
    assert found == day.changes()


@pytest.mark.services
def test_elections_that_are_away_stop_the_job_and_bring_it_back(
    tmp_path: Path, stack: ExitStack, zookeeper_server: Server
) -> None:
    case = Case(tmp_path, stack, zookeeper_server.address(f"holdfast-{os.getpid()}"))
    both = case.leader_and_standby()
    leader = both[0]
    first = leader.heard("leading")[0]["token"]
    driver = leader.driver
    zookeeper_server.kill()
    try:
        leader.await_event("deposed")
        assert gone(driver)
        written = case.rows()
    finally:
        zookeeper_server.start()

    def leading() -> list[Supervising]:
        return [each for each in both if any(found["token"] > first for found in each.heard("leading"))]

    until(lambda: bool(leading()), "somebody leads again")
    until(lambda: len(case.rows()) > len(written), "the job goes on")
    assert len(leading()) == 1
    case.stop()
    assert {each.ended()["state"] for each in both} == {"FINISHED"}
    case.check_exact()
