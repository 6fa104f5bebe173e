"""Takes and removals give way to one another, and the dead to the living."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query, manifests

from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.ownership.process_identity import ProcessIdentity, host_name, this_machine
from holdfast.savepoints.leases import GcLease, Note, TakeLease, clear_dead_sweep, takes
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.proof import prove
from holdfast.savepoints.taking import take
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

HOUR_MS = 3_600_000


def test_a_removal_gives_way_to_a_take() -> None:
    hands, into = Hands(), catalog()
    done = hands.take(MemoryStorage(file_query(3)), into)
    TakeLease(into, "aa", hands.clock).begin()
    before = into.files
    with pytest.raises(Conflict, match="being taken") as error:
        hands.sweep(into)
    assert "process" in (error.value.found or "")
    with pytest.raises(Conflict, match="being taken"):
        hands.delete(into, done.manifest.savepoint_id)
    assert into.files == before


def test_a_take_gives_way_to_a_removal() -> None:
    hands, into = Hands(), catalog()
    GcLease(into, "bb", hands.clock, HOUR_MS).begin()
    with pytest.raises(Conflict, match="a removal is running") as error:
        hands.take(MemoryStorage(file_query(3)), into)
    assert "holdfast savepoint gc" in (error.value.hint or "")
    assert list(into.files) == ["sweep.json"]


def test_two_removals_do_not_run_at_once() -> None:
    hands, into = Hands(), catalog()
    GcLease(into, "bb", hands.clock, HOUR_MS).begin()
    with pytest.raises(Conflict, match="another removal"):
        hands.sweep(into)


def test_takes_run_side_by_side() -> None:
    hands, into = Hands(), catalog()
    TakeLease(into, "aa", hands.clock).begin()
    taken = hands.take(MemoryStorage(file_query(3)), into)
    assert prove(into, taken.manifest.savepoint_id, workers=1).ok


def test_a_take_that_is_silent_for_an_hour_is_dead_and_is_cleared_up_after() -> None:
    hands, into = Hands(), catalog()
    TakeLease(into, "aa", hands.clock).begin()
    into.write("staging/aa-0", b"held")
    into.write("objects/a/abcd", b"copied")
    hands.now_ms += HOUR_MS - 10
    with pytest.raises(Conflict):
        hands.sweep(into)
    hands.now_ms += 10
    removal = hands.sweep(into)
    assert len(removal.dead) == 1
    assert sorted(removal.paths) == ["objects/a/abcd", "staging/aa-0"]
    assert list(into.files) == ["takes/aa.ended"]
    hands.now_ms += 25 * HOUR_MS
    hands.sweep(into)
    assert into.files == {}


def test_a_take_that_shows_itself_lives() -> None:
    hands, into = Hands(), catalog()
    turn = TakeLease(into, "aa", hands.clock)
    turn.begin()
    for _ in range(3):
        hands.now_ms += HOUR_MS - 10
        turn.beat()
    with pytest.raises(Conflict):
        hands.sweep(into)


def test_a_killed_removal_is_taken_over_after_an_hour() -> None:
    hands, into = Hands(), catalog()
    killed = GcLease(into, "bb", hands.clock, HOUR_MS)
    killed.begin()
    hands.now_ms += HOUR_MS
    hands.sweep(into)
    assert into.files == {}
    with pytest.raises(Conflict, match="taken over"):
        killed.check()


@pytest.mark.parametrize(
    ("machine", "has_died"), [(this_machine(), True), (f"{host_name(this_machine())} boot pid:[1]", False)]
)
def test_a_removal_has_died_if_its_process_of_this_machine_has(machine: str, has_died: bool) -> None:
    """In a container with the same host name the number means a different process, which may live."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    into = catalog()
    owner = f"process {gone.pid} on {host_name(machine)}"
    into.write("sweep.json", Note("bb", 1_000, owner, ProcessIdentity(machine, gone.pid, 1)).render())
    clear_dead_sweep(into)
    assert (into.size("sweep.json") is None) is has_died


def test_a_living_removal_is_left_alone() -> None:
    hands, into = Hands(), catalog()
    GcLease(into, "bb", hands.clock, HOUR_MS).begin()
    clear_dead_sweep(into)
    assert into.size("sweep.json") is not None


def test_no_removal_takes_the_turn_of_one_that_stands_still_on_this_disk(tmp_path: Path) -> None:
    """It may have looked whether the turn is still its own, and delete a file next."""
    hands, into = Hands(), LocalStorage(tmp_path / "catalog")
    hands.take(MemoryStorage(file_query(3)), into)
    frozen = GcLease(into, "bb", hands.clock, HOUR_MS)
    with frozen.hold():
        hands.now_ms += 2 * HOUR_MS
        for dead_after_ms in (HOUR_MS, 0):
            with pytest.raises(Conflict, match="without renewing it") as caught:
                hands.sweep(into, dead_after_ms=dead_after_ms)
            assert "process" in (caught.value.found or "")
        with pytest.raises(Conflict, match="a removal is running"):
            hands.take(MemoryStorage(file_query(4)), into)
        frozen.check()
    hands.sweep(into)
    hands.take(MemoryStorage(file_query(4)), into)
    assert not (tmp_path / "catalog" / "sweep.lock").exists()


