"""What a supervisor that has stood by does not give its post up for, and where it does not lead."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.jobs.candidacy import Candidacy, LeaderRecord, QueryPlace
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.supervisor.standby import checkpoints_of, require_final, require_places, take_over
from holdfast.ownership.checkpoint_claim import CheckpointClaim
from holdfast.ownership.checkpoint_lock import lock_path, reserved
from holdfast.ownership.election import CannotLead, Term
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.memory import MemoryStorage

LEASE_S = 1000.0


class Counting(StorageElection):
    """One that counts its renewals."""

    renewals = 0

    def renew(self, term: Term) -> Term:
        self.renewals += 1
        return super().renew(term)


class Supervisors:
    """Supervisors with state homes of their own and one place of elections, on a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = MemoryStorage()
        self.candidacies: list[Candidacy] = []

    def one(self) -> Candidacy:
        home = self.folder / f"home-{len(self.candidacies)}"
        home.mkdir()
        made = Candidacy(
            lambda job: StorageElection(self.storage, job, LEASE_S, lambda: 0.0, lambda: 1_800_000_000),
            "job",
            Registry(home / "registry.db"),
            lambda: 1_800_000_000_000,
            lambda: 0.0,
        )
        self.candidacies.append(made)
        return made

    def first(self) -> Candidacy:
        """One that leads at once."""
        made = self.one()
        assert made.stand()
        return made

    def second(self) -> Candidacy:
        """One that has stood by, and leads since the first one has gone."""
        first, made = self.first(), self.one()
        assert not made.stand()
        first.close()
        assert made.stand()
        assert made.has_stood_by
        return made


@pytest.fixture
def supervisors(tmp_path: Path) -> Supervisors:
    return Supervisors(tmp_path)


IN_USE = Conflict("the checkpoint is in use by another job", found="job 'other'")
AWAY = Unavailable("the storage does not answer")
WRONG = Invalid("this is no setting")


@pytest.mark.parametrize("refusal", [IN_USE, AWAY])
def test_what_may_pass_does_not_end_a_standby(refusal: HoldfastError, supervisors: Supervisors) -> None:
    second = supervisors.second()
    with pytest.raises(CannotLead, match=refusal.fact):
        require_final(refusal, second, begun=False)


def test_what_does_not_pass_ends_it(supervisors: Supervisors) -> None:
    second = supervisors.second()
    require_final(WRONG, second, begun=False)
    # The driver had the checkpoint by then: the refusal is the job's.
    require_final(IN_USE, second, begun=True)


def test_one_that_has_just_been_started_says_what_is_wrong(supervisors: Supervisors) -> None:
    require_final(IN_USE, supervisors.first(), begun=False)


def taken_over(candidacy: Candidacy, folder: Path) -> tuple[bool, list[str]]:
    """Whether it has the checkpoint, and what it has told; it is told to end once it has waited."""
    told: list[str] = []

    def say(kind: str, text: str, **facts: object) -> None:
        del text, facts
        told.append(kind)

    claim = CheckpointClaim(f"file://{folder}/checkpoint", "job", folder / "home")
    return take_over(claim, candidacy, say, lambda: not told), told


def test_whoever_else_has_the_checkpoint_is_waited_for_by_one_that_has_stood_by(
    supervisors: Supervisors, tmp_path: Path
) -> None:
    second = supervisors.second()
    lock = lock_path(f"file://{tmp_path}/checkpoint", Path())
    # What a command notes of itself stands beside the job that had the checkpoint before.
    lock.write_text('{"job": "other", "home": "/elsewhere", "pid": 12}')
    with reserved(lock, "state erase"):
        assert taken_over(second, tmp_path) == (False, ["waiting"])
    assert taken_over(second, tmp_path) == (True, [])


def test_whoever_else_has_the_checkpoint_is_told_by_one_that_has_just_been_started(
    supervisors: Supervisors, tmp_path: Path
) -> None:
    first = supervisors.first()
    lock = lock_path(f"file://{tmp_path}/checkpoint", Path())
    lock.write_text('{"job": "other", "home": "/elsewhere", "pid": 12}')
    with reserved(lock, "state erase"), pytest.raises(Conflict, match="in use"):
        taken_over(first, tmp_path)


def test_a_checkpoint_that_is_not_there_is_not_begun_anew(tmp_path: Path) -> None:
    """As with a disk that is not mounted: the former leader's queries have written elsewhere."""
    checkpoint = tmp_path / "checkpoint"
    uri = f"file://{checkpoint}"
    query = QueryPlace(f"{uri}/sums", "an-id")
    record = LeaderRecord("machine-1 pid 7", uri, 0, ran=True, queries={"sums": query})
    with pytest.raises(CannotLead, match="former leader is missing on this machine"):
        require_places(record, uri)
    with pytest.raises(CannotLead, match="have different checkpoints"):
        require_places(record, f"{uri}-2")
    # None of its queries has ever started.
    require_places(LeaderRecord("machine-1 pid 7", uri, 0), uri)
    (checkpoint / "sums").mkdir(parents=True)
    (checkpoint / "sums" / "metadata").write_text('{"id":"an-id"}')
    require_places(record, uri)


@pytest.mark.parametrize("foreign", ["{}-2", "{}/../other", "{}/a/b", "hdfs://elsewhere:9870/x", "{}/.."])
def test_a_record_names_no_checkpoint_but_the_jobs_own(tmp_path: Path, foreign: str) -> None:
    """Whoever writes the record of the elections chooses neither hosts nor directories of this machine."""
    uri = f"file://{tmp_path}/checkpoint"
    other = QueryPlace(foreign.format(uri), "an-id")
    record = LeaderRecord("machine-1 pid 7", uri, 0, ran=True, queries={"sums": other})
    with pytest.raises(CannotLead, match="names a checkpoint outside the job's"):
        require_places(record, uri)
    assert checkpoints_of(record, {"sums": uri}, uri) == {"sums": uri}
    own = replace(record, queries={"sums": QueryPlace(f"{uri}/sums", "an-id")})
    assert checkpoints_of(own, {}, uri) == {"sums": f"{uri}/sums"}


def test_a_standby_that_takes_over_looks_for_the_checkpoints(
    supervisors: Supervisors, tmp_path: Path
) -> None:
    first, second = supervisors.first(), supervisors.one()
    uri = f"file://{tmp_path}/checkpoint"
    assert not second.stand()
    with suppress(HoldfastError):  # its registry has no such job: nobody has begun one here
        first.begin(uri, 0, ran=True)
    first.note(queries={"sums": QueryPlace(f"{uri}/sums", "an-id")})
    first.close()
    assert second.stand()
    assert second.record is not None
    with pytest.raises(CannotLead, match="former leader is missing on this machine"):
        taken_over(second, tmp_path)


def test_a_leader_renews_its_lease_while_somebody_holds_the_registry(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    # The lease is short, and the clock stands still: no renewal comes too late.
    election = Counting(MemoryStorage(), "job", 0.1, lambda: 0.0, lambda: 1_800_000_000)
    candidacy = Candidacy(lambda _: election, "job", Registry(path), lambda: 1_800_000_000_000, lambda: 0.0)
    assert candidacy.stand()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        wanted, deadline = election.renewals + 6, time.monotonic() + 30
        while election.renewals < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
    assert election.renewals >= wanted
    assert candidacy.lost is None
    candidacy.close()
