"""What a leader puts down for its successors, wherever elections are held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import lease_candidates
import pytest
import zookeeper_candidates
from lease_candidates import Candidates, Meddling
from zookeeper_candidates import ZooKeeperCandidates, candidates_at

from holdfast.errors import Unavailable
from holdfast.ownership.election import Election, ElectionState, LeadershipLost, Term
from holdfast.ownership.process_identity import myself
from holdfast.ownership.storage_election import StorageElection
from holdfast.ownership.zookeeper_election import ZooKeeperElection
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage


class Place(Protocol):
    """Where elections are held."""

    def one(self) -> Election:
        """One more candidate."""

    def won(self, election: Election) -> Term:
        """Campaign until it is won."""

    def freeze(self, election: Election, meanwhile: Callable[[], None]) -> None:
        """Let something happen between a candidate's next look whether it leads, and what it then writes."""

    def lost(self) -> AbstractContextManager[None]:
        """Within the block the terms are not there."""


class LeasePlace:
    """A storage, in which a lease is held."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def one(self) -> StorageElection:
        return self._candidates.one()

    def won(self, election: Election) -> Term:
        return lease_candidates.won(election)

    def freeze(self, election: Election, meanwhile: Callable[[], None]) -> None:
        assert isinstance(election, StorageElection)
        election._storage = Meddling(self._candidates.storage, "write", 1, meanwhile)  # type: ignore[assignment]

    @contextmanager
    def lost(self) -> Iterator[None]:
        storage = self._candidates.storage
        kept = {f"job/{name}": storage.read(f"job/{name}") for name in storage.list("job").names}
        for path in kept:
            storage.delete(path)
        yield
        for path, data in kept.items():
            storage.write(path, data)


class ZooKeeperPlace:
    """A real ZooKeeper."""

    def __init__(self, candidates: ZooKeeperCandidates, monkeypatch: pytest.MonkeyPatch) -> None:
        self._candidates = candidates
        self._monkeypatch = monkeypatch

    def one(self) -> ZooKeeperElection:
        return self._candidates.one()

    def won(self, election: Election) -> Term:
        return zookeeper_candidates.won(election)

    def freeze(self, election: Election, meanwhile: Callable[[], None]) -> None:
        newest = ZooKeeperElection._newest

        def slow(looking: ZooKeeperElection, talk: object) -> tuple[int | None, int]:
            answer = newest(looking, talk)  # type: ignore[arg-type]
            if looking is election:
                self._monkeypatch.setattr(ZooKeeperElection, "_newest", newest)
                meanwhile()
            return answer

        self._monkeypatch.setattr(ZooKeeperElection, "_newest", slow)

    @contextmanager
    def lost(self) -> Iterator[None]:
        someone = self.one()
        client, counter = someone._connected(), someone._counter
        kept = client.get(counter)[0]
        client.delete(counter)
        yield
        client.ensure_path(counter)
        client.set(counter, kept)


@pytest.fixture(
    params=[
        "memory",
        "local",
        pytest.param("s3", marks=pytest.mark.services),
        pytest.param("zookeeper", marks=pytest.mark.services),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "zookeeper":
        with candidates_at(request.getfixturevalue("zookeeper_server")) as candidates:
            yield ZooKeeperPlace(candidates, monkeypatch)
    elif request.param == "s3":
        address = f"{request.getfixturevalue('s3_gateway').bucket()}/leases"
        yield LeasePlace(Candidates(open_storage(address)))
    elif request.param == "local":
        yield LeasePlace(Candidates(LocalStorage(tmp_path / "leases")))
    else:
        yield LeasePlace(Candidates(MemoryStorage()))


def test_it_is_read_by_the_next_leader_and_a_former_one_changes_nothing(place: Place) -> None:
    first, second = place.one(), place.one()
    assert first.look() == ElectionState("", None)
    old = place.won(first)
    first.write_record(old, b"one")
    state = second.look()
    assert (state.token, state.record, state.record_token) == (old.token, b"one", old.token)
    assert state.holder == myself()
    first.resign(old)
    # Nobody has written in the new term yet: what was there before counts.
    new = place.won(second)
    assert second.look().record == b"one"
    with pytest.raises(LeadershipLost):
        first.write_record(old, b"late")
    assert second.look().record == b"one"
    second.write_record(new, b"two")
    second.write_record(new, b"three\nfour")
    seen = first.look()
    assert (seen.record, seen.record_token) == (b"three\nfour", new.token)
    # However the place is reached, it has one name.
    assert len({state.election_id, seen.election_id, second.look().election_id}) == 1
    assert state.election_id


def test_a_leader_that_is_followed_while_it_writes_changes_nothing(place: Place) -> None:
    first, second = place.one(), place.one()
    old = place.won(first)

    def takes_over() -> None:
        first.resign(old)
        second.write_record(place.won(second), b"of the next")

    place.freeze(first, takes_over)
    with pytest.raises(LeadershipLost):
        first.write_record(old, b"late")
    assert second.look().record == b"of the next"


def test_nobody_leads_where_the_terms_are_lost(place: Place) -> None:
    first, second = place.one(), place.one()
    term = place.won(first)
    first.write_record(term, b"one")
    assert second.campaign() is None
    first.resign(term)
    with place.lost():
        for act in (second.campaign, second.look):
            with pytest.raises(Unavailable, match="no longer has the terms"):
                act()
    later = place.won(second)
    assert later.token == term.token + 1
    assert second.look().record == b"one"
