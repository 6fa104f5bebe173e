"""Elections in a real ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import pytest
from zookeeper_server import Server

from holdfast.errors import Invalid, Unavailable
from holdfast.jobs.leadership import Deposed, ElectionState, Term, myself
from holdfast.jobs.tenure import Tenure
from holdfast.jobs.zookeeper import Ensemble, ZooKeeperElection

pytestmark = pytest.mark.services

LEASE_S = 1.0
PATIENCE_S = 60
WALL_S = 1_800_000_000


@pytest.fixture
def candidate(zookeeper_server: Server) -> Iterator[Callable[[], ZooKeeperElection]]:
    """Makes candidates for one job; all are ended afterwards."""
    made: list[ZooKeeperElection] = []
    ensemble = Ensemble.of(zookeeper_server.address(f"holdfast-{uuid4().hex}"))

    def one() -> ZooKeeperElection:
        made.append(ZooKeeperElection(ensemble, "job", LEASE_S, time.monotonic, lambda: WALL_S))
        return made[-1]

    yield one
    for each in made:
        each.close()


def won(election: ZooKeeperElection) -> Term:
    """Campaign until it is won."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(Unavailable):
            if (term := election.campaign()) is not None:
                return term
        time.sleep(0.02)
    raise AssertionError("it was never won")


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
    with pytest.raises(Deposed):
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
    tenure = Tenure(first, term, time.monotonic)
    with away(zookeeper_server):
        until = time.monotonic() + PATIENCE_S
        while tenure.lost is None and time.monotonic() < until:
            time.sleep(0.02)
        assert tenure.lost is not None
        with pytest.raises(Unavailable):
            second.campaign()
        tenure.close(resign=False)
        first.close()
    later = won(second)
    assert later.token == term.token + 1
    assert first.campaign() is None


def test_an_address_needs_a_host_and_a_path() -> None:
    ensemble = Ensemble.of("zookeeper://a:2181,b:2181/holdfast/production/")
    assert (ensemble.hosts, ensemble.root) == ("a:2181,b:2181", "/holdfast/production")
    assert str(ensemble) == "zookeeper://a:2181,b:2181/holdfast/production"
    for bad in ("zookeeper:///holdfast", "zookeeper://a:2181", "zookeeper://a:2181/"):
        with pytest.raises(Invalid, match="no address of ZooKeeper"):
            Ensemble.of(bad)


def test_a_server_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.jobs.zookeeper._CONNECT_S", 0.2)
    nobody = ZooKeeperElection(Ensemble("127.0.0.1:1", "/x"), "job", LEASE_S, time.monotonic, time.time)
    with pytest.raises(Unavailable, match="ZooKeeper does not answer"):
        nobody.campaign()
    nobody.close()


def test_what_a_leader_puts_down_is_read_by_the_next_and_a_former_one_changes_nothing(
    candidate: Callable[[], ZooKeeperElection],
) -> None:
    first, second = candidate(), candidate()
    assert first.look() == ElectionState("", None)
    old = won(first)
    first.write_record(old, b"one")
    state = second.look()
    assert (state.token, state.record, state.record_token) == (old.token, b"one", old.token)
    assert state.holder == myself()
    first.resign(old)
    new = won(second)
    assert second.look().record == b"one"
    with pytest.raises(Deposed):
        first.write_record(old, b"late")
    second.write_record(new, b"two")
    second.write_record(new, b"three\nfour")
    seen = first.look()
    assert (seen.record, seen.record_token) == (b"three\nfour", new.token)
    assert len({state.place_id, seen.place_id, second.look().place_id}) == 1
    assert state.place_id


def test_a_record_is_not_written_if_another_one_is_elected_in_between(
    candidate: Callable[[], ZooKeeperElection], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = candidate(), candidate()
    old = won(first)
    newest = ZooKeeperElection._newest

    def slow(election: ZooKeeperElection, talk: object) -> tuple[int | None, int]:
        answer = newest(election, talk)  # type: ignore[arg-type]
        if election is first:
            monkeypatch.setattr(ZooKeeperElection, "_newest", newest)
            first.resign(old)
            second.write_record(won(second), b"of the next")
        return answer

    # Between its look at the counter and its write another one is elected.
    monkeypatch.setattr(ZooKeeperElection, "_newest", slow)
    with pytest.raises(Deposed):
        first.write_record(old, b"late")
    assert second.look().record == b"of the next"


def test_nobody_leads_in_a_place_that_has_lost_its_terms(
    candidate: Callable[[], ZooKeeperElection],
) -> None:
    first, second = candidate(), candidate()
    term = won(first)
    assert second.campaign() is None
    first.resign(term)
    client = first._connected()
    client.delete(first._counter)
    with pytest.raises(Unavailable, match="has lost the terms"):
        second.campaign()
    client.set(first._counter, str(term.token).encode())
    assert won(second).token == term.token + 1
