"""A leader's claim on a checkpoint that another process holds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_claim import CheckpointClaim
from holdfast.ownership.checkpoint_lock import Owner
from holdfast.ownership.election import LeadershipLost

pytestmark = pytest.mark.slow

HOLD = """
import fcntl, os, signal, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
file.write(sys.argv[2] % os.getpid())
file.flush()
print("held", flush=True)
signal.pause()
"""

Hold = Callable[[Owner], "subprocess.Popen[str]"]


@pytest.fixture
def claim(tmp_path: Path) -> CheckpointClaim:
    uri = (tmp_path / "checkpoint").as_uri()
    return CheckpointClaim(uri, "job", tmp_path / "home-2", "here", election="place", term=8)


@pytest.fixture
def hold(claim: CheckpointClaim) -> Iterator[Hold]:
    """Has a process hold the lock in somebody's name; one that is stopped stays so."""
    made: list[subprocess.Popen[str]] = []

    def start(owner: Owner) -> subprocess.Popen[str]:
        text = json.dumps(asdict(owner)).replace(f'"pid": {owner.pid}', '"pid": %d')
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(claim.lock), text],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        made.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        return process

    yield start
    for each in made:
        each.kill()
        each.wait()
        if each.stdout is not None:
            each.stdout.close()


def take_over(
    claim: CheckpointClaim, looks: int = 0, *, refuse_others: bool = False
) -> tuple[bool, list[Owner]]:
    """Take it over, with patience for some looks."""
    told: list[Owner] = []
    left = iter([True] * looks + [False] * 1000)
    free = claim.take_over(None, told.append, lambda: next(left), refuse_others=refuse_others)
    return free, told


def test_the_frozen_driver_of_an_earlier_term_is_ended_whatever_its_state_home(
    claim: CheckpointClaim, hold: Hold
) -> None:
    process = hold(Owner("job", "/home-1", 1, 7, "place", "here"))
    free, told = take_over(claim, looks=1000)
    assert (free, [each.pid for each in told]) == (True, [process.pid])
    assert process.wait(60) == -signal.SIGKILL
    # A driver that is late finds the mark of this term.
    assert json.loads(claim.lock.read_text())["term"] == 8


@pytest.mark.parametrize(
    "owner",
    [
        Owner("job", "/home-1", 1, 7, "place", "elsewhere"),
        Owner("job", "/home-1", 1, 9, "place", "here"),
        Owner("job", "/home-1", 1, 7, "another place", "here"),
        Owner("job", "/home-1", 1, 0, "", "here"),
        Owner("other", "/home-1", 1, 7, "place", "here"),
        Owner("job", "/home-1", 1, 7, "place", "here", verb="state erase"),
    ],
    ids=["another machine", "a later term", "other elections", "no elections", "another job", "a command"],
)
def test_who_may_not_be_ended_is_waited_for(claim: CheckpointClaim, hold: Hold, owner: Owner) -> None:
    process = hold(owner)
    free, told = take_over(claim, looks=2)
    assert (free, [each.pid for each in told]) == (False, [process.pid])
    assert process.poll() is None
    assert f"process {process.pid} on {owner.machine}" in claim.describe(told[0]) or owner.machine == "here"


def test_who_was_just_started_is_told_of_another_job_in_the_checkpoint(
    claim: CheckpointClaim, hold: Hold
) -> None:
    hold(Owner("other", "/home-1", 1))
    with pytest.raises(Conflict, match="in use by another job"):
        take_over(claim, refuse_others=True)


def test_a_free_checkpoint_that_a_later_leader_has_had_is_not_taken(claim: CheckpointClaim) -> None:
    claim.lock.write_text(json.dumps(asdict(Owner("job", "/home-3", 1, 9, "place", "elsewhere"))))
    with pytest.raises(LeadershipLost, match="a different supervisor leads"):
        take_over(claim)


def test_without_elections_a_job_of_another_state_home_is_another_job(tmp_path: Path, hold: Hold) -> None:
    hold(Owner("job", "/home-1", 1))
    alone = CheckpointClaim((tmp_path / "checkpoint").as_uri(), "job", tmp_path / "home-2")
    with pytest.raises(Conflict, match="in use by another job"):
        alone.wait(0, lambda *_, **__: None)
