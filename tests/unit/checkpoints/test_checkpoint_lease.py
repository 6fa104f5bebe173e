"""The lease beside a checkpoint: who is refused, who is waited for, and what a verb holds meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from lease_candidates import LEASE_S, Candidates, Meddling, won

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.errors import Conflict
from holdfast.ownership import checkpoint_guard
from holdfast.ownership.checkpoint_guard import (
    CheckpointGuard,
    Timing,
    dry_run_usage,
    guarded,
    held_for_making,
)
from holdfast.ownership.checkpoint_lease import can_keep_leases, has_lease, lease_note, lease_place
from holdfast.ownership.election import LeadershipLost, Term
from holdfast.ownership.lease import LEASE_S as USUAL_S
from holdfast.ownership.lease import acquire
from holdfast.ownership.process_identity import myself
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

OWNER = "etl-7 pid 4711"


class Beside:
    """The lease beside a local checkpoint, its owner elsewhere, and a clock that pauses move."""

    def __init__(self, checkpoint: Path) -> None:
        self.storage = LocalStorage(checkpoint.parent)
        self.name = f".{checkpoint.name}.holdfast.lease"
        self.now_s = 1_000.0
        self.happens: Callable[[], object] = lambda: None

    def owner(self) -> StorageElection:
        return StorageElection(
            self.storage, self.name, USUAL_S, lambda: self.now_s, lambda: 1_800_000_000, OWNER
        )

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.happens()

    @property
    def timing(self) -> Timing:
        return Timing(lambda: int(self.now_s * 1000), lambda: self.now_s, self.pause)

    def claims(self) -> list[str]:
        folder = self.storage.list(self.name).names
        return [
            json.loads(self.storage.read(f"{self.name}/{name}"))["holder"]
            for name in sorted(folder)
            if name.endswith(".claim")
        ]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")


@pytest.fixture
def beside(checkpoint: Path) -> Beside:
    return Beside(checkpoint)


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ("s3a://bucket/jobs/visits", ("s3a://bucket/jobs", ".visits.holdfast.lease")),
        ("s3a://bucket/visits", ("s3a://bucket", ".visits.holdfast.lease")),
        ("webhdfs://host:9870/visits/", ("webhdfs://host:9870", ".visits.holdfast.lease")),
        ("file:///data/visits", ("file:///data", ".visits.holdfast.lease")),
        ("file:///visits", ("file:///", ".visits.holdfast.lease")),
        ("s3a://bucket", None),
    ],
)
def test_where_it_is(checkpoint: str, place: tuple[str, str] | None) -> None:
    assert lease_place(checkpoint) == place


def test_where_none_can_be_kept() -> None:
    assert can_keep_leases("s3a://bucket/ck")
    assert can_keep_leases("file:///ck")
    assert not can_keep_leases("hdfs://host/ck")
    assert can_keep_leases("gs://bucket/ck")
    assert can_keep_leases("abfss://container@account.dfs.core.windows.net/ck")
    assert not can_keep_leases("dbfs:///ck")


def test_in_memory_a_living_owner_is_refused_and_a_silent_one_followed() -> None:
    candidates = Candidates(MemoryStorage())
    owner = candidates.one()
    term = won(owner)
    waited: list[tuple[str, float]] = []

    def renews(seconds: float) -> bool:
        nonlocal term
        candidates.passes(seconds)
        term = owner.renew(term)
        return True

    def silent(seconds: float) -> bool:
        candidates.passes(seconds)
        return True

    with pytest.raises(Conflict, match="a different process owns the checkpoint") as caught:
        acquire(
            candidates.one(), "memory://ck", renews, lambda *told: waited.append(told), refuse_living=True
        )
    assert caught.value.found == f"{myself()}, by the lease at {candidates.storage.uri}"
    assert "its lease ends 10.0 s later" in (caught.value.hint or "")
    assert waited == [(myself(), LEASE_S)]
    # What was refused has taken nothing from the owner.
    term = owner.renew(term)

    told: list[float] = []
    clock = candidates.clocks.of(0.0)
    began = candidates.clocks.passed
    follower = acquire(
        candidates.one(),
        "memory://ck",
        silent,
        lambda *_: None,
        refuse_living=True,
        now=clock,
        renewed=told.append,
    )
    assert follower is not None
    assert candidates.clocks.passed - began >= LEASE_S
    assert follower.token == term.token + 1
    assert len(told) >= 1
    with pytest.raises(LeadershipLost):
        owner.renew(term)
    follower.release()


def test_one_who_does_not_refuse_the_living_waits_for_as_long_as_he_likes() -> None:
    candidates = Candidates(MemoryStorage())
    owner = candidates.one()
    term = won(owner)
    left = iter(range(20))

    def patience(seconds: float) -> bool:
        candidates.passes(seconds)
        owner.renew(term)
        return next(left, None) is not None

    assert not acquire(candidates.one(), "memory://ck", patience, lambda *_: None, refuse_living=False)
    assert next(left, None) is None


def test_an_elected_leader_follows_the_one_before_at_once_and_nobody_else_does() -> None:
    candidates = Candidates(MemoryStorage())
    owner = candidates.one(elected_at="zookeeper visits")
    term = won(owner)
    for other in ("", "zookeeper orders", "etcd visits"):
        assert candidates.one(elected_at=other).campaign() is None
    follower = candidates.one(elected_at="zookeeper visits")
    assert won(follower).token == term.token + 1
    with pytest.raises(LeadershipLost):
        owner.renew(term)
    # Elections say nothing of an owner who took no part in them.
    alone = Candidates(MemoryStorage())
    won(alone.one())
    assert alone.one(elected_at="zookeeper visits").campaign() is None


def test_an_elected_leader_that_still_gives_signs_of_life_is_waited_for() -> None:
    """A leader that was deposed and has not noticed it yet renews its lease once more."""
    storage = MemoryStorage()
    candidates = Candidates(storage)
    owner = candidates.one(elected_at="zookeeper visits")
    term = won(owner)
    renewed: list[Term] = []
    meddling = Meddling(storage, "write", 1, lambda: renewed.append(owner.renew(term)))
    follower = candidates.one(cast(Storage, meddling), elected_at="zookeeper visits")
    assert follower.campaign() is None
    candidates.passes(LEASE_S)
    assert won(follower).token == term.token + 1
    assert renewed


def test_a_verb_refuses_the_owner_of_another_machine(checkpoint: Path, beside: Beside) -> None:
    owner = beside.owner()
    term = won(owner)

    def renews() -> None:
        nonlocal term
        term = owner.renew(term)

    beside.happens = renews
    with (
        pytest.raises(Conflict, match="a different process owns the checkpoint") as caught,
        guarded(LocalStorage(checkpoint), "rescale", stopped=True, hint="", timing=beside.timing),
    ):
        pytest.fail("it was let through")
    assert caught.value.found == f"{OWNER}, by the lease at {beside.storage.uri}"
    assert caught.value.exit_code == 4
    # It is told long before the lease would be over.
    assert beside.now_s - 1_000 < USUAL_S / 2


def test_a_verb_goes_on_where_the_owner_is_silent_or_has_left(checkpoint: Path, beside: Beside) -> None:
    owner = beside.owner()
    won(owner)
    storage = LocalStorage(checkpoint)
    with guarded(storage, "rescale", stopped=True, hint="", timing=beside.timing) as guard:
        assert isinstance(guard, CheckpointGuard)
        # It is the owner itself meanwhile.
        assert beside.claims()[-1] == f"{myself()}, `holdfast rescale`"
        assert owner.incumbent() is not None
    assert beside.now_s - 1_000 >= USUAL_S
    assert owner.incumbent() is None
    before_s = beside.now_s
    with guarded(storage, "rescale", stopped=True, hint="", timing=beside.timing):
        pass
    # Only the watch of three seconds: nobody is waited for.
    assert beside.now_s - before_s <= 4


def test_a_verb_that_lost_its_lease_changes_nothing(checkpoint: Path, beside: Beside) -> None:
    won(beside.owner())
    with guarded(LocalStorage(checkpoint), "rescale", stopped=True, hint="", timing=beside.timing) as guard:
        guard.require_unmoved()
        beside.now_s += USUAL_S
        with pytest.raises(LeadershipLost):
            guard.require_unmoved()


def test_a_local_checkpoint_without_a_lease_gets_none(checkpoint: Path, beside: Beside) -> None:
    with guarded(LocalStorage(checkpoint), "rescale", stopped=True, hint="", timing=beside.timing):
        pass
    assert not has_lease(f"file://{checkpoint}")
    assert [path.name for path in checkpoint.parent.iterdir() if "lease" in path.name] == []


def test_the_lease_is_evidence_and_changes_nothing(checkpoint: Path, beside: Beside) -> None:
    storage = LocalStorage(checkpoint)
    assert dry_run_usage(storage, 0).lease is None
    owner = beside.owner()
    term = won(owner)
    before = sorted(path.name for path in checkpoint.parent.rglob("*"))
    usage = dry_run_usage(storage, 0)
    assert usage.lease is not None
    assert usage.lease.as_dict() == {"holder": OWNER, "lease_ms": 30_000}
    assert f"the lease next to it is held by {OWNER} and ends 30.0 s after its last renewal" in usage.lines()
    with (
        pytest.raises(Conflict, match="a query may still be using the checkpoint") as caught,
        guarded(storage, "rescale", stopped=False, hint="", timing=beside.timing),
    ):
        pytest.fail("it was let through")
    assert OWNER in (caught.value.found or "")
    assert sorted(path.name for path in checkpoint.parent.rglob("*")) == before
    owner.resign(term)
    assert lease_note(storage) is None


def test_nothing_is_restored_to_where_an_owner_is_about_to_begin(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = savepoints.take(checkpoint, tmp_path / "sp")
    target = tmp_path / "fresh"
    there = Beside(target)
    monkeypatch.setattr(checkpoint_guard, "MACHINE_TIMING", there.timing)
    owner = there.owner()
    term = won(owner)

    def renews() -> None:
        nonlocal term
        term = owner.renew(term)

    there.happens = renews
    with pytest.raises(Conflict, match="a different process owns the checkpoint"):
        savepoints.restore(taken.uri, target)
    assert not target.exists()
    owner.resign(term)
    with held_for_making(LocalStorage(target), "restore"):
        assert there.claims()[-1] == f"{myself()}, `holdfast restore`"
    savepoints.restore(taken.uri, target)
    assert (target / "metadata").exists()
