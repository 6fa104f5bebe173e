"""Several supervisors of one job as real processes: killed, frozen, cut off from their elections."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from running_job import PATIENCE_S, freeze, until
from telling_process import TellingProcess
from zookeeper_server import Server

from holdfast.config.policies import Leading, fixed_delay
from holdfast.errors import Conflict
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.registry import Registry, writer_of
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState
from holdfast.ownership.checkpoint_lock import Owner
from holdfast.ownership.elections import elections
from holdfast.ownership.process_identity import myself

pytestmark = pytest.mark.fault

# Long enough for a busy machine to renew it in time; only takeovers wait for it to pass.
LEASE_S = 3
PROGRAM = (sys.executable, str(Path(__file__).with_name("one_of_several.py")))
LONG = pytest.mark.skipif(not WHOLE, reason="waits for leases to pass; HOLDFAST_GRID=all runs it")


class Supervising(TellingProcess):
    """One supervisor as a process."""

    def __init__(self, script: Path, home: Path, address: str, machine: str | None) -> None:
        self.registry = Registry(StateHome(home).registry)
        command = [*PROGRAM, str(script), str(home), address, f"{LEASE_S}s"]
        command += [] if machine is None else [machine]
        super().__init__(command)

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
            if (writer_of(self.registry.path) == self.process.pid) == writing:
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
        self.close_pipe()  # it is the drivers' too


class Case:
    """A job whose driver writes a row a batch through a ledger, and its supervisors.

    Each supervisor has a state home of its own, as on machines without a disk in common for it, unless they
    are to share one.
    """

    def __init__(self, folder: Path, stack: ExitStack, address: str, *, shared: bool = False) -> None:
        self.folder = folder
        self.address = address
        self.shared = shared
        self.supervisors: list[Supervising] = []
        self.script = folder / "job.json"
        self._stack = stack
        definition: dict[str, Any] = {
            "name": "job",
            "checkpoint": (folder / "checkpoint").as_uri(),
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "restart": strategy_fields(fixed_delay(attempts=3, delay="1ms")),
            "record": False,
            # What it writes is no checkpoint of Spark's.
            "recovery": {"verify": None},
        }
        place = definition["checkpoint"]
        script = {"definition": definition, "attempts": [["work"]], "query_checkpoint": place}
        self.script.write_text(json.dumps(script))

    def supervisor(self, machine: str | None = None) -> Supervising:
        home = self.folder / ("home" if self.shared else f"home-{len(self.supervisors)}")
        home.mkdir(exist_ok=True)
        made = Supervising(self.script, home, self.address, machine)
        self.supervisors.append(made)
        self._stack.callback(made.close)
        return made

    def leader_and_standby(self, *machines: str | None) -> tuple[Supervising, Supervising]:
        first, second = machines or (None, None)
        leader = self.supervisor(first)
        leader.await_event("batch")
        standby = self.supervisor(second)
        standby.await_event("standby")
        assert standby.heard("leading") == []
        return leader, standby

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "results.db")) as db:
            return [row[0] for row in db.execute("SELECT batch FROM results ORDER BY rowid")]

    def commits(self) -> set[int]:
        return {int(each.name) for each in (self.folder / "checkpoint" / "commits").iterdir()}

    def check_exact(self) -> None:
        """Each batch was written once, in order, and those that were committed are there."""
        rows = self.rows()
        assert rows == list(range(len(rows)))
        assert self.commits() <= set(rows)
        # A batch whose row was there already is committed by the next leader, under a later term.
        terms = [int((self.folder / "checkpoint" / "commits" / str(each)).read_text()) for each in rows[:-1]]
        assert terms == sorted(terms)

    @staticmethod
    def led_after(supervisor: Supervising, token: int) -> bool:
        """Whether it has won a later term than that."""
        return any(event["token"] > token for event in supervisor.heard("leading"))

    def stop(self, leader: Supervising) -> None:
        """Ask in the leader's state home; every supervisor that lives ends with the job."""
        leader.registry.request("job", "stop", int(time.time() * 1000))
        until(lambda: leader.registry.job("job").state is JobState.FINISHED, "the job is stopped")
        living = [each for each in self.supervisors if each.process.returncode is None]
        assert {str(each.ended()["state"]) for each in living} == {"FINISHED"}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def case(tmp_path: Path, stack: ExitStack) -> Case:
    return Case(tmp_path, stack, str(tmp_path / "leases"))


@pytest.fixture
def shared_case(tmp_path: Path, stack: ExitStack) -> Case:
    return Case(tmp_path, stack, "home", shared=True)


def lease_at(address: str) -> Leading:
    return Leading(f"file://{address}", LEASE_S * 1000)