def test_who_is_sure_that_nobody_lives_need_not_wait() -> None:
    hands, into = Hands(), catalog()
    GcLease(into, "bb", hands.clock, HOUR_MS).begin()
    TakeLease(into, "aa", hands.clock)._write(replace=False)
    assert hands.sweep(into, dead_after_ms=0).dead
    assert hands.take(MemoryStorage(file_query(3)), into).manifest.batch_id == 2


class Frozen(MemoryStorage):
    """A catalog in which a take stands still for two hours, just before or after it writes its manifest."""

    def __init__(self, hands: Hands, before: bool) -> None:
        super().__init__(uri="memory://catalog")
        self._hands = hands
        self._before = before
        self._fresh = True

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        manifest = path.endswith("/manifest.json") and self._fresh
        if manifest and self._before:
            self._sleep()
        super().write(path, data, replace=replace)
        if manifest and not self._before:
            self._sleep()

    def _sleep(self) -> None:
        self._fresh = False
        self._hands.now_ms += 2 * HOUR_MS
        self._hands.sweep(self)


def test_a_take_that_was_given_up_withdraws_its_savepoint() -> None:
    hands = Hands()
    into = Frozen(hands, before=True)
    checkpoint = MemoryStorage(file_query(3))
    plan = plan_take(checkpoint, into)
    with pytest.raises(Conflict, match="did not renew the lease in time"):
        take(checkpoint, into, plan, clock=hands.clock, chance=hands.chance, workers=1)
    assert manifests(into) == []


def test_nothing_is_lost_to_a_sweep_right_behind_the_manifest() -> None:
    hands = Hands()
    into = Frozen(hands, before=False)
    checkpoint = MemoryStorage(file_query(3))
    plan = plan_take(checkpoint, into)
    with pytest.raises(Conflict, match="did not renew the lease in time"):
        take(checkpoint, into, plan, clock=hands.clock, chance=hands.chance, workers=1)
    # It was there, and whole, when the sweep looked; it is withdrawn all the same.
    assert manifests(into) == []
    hands.sweep(into)
    assert {path for path in into.files if not path.endswith(".ended")} == set()


def test_a_plan_that_counted_on_bytes_which_are_gone_copies_them() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(3))
    first = hands.take(checkpoint, into)
    plan = plan_take(checkpoint, into)
    hands.delete(into, first.manifest.savepoint_id)
    taken = take(checkpoint, into, plan, clock=hands.clock, chance=hands.chance, workers=1)
    assert prove(into, taken.manifest.savepoint_id, workers=1).ok


def test_what_another_savepoint_needs_stays() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(5))
    first, second = (hands.take(checkpoint, into, batch) for batch in (3, 4))
    shared = {file.sha256 for file in first.manifest.files} & {file.sha256 for file in second.manifest.files}
    assert shared
    removal = hands.delete(into, first.manifest.savepoint_id)
    assert removal.size_bytes > 0
    assert prove(into, second.manifest.savepoint_id, workers=1).ok
    with pytest.raises(NotFound, match="the savepoint does not exist"):
        hands.delete(into, first.manifest.savepoint_id)
    hands.delete(into, second.manifest.savepoint_id)
    assert into.files == {}


def test_where_a_manifest_is_damaged_no_bytes_are_removed() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(5))
    names = [hands.take(checkpoint, into, batch).manifest.savepoint_id for batch in (2, 3, 4)]
    for name in names[:2]:
        into.write(f"savepoints/{name}/manifest.json", b"{}", replace=True)
    objects = {path for path in into.files if path.startswith("objects/")}
    with pytest.raises(HoldfastError, match="nothing was removed, because the files"):
        hands.sweep(into)
    assert hands.delete(into, names[2]).unreadable == tuple(names[:2])
    assert hands.delete(into, names[0]).unreadable == (names[1],)
    assert {path for path in into.files if path.startswith("objects/")} == objects
    hands.delete(into, names[1])
    assert hands.sweep(into).paths == tuple(sorted(objects))
    assert into.files == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"token": "aa", "beat_ms": "soon", "owner": "me"}'])
def test_an_unreadable_lease_is_infinitely_old(content: bytes) -> None:
    into = catalog()
    into.write("takes/aa.json", content)
    found = takes(into, HOUR_MS, HOUR_MS)
    assert (found.live, found.dead) == ((), (Note("aa", 0, "an unknown process"),))
