from __future__ import annotations

import threading

import pytest

from holdfast.errors import Unavailable
from holdfast.jobs.leadership import Deposed, Term
from holdfast.jobs.tenure import Tenure

PATIENCE_S = 30


class Scripted:
    """An election whose renewals do what the test says, one after the other; then they go on for ever."""

    address = "nowhere"
    lease_s = 0.04

    def __init__(self, *answers: Exception | float) -> None:
        self.answers = list(answers)
        self.renewed = threading.Event()
        self.resigned: list[Term] = []

    def campaign(self) -> Term | None:
        return None

    def renew(self, term: Term) -> Term:
        answer = self.answers.pop(0) if self.answers else term.until_s
        if not self.answers:
            self.renewed.set()
        if isinstance(answer, Exception):
            raise answer
        return Term(term.token, answer)

    def resign(self, term: Term) -> None:
        self.resigned.append(term)

    def close(self) -> None:
        pass


def test_a_term_moves_on_and_ends_when_its_time_is_over() -> None:
    now = [0.0]
    election = Scripted(20.0, Unavailable("away"), 30.0)
    tenure = Tenure(election, Term(7, 10.0), lambda: now[0])
    assert election.renewed.wait(PATIENCE_S)
    tenure.close(resign=True)
    assert (tenure.token, tenure.until_s, tenure.lost) == (7, 30.0, None)
    tenure.require()
    # Whoever was frozen until now learns it from the clock alone.
    now[0] = 30.0
    assert tenure.lost == "the lease could not be renewed in time"
    with pytest.raises(Deposed, match="leads the job no longer"):
        tenure.require()
    assert election.resigned == [Term(7, 30.0)]


def test_a_term_that_somebody_else_has_is_lost_and_not_resigned() -> None:
    election = Scripted(Deposed("another supervisor leads"))
    tenure = Tenure(election, Term(7, 10.0), lambda: 0.0)
    assert election.renewed.wait(PATIENCE_S)
    tenure.close(resign=True)
    assert tenure.lost == "another supervisor leads"
    assert election.resigned == []


def test_why_a_lease_could_not_be_renewed_is_told() -> None:
    now = [0.0]
    election = Scripted(Unavailable("ZooKeeper does not answer", found="ConnectionLoss"))
    tenure = Tenure(election, Term(7, 10.0), lambda: now[0])
    assert election.renewed.wait(PATIENCE_S)
    now[0] = 11.0
    tenure.close(resign=False)
    assert tenure.lost in (
        "ZooKeeper does not answer: ConnectionLoss",
        "the lease could not be renewed in time",
    )


def test_the_registry_can_depose_a_leader_too() -> None:
    election = Scripted()
    told = threading.Event()

    def renewed() -> None:
        told.set()
        raise Deposed("the registry knows a later term")

    tenure = Tenure(election, Term(7, 10.0), lambda: 0.0, renewed)
    assert told.wait(PATIENCE_S)
    tenure.close(resign=True)
    assert tenure.lost == "the registry knows a later term"