def gone(pid: int) -> bool:
    """Whether a process is no more, or waits only to be collected."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=LONG)])
def test_a_killed_leader_is_followed_and_nothing_is_written_twice(
    tmp_path: Path, stack: ExitStack, shared: bool
) -> None:
    case = Case(tmp_path, stack, str(tmp_path / "leases"), shared=shared)
    leader, standby = case.leader_and_standby()
    driver, holder = leader.driver, myself(leader.process.pid)
    leader.signal(signal.SIGKILL)
    standby.await_batch_after("leading")
    assert gone(driver)
    recovered = standby.await_event("recovered")
    # Nobody else has ended it, so how long that took is part of the recovery.
    assert recovered["cause"] == f"resources: {holder} does not lead any more"
    assert recovered["phases_ms"]["detect"] > 0
    assert recovered["recovery_ms"] == sum(recovered["phases_ms"].values())
    leader.process.wait(PATIENCE_S)
    case.stop(standby)
    attempts = standby.registry.attempts("job")
    assert [each.ending for each in attempts] == (["lost", "stopped"] if shared else ["stopped"])
    assert attempts[-1].recovers
    assert [each.attempt for each in standby.registry.recoveries("job")] == [attempts[-1].number]
    case.check_exact()


def test_a_frozen_leader_that_wakes_starts_nothing_and_writes_nothing(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    driver = leader.driver
    leader.freeze()
    standby.await_event("leading")
    # Nobody told the driver that its supervisor leads: it has ended itself.
    until(lambda: gone(driver), "the driver has ended itself")
    standby.await_batch_after("leading")
    leader.signal(signal.SIGCONT)
    leader.await_event("deposed")
    leader.await_event("standby")
    assert len(leader.heard("starting")) == 1
    # It may tell of what its driver had done before that ended itself, and of nothing after that.
    after = min(event["batch_id"] for event in standby.heard("batch"))
    assert max(event["batch_id"] for event in leader.heard("batch")) < after
    assert leader.registry.job("job").state is JobState.RESTARTING
    # Whoever asks here for a stop, once its last sign of life is old, is told to ask elsewhere.
    control = Control(StateHome(leader.registry.path.parent), lambda: 2 * int(time.time() * 1000))
    with pytest.raises(Conflict, match="no supervisor of this state home leads job 'job'"):
        control.running("job")
    first = leader.heard("leading")[0]["token"]
    assert standby.heard("leading")[0]["token"] > first
    # It wins the job back when the new leader dies.
    standby.signal(signal.SIGKILL)
    standby.process.wait(PATIENCE_S)
    leader.await_batch_after("leading", 2)
    assert leader.heard("leading")[1]["token"] > standby.heard("leading")[0]["token"]
    case.stop(leader)
    case.check_exact()


def test_a_leader_frozen_with_its_driver_loses_the_driver(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    driver = leader.driver
    freeze(driver)
    leader.freeze()
    # The driver holds the checkpoint, and cannot let go of it: it has to be ended.
    standby.await_batch_after("leading")
    assert gone(driver)
    leader.signal(signal.SIGCONT)
    leader.await_event("deposed")
    case.stop(standby)
    case.check_exact()


def test_a_driver_frozen_on_another_machine_is_waited_for_by_a_leader_that_stays(case: Case) -> None:
    leader, standby = case.leader_and_standby("machine-1 boot", "machine-2 boot")
    driver = leader.driver
    freeze(driver)
    leader.freeze()
    waiting = standby.await_event("waiting")
    assert (waiting["pid"], waiting["machine"]) == (driver, "machine-1")
    # The frozen driver may hold the lock of the results as well, so they cannot be asked.
    commits = case.commits()
    # It keeps its post meanwhile: the lease is renewed, and nobody else is elected.
    third = case.supervisor("machine-3 boot")
    third.await_event("standby")
    token = standby.heard("leading")[0]["token"]
    beat = Path(case.address) / "job" / f"{token:020}.beat"
    for _ in range(9):  # more than two leases
        before = beat.read_bytes()
        until(lambda now=before: beat.read_bytes() != now, "it renews its lease")  # type: ignore[misc]
    assert elections(lease_at(case.address))("job").look().token == token
    assert not third.heard("leading")
    assert case.commits() == commits
    assert not gone(driver)
    # It is let go on, finds its lease over, and ends itself: the job goes on elsewhere.
    os.killpg(driver, signal.SIGCONT)
    standby.await_batch_after("leading")
    assert gone(driver)
    leader.signal(signal.SIGCONT)
    leader.await_event("deposed")
    case.stop(standby)
    case.check_exact()


@LONG
def test_a_leader_that_waits_can_be_told_to_go(case: Case) -> None:
    leader, standby = case.leader_and_standby("machine-1 boot", "machine-2 boot")
    freeze(leader.driver)
    leader.freeze()
    standby.await_event("waiting")
    standby.signal(signal.SIGTERM)
    assert standby.ended() == {"event": "outcome", "state": "RESTARTING"}


@LONG
def test_another_job_in_the_checkpoint_is_waited_for_by_one_that_has_stood_by(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    leader.freeze()
    driver = leader.driver
    lock = case.folder / ".checkpoint.holdfast.lock"
    # Somebody else takes the checkpoint in the moment in which the leader's driver is gone.
    with lock.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        # The kernel frees the locks of a killed process a moment before it is gone.
        until(lambda: gone(driver), "the driver is gone")
        file.truncate(0)
        file.write(json.dumps(asdict(Owner("other", "/elsewhere", os.getpid()))).encode())
        file.flush()
        waiting = standby.await_event("waiting")
        assert (waiting["pid"], "job 'other'" in waiting["text"]) == (os.getpid(), True)
        # One that has just been started says so, and does not wait.
        leader.signal(signal.SIGKILL)
        leader.process.wait(PATIENCE_S)
    standby.await_batch_after("leading")
    case.stop(standby)
    case.check_exact()


def test_a_stop_that_its_leader_did_not_live_to_do_is_done_by_the_next(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    driver = leader.driver
    freeze(driver)  # it does not hear that it is to stop
    leader.registry.request("job", "stop", int(time.time() * 1000))
    leader.await_event("stopping")
    election = elections(lease_at(case.address))("job")
    until(lambda: b'"request": "stop"' in (election.look().record or b""), "it is put down")
    leader.signal(signal.SIGKILL)
    leader.process.wait(PATIENCE_S)
    assert standby.ended() == {"event": "outcome", "state": "FINISHED"}
    assert len(standby.heard("starting")) == 1  # only to learn the job's name
    assert gone(driver)
    case.check_exact()


def test_a_checkpoint_that_is_not_there_is_not_begun_anew(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    leader.freeze()
    checkpoint, elsewhere = case.folder / "checkpoint", case.folder / "unmounted"
    until(lambda: gone(leader.driver), "the driver has ended itself")
    checkpoint.rename(elsewhere)
    deposed = standby.await_event("deposed")
    assert "is it mounted?" in deposed["text"]
    assert not checkpoint.exists()
    elsewhere.rename(checkpoint)
    standby.await_event("batch")
    leader.signal(signal.SIGKILL)
    leader.process.wait(PATIENCE_S)
    case.stop(standby)
    case.check_exact()


def test_a_place_of_elections_that_is_gone_has_no_leader_and_comes_back(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    first, driver = leader.heard("leading")[0]["token"], leader.driver
    place, elsewhere = Path(case.address), case.folder / "unmounted"
    place.rename(elsewhere)
    leader.await_event("deposed")
    assert gone(driver)
    standby.await_event("elections")
    # Nobody takes an empty directory for a job that nobody has led yet.
    assert not place.exists()
    assert not standby.heard("leading")
    rows = case.rows()
    elsewhere.rename(place)
    both = [leader, standby]
    until(lambda: any(case.led_after(each, first) for each in both), "somebody leads again")
    until(lambda: len(case.rows()) > len(rows), "the job goes on")
    (again,) = [each for each in both if case.led_after(each, first)]
    case.stop(again)
    case.check_exact()


def test_a_leader_frozen_while_it_writes_to_the_registry_is_ended(shared_case: Case) -> None:
    case = shared_case
    leader, standby = case.leader_and_standby()
    leader.freeze(writing=True)
    standby.await_batch_after("leading")
    assert gone(leader.process.pid)
    leader.process.wait(PATIENCE_S)
    case.stop(standby)
    case.check_exact()


def test_a_leader_that_is_told_to_go_hands_the_job_over(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    leader.signal(signal.SIGTERM)
    assert leader.ended() == {"event": "outcome", "state": "RESTARTING"}
    standby.await_batch_after("leading")
    assert [each.ending for each in leader.registry.attempts("job")] == ["stopped"]
    assert [each.ending for each in standby.registry.attempts("job")] == [None]
    case.stop(standby)
    case.check_exact()


def test_a_standby_that_is_told_to_go_leaves_the_job_alone(case: Case) -> None:
    leader, standby = case.leader_and_standby()
    standby.signal(signal.SIGTERM)
    assert standby.ended()["state"] == "FINISHED"
    assert leader.registry.job("job").state is JobState.RUNNING
    case.stop(leader)
    case.check_exact()


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

    until(lambda: any(case.led_after(each, first) for each in both), "somebody leads again")
    until(lambda: len(case.rows()) > len(written), "the job goes on")
    (again,) = [each for each in both if case.led_after(each, first)]
    case.stop(again)
    case.check_exact()
