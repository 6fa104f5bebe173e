"""A leader's view of who leads, by what ZooKeeper has at the leader's node."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from holdfast.errors import Unavailable
from holdfast.ownership import zookeeper_election
from holdfast.ownership.election import LeadershipLost, Term
from holdfast.ownership.zookeeper_election import Ensemble, ZooKeeperElection

SESSION, OTHER = 71, 72


@dataclass
class Answer:
    """An answer that has arrived."""

    value: Any

    def get(self, timeout: float) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@dataclass
class Client:
    """The client of a session with ZooKeeper, which has these nodes, each with the session that owns it."""

    nodes: dict[str, tuple[bytes, int]]
    client_id: tuple[int, bytes] = (SESSION, b"")
    connected: bool = True

    # What a transaction is answered.
    answers: tuple[Any, ...] = ()

    def start(self, timeout: float) -> None:
        """Connect."""

    def ensure_path_async(self, path: str) -> Answer:
        self.nodes.setdefault(path, (b"", 0))
        return Answer(path)

    def transaction(self) -> SimpleNamespace:
        def add(*words: Any, **more: Any) -> None:
            """Add an operation."""

        return SimpleNamespace(create=add, set_data=add, commit_async=lambda: Answer(list(self.answers)))

    def get_async(self, path: str) -> Answer:
        if path not in self.nodes:
            return Answer(NoNodeError())
        data, owner = self.nodes[path]
        return Answer((data, SimpleNamespace(ephemeralOwner=owner, version=0)))


def leader_node(token: int, owner: int) -> dict[str, tuple[bytes, int]]:
    return {"/holdfast/job/leader": (json.dumps({"token": token}).encode(), owner)}


@pytest.mark.parametrize(
    ("nodes", "found"),
    [({}, "no leader"), (leader_node(8, OTHER), "term 8"), (leader_node(9, SESSION), "term 9")],
    ids=["no leader", "a different session", "this session"],
)
def test_a_leader_that_has_lost_its_term_is_shown_what_follows_it(
    nodes: dict[str, tuple[bytes, int]], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_election, "_client", lambda _hosts, _lease_s: Client(nodes))
    election = ZooKeeperElection(Ensemble("host:2181", "/holdfast"), "job", 10, lambda: 0.0, lambda: 0.0)
    with pytest.raises(LeadershipLost, match="has lost the leadership of job 'job'") as lost:
        election.renew(Term(7, 10.0))
    assert (lost.value.found, lost.value.expected) == (found, "term 7")
    assert lost.value.where == "zookeeper://host:2181/holdfast/job"


def test_the_lease_is_the_wanted_one_until_there_is_a_session() -> None:
    election = ZooKeeperElection(Ensemble("host:2181", "/holdfast"), "job", 10, lambda: 0.0, lambda: 0.0)
    assert election.lease_s == 10


@pytest.mark.parametrize("conflict", [NodeExistsError(), BadVersionError()])
def test_a_candidate_that_comes_second_waits(conflict: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper answers the other operation of a failed transaction with an error as well."""
    client = Client({}, answers=(conflict, RuntimeInconsistency()))
    monkeypatch.setattr(zookeeper_election, "_client", lambda _hosts, _lease_s: client)
    election = ZooKeeperElection(Ensemble("host:2181", "/holdfast"), "job", 10, lambda: 0.0, lambda: 0.0)
    assert election.campaign() is None
    client.answers = (RolledBackError(), NoAuthError())
    with pytest.raises(Unavailable):
        election.campaign()
