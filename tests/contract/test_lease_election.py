"""Elections by a lease, with a clock that only the test moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from cloud_emulators import REMOTE, empty_directory
from drawn_examples import MORE
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from lease_candidates import LEASE_S, WALL_S, Candidates, Meddling, won

from holdfast.errors import Unavailable, Unsupported
from holdfast.ownership.election import LeadershipLost, Term
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.remote import RemoteStorage
from holdfast.testing.failing_storage import FaultyStorage, Killed


@pytest.fixture(params=["memory", "local", *(pytest.param(it, marks=pytest.mark.services) for it in REMOTE)])
def candidates(request: pytest.FixtureRequest, tmp_path: Path) -> Candidates:
    if request.param in REMOTE:
        server = request.getfixturevalue(REMOTE[request.param])
        return Candidates(open_storage(f"{empty_directory(request.param, server)}/leases"))
    return Candidates(MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path / "leases"))


def test_one_leads_and_the_others_wait(candidates: Candidates) -> None:
    first, second = candidates.one(), candidates.one()
    term = won(first)
    # A place that was made anew does not begin below what registries remember.
    assert term.token == WALL_S + 1
    for _ in range(10):
        candidates.passes(LEASE_S / 4)
        assert second.campaign() is None
        term = first.renew(term)
    assert term.token == WALL_S + 1


def test_a_leader_counts_on_less_than_its_lease(candidates: Candidates) -> None:
    first = candidates.one()
    term = won(first)
    assert term.until_s == 1_000_000 + 0.8 * LEASE_S
    candidates.passes(5)
    assert first.renew(term).until_s == 1_000_005 + 0.8 * LEASE_S


def test_a_silent_leader_is_followed_within_a_lease_and_one_look(candidates: Candidates) -> None:
    first, second = candidates.one(), candidates.one()
    term = won(first)
    assert second.campaign() is None
    candidates.passes(LEASE_S - 0.1)
    assert second.campaign() is None
    candidates.passes(0.1)
    later = won(second)
    assert later.token == term.token + 1
    with pytest.raises(LeadershipLost) as caught:
        first.renew(term)
    assert (caught.value.found, caught.value.expected) == (f"term {later.token}", f"term {term.token}")
    # And it has to win again like everybody else.
    assert first.campaign() is None


def test_one_that_has_resigned_is_followed_at_once(candidates: Candidates) -> None:
    first, second = candidates.one(), candidates.one()
    term = won(first)
    assert second.campaign() is None
    first.resign(term)
    assert won(second).token == term.token + 1


def test_resigning_late_takes_nothing_from_the_next_leader(candidates: Candidates) -> None:
    first, second, third = candidates.one(), candidates.one(), candidates.one()
    old = won(first)
    first.resign(old)
    won(second)
    first.resign(old)
    assert third.campaign() is None


def test_a_candidate_that_has_just_come_waits_a_whole_lease(candidates: Candidates) -> None:
    first = candidates.one()
    won(first)
    candidates.passes(100 * LEASE_S)
    second = candidates.one()
    # It cannot know how long the leader has been silent.
    assert second.campaign() is None
    candidates.passes(LEASE_S)
    assert second.campaign() is not None


def test_a_leader_with_a_longer_lease_gets_it(candidates: Candidates) -> None:
    patient = StorageElection(candidates.storage, "job", 3 * LEASE_S, candidates.clocks.of(0), lambda: WALL_S)
    hasty = candidates.one()
    won(patient)
    assert hasty.campaign() is None
    candidates.passes(2 * LEASE_S)
    assert hasty.campaign() is None
    candidates.passes(LEASE_S)
    assert hasty.campaign() is not None


def test_jobs_have_leaders_of_their_own(candidates: Candidates) -> None:
    other = StorageElection(candidates.storage, "other", LEASE_S, candidates.clocks.of(0), lambda: WALL_S)
    won(candidates.one())
    won(other)


def test_a_candidate_that_died_with_its_claim_does_not_end_the_elections(candidates: Candidates) -> None:
    storage = FaultyStorage(candidates.storage, at=2)
    with pytest.raises(Killed):
        candidates.one(storage).campaign()
    third = candidates.one()
    assert third.campaign() is None
    candidates.passes(LEASE_S)
    assert won(third).token == WALL_S + 2


def test_only_a_few_old_terms_are_kept(candidates: Candidates) -> None:
    for _ in range(30):
        election = candidates.one()
        term = won(election)
        election.resign(term)
    assert len(candidates.storage.list("job").names) <= 22


def leads_at_the_same_time(method: str, number: int) -> bool:
    """Two who lead at once: a slow leader renews in the middle of the other's campaign."""
    candidates = Candidates(MemoryStorage())
    first = candidates.one()
    terms = [won(first)]

    def renew() -> None:
        try:
            terms.append(first.renew(terms[-1]))
        except LeadershipLost:
            terms.append(Term(0, 0.0))

    meddling = Meddling(candidates.storage, method, number, renew)
    second = candidates.one(meddling)  # type: ignore[arg-type]
    second.campaign()
    candidates.passes(LEASE_S)
    later = second.campaign()
    first_leads = terms[-1].until_s > first._now()
    return first_leads and later is not None


