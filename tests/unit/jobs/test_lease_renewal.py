from __future__ import annotations

import threading

import pytest

from holdfast.errors import Unavailable
from holdfast.ownership.election import ElectionState, Incumbent, LeadershipLost, Term
from holdfast.ownership.lease import Lease

PATIENCE_S = 30


class Scripted:
    """An election whose renewals do what the test says, one after the other; then they go on for ever."""

    address = "nowhere"
    lease_s = 0.04

    def __init__(self, *answers: Exception | float) -> None:
        self.answers = list(answers)
        self.renewed = threading.Event()
        self.resigned: list[Term] = []
        self.refusals: list[Exception] = []
        self.records: list[tuple[int, bytes]] = []

    saw_life = False

    def incumbent(self) -> Incumbent | None:
        return None

    def campaign(self) -> Term | None:
        return None

    def renew(self, term: Term) -> Term:
        answer = self.answers.pop(0) if self.answers else term.until_s
        if not self.answers:
            self.renewed.set()
        if isinstance(answer, Exception):
            raise answer
        return Term(term.token, answer)

    def look(self) -> ElectionState:
        return ElectionState("", None)

    def write_record(self, term: Term, record: bytes) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.records.append((term.token, record))

    def resign(self, term: Term) -> None:
        self.resigned.append(term)

    def close(self) -> None:
        pass


def test_a_term_moves_on_and_ends_when_its_time_is_over() -> None:
    now = [0.0]
    election = Scripted(20.0, Unavailable("away"), 30.0)
    lease = Lease(election, Term(7, 10.0), lambda: now[0])
    assert election.renewed.wait(PATIENCE_S)
    lease.release(resign=True)
    assert (lease.token, lease.until_s, lease.lost) == (7, 30.0, None)
    lease.require()
    # Whoever was frozen until now learns it from the clock alone.
    now[0] = 30.0
    assert lease.lost == "the lease could not be renewed in time"
    with pytest.raises(LeadershipLost, match="no longer holds the lease"):
        lease.require()
    assert election.resigned == [Term(7, 30.0)]


def test_a_term_that_somebody_else_has_is_lost_and_not_resigned() -> None:
    election = Scripted(LeadershipLost("another supervisor leads"))
    lease = Lease(election, Term(7, 10.0), lambda: 0.0)
    assert election.renewed.wait(PATIENCE_S)
    lease.release(resign=True)
    assert lease.lost == "another supervisor leads"
    assert election.resigned == []


def test_why_a_lease_could_not_be_renewed_is_told() -> None:
    now = [0.0]
    election = Scripted(Unavailable("ZooKeeper does not answer", found="ConnectionLoss"))
    lease = Lease(election, Term(7, 10.0), lambda: now[0])
    assert election.renewed.wait(PATIENCE_S)
    now[0] = 11.0
    lease.release(resign=False)
    why = "ZooKeeper does not answer: ConnectionLoss"
    # It may have come back after that, and then the clock alone says no.
    assert lease.lost in (why, "the lease could not be renewed in time")


def test_the_registry_can_depose_a_leader_too() -> None:
    election = Scripted()
    told = threading.Event()

    def renewed(_until_s: float) -> None:
        told.set()
        raise LeadershipLost("the registry knows a later term")

    lease = Lease(election, Term(7, 10.0), lambda: 0.0, renewed)
    assert told.wait(PATIENCE_S)
    lease.release(resign=True)
    assert lease.lost == "the registry knows a later term"


def test_a_record_is_tried_until_it_is_written() -> None:
    election = Scripted()
    election.refusals = [Unavailable("away"), Unavailable("away")]
    lease = Lease(election, Term(7, 10.0), lambda: 0.0)
    lease.write_record(b"first")
    assert lease.flush()
    assert election.records[-1] == (7, b"first")
    lease.write_record(b"second")
    lease.release(resign=True)
    assert election.records[-1] == (7, b"second")
    assert len(election.records) == 2


def test_a_record_of_a_former_leader_is_not_written() -> None:
    election = Scripted()
    election.refusals = [LeadershipLost("another supervisor leads")]
    lease = Lease(election, Term(7, 10.0), lambda: 0.0)
    lease.write_record(b"too late")
    assert not lease.flush()
    assert lease.lost == "another supervisor leads"
    lease.release(resign=True)
    assert (election.records, election.resigned) == ([], [])
