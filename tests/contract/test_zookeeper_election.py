"""Elections in a real ZooKeeper."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from zookeeper_candidates import LEASE_S, WALL_S, candidates_at, won
from zookeeper_server import Server, zookeeper_pair

from holdfast.errors import Invalid, Unavailable
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.lease import Lease
from holdfast.ownership.zookeeper_election import Ensemble, ZooKeeperElection

pytestmark = pytest.mark.services

PATIENCE_S = 60


@pytest.fixture
def candidate(zookeeper_server: Server) -> Iterator[Callable[[], ZooKeeperElection]]:
    """Makes candidates for one job; all are ended afterwards."""
    with candidates_at(zookeeper_server) as candidates:
        yield candidates.one


@contextmanager
def away(server: Server) -> Iterator[None]:
    """The server is dead, and comes back."""
    server.kill()
    try:
        yield
    finally:
        server.start()


def test_one_leads_and_who_follows_has_a_greater_token(
    candidate: Callable[[], ZooKeeperElection],
) -> None:
    first, second = candidate(), candidate()
    term = won(first)
    assert term.token == WALL_S + 1
    assert second.campaign() is None
    assert first.renew(term).until_s >= term.until_s
    first.resign(term)
    later = won(second)
    assert later.token == WALL_S + 2
    assert first.campaign() is None
    with pytest.raises(LeadershipLost):
        first.renew(term)
    # What it resigns late is not its own any more.
    first.resign(term)
    assert second.renew(later).token == later.token


def test_a_leader_whose_session_ends_is_followed(candidate: Callable[[], ZooKeeperElection]) -> None:
    first, second = candidate(), candidate()
    term = won(first)
    assert second.campaign() is None
    assert first.lease_s == LEASE_S
    first.close()
    assert won(second).token == term.token + 1


def test_the_same_session_wins_what_it_has(candidate: Callable[[], ZooKeeperElection]) -> None:
    first = candidate()
    term = won(first)
    again = first.campaign()
    assert again is not None
    assert again.token == term.token


def test_a_server_that_dies_ends_the_term_and_elections_go_on_when_it_is_back(
    candidate: Callable[[], ZooKeeperElection], zookeeper_server: Server
) -> None:
    first, second = candidate(), candidate()
    term = won(first)
    assert second.campaign() is None
    lease = Lease(first, term, time.monotonic)
    with away(zookeeper_server):
        until = time.monotonic() + PATIENCE_S
        while lease.lost is None and time.monotonic() < until:
            time.sleep(0.02)
        assert lease.lost is not None
        with pytest.raises(Unavailable):
            second.campaign()
        lease.release(resign=False)
        first.close()
    later = won(second)
    assert later.token == term.token + 1
    assert first.campaign() is None


def test_a_follower_that_is_cut_off_from_its_quorum_renews_no_term(tmp_path: Path) -> None:
    """It still answers reads, while the other servers may have elected another leader of the job."""
    with zookeeper_pair(tmp_path) as (leader, follower), candidates_at(follower) as candidates:
        election = candidates.one()
        term = election.renew(won(election))
        leader.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable, match="ZooKeeper does not answer"):
                election.renew(term)
        finally:
            leader.process.send_signal(signal.SIGCONT)


def test_an_address_needs_a_host_and_a_path() -> None:
    ensemble = Ensemble.of("zookeeper://a:2181,b:2181/holdfast/production/")
    assert (ensemble.hosts, ensemble.root) == ("a:2181,b:2181", "/holdfast/production")
    assert str(ensemble) == "zookeeper://a:2181,b:2181/holdfast/production"
    for bad in ("zookeeper:///holdfast", "zookeeper://a:2181", "zookeeper://a:2181/"):
        with pytest.raises(Invalid, match="invalid ZooKeeper address"):
            Ensemble.of(bad)


def test_a_server_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.ownership.zookeeper_election._CONNECT_S", 0.2)
    nobody = ZooKeeperElection(Ensemble("127.0.0.1:1", "/x"), "job", LEASE_S, time.monotonic, time.time)
    with pytest.raises(Unavailable, match="ZooKeeper does not answer"):
        nobody.campaign()
    nobody.close()