@settings(max_examples=60 * MORE)
@given(st.sampled_from(["read", "write", "list"]), st.integers(1, 12))
def test_whatever_a_slow_leader_does_in_between_one_leads(method: str, number: int) -> None:
    assert not leads_at_the_same_time(method, number)


def test_who_was_seen_alive_after_all_keeps_the_lease_that_he_counts_on() -> None:
    candidates = Candidates(MemoryStorage())
    first = candidates.one()
    term = won(first)
    kept: list[Term] = []
    second = candidates.one(Meddling(candidates.storage, "write", 1, lambda: kept.append(first.renew(term))))  # type: ignore[arg-type]
    assert second.campaign() is None
    candidates.passes(LEASE_S)
    # It has claimed the next term, but the beat had moved: the old one runs to its end first.
    assert second.campaign() is None
    assert kept[0].until_s > first._now()
    with pytest.raises(LeadershipLost):
        first.renew(kept[0])
    candidates.passes(LEASE_S)
    assert won(second).token == term.token + 1


class Careless(MemoryStorage):
    """A store that ignores the condition of a write, as some gateways ignore `If-None-Match`."""

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        super().write(path, data, replace=True)


def test_of_two_who_claimed_one_term_the_one_whose_claim_is_gone_leads_no_longer() -> None:
    storage = Careless()
    candidates = Candidates(storage)
    first = candidates.one()
    terms: list[Term] = []
    meddling = Meddling(storage, "write", 1, lambda: terms.append(won(first)))
    second = candidates.one(meddling)  # type: ignore[arg-type]
    later = won(second)
    assert [term.token for term in terms] == [later.token]
    with pytest.raises(LeadershipLost) as caught:
        first.renew(terms[0])
    assert caught.value.found == f"term {later.token}, claimed by a different process"
    with pytest.raises(LeadershipLost):
        first.write_record(terms[0], b"late")
    first.resign(terms[0])  # takes nothing from the other
    assert second.renew(later).token == later.token
    assert second.incumbent() is not None


class CarelessFiles(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Such a store behind fsspec."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value, mode="overwrite")


def test_nobody_is_elected_in_a_store_that_ignores_the_condition_of_a_write() -> None:
    storage = RemoteStorage("s3://bucket/leases", CarelessFiles(skip_instance_cache=True))
    with pytest.raises(Unsupported, match="ignores the condition of a write") as caught:
        Candidates(storage).one().campaign()
    assert caught.value.where == "s3://bucket/leases"
    assert not storage.list("job").names


def test_one_record_stays(candidates: Candidates) -> None:
    for number in range(3):
        election = candidates.one()
        term = won(election)
        election.write_record(term, b"one")
        election.write_record(term, str(number).encode())
        election.resign(term)
    assert sum(name.endswith(".record") for name in candidates.storage.list("job").names) == 1


def test_nobody_leads_in_a_directory_that_is_not_mounted(tmp_path: Path) -> None:
    candidates = Candidates(LocalStorage(tmp_path / "leases"))
    first, second = candidates.one(), candidates.one()
    term = won(first)
    assert second.campaign() is None
    (tmp_path / "leases").rename(tmp_path / "unmounted")
    candidates.passes(LEASE_S)
    for act in (
        second.campaign,
        second.look,
        lambda: first.renew(term),
        lambda: first.write_record(term, b""),
    ):
        with pytest.raises(Unavailable, match="no longer has the terms"):
            act()
    # An empty directory is the same; and nobody has made one.
    assert not (tmp_path / "leases").exists()
    (tmp_path / "leases").mkdir()
    with pytest.raises(Unavailable, match="no longer has the terms"):
        second.campaign()
    (tmp_path / "leases").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "leases")
    assert first.renew(term).token == term.token
    assert second.campaign() is None
