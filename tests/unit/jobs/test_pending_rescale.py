"""A decided rescale is finished by three leaders, of which two are suspended at every step."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from golden import golden_files, golden_on_disk, without_checksums
from holdfast.jobs import pending_rescale, rescaler
from holdfast.jobs.candidacy import Candidacy
from holdfast.jobs.pending_rescale import (
    CheckpointMark,
    CheckpointMove,
    PendingRescale,
    discard,
    is_consistent,
    put_in_place,
    result_of,
)
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.registry.operation_log import Operations, OperationState, Rescale
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.rescaler import Rescaler, owner_of, recover_left_behind
from holdfast.jobs.state_home import StateHome
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage import successors
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.storage.remote import RemoteStorage
from holdfast.storage.successors import list_successors, replaced_by

GOLDEN = "4.2/aggregate-memory"
OPERATION = "ab" * 16
# A leader is suspended before each call of these.
STEPS = ("_names_of", "rename", "inode_of", "_batch_of", "exchange")


class Leader(threading.Thread):
    """A leader that is suspended before a step, until it is resumed."""

    def __init__(self, action: Callable[[], None], stop_at: int) -> None:
        super().__init__(daemon=True)
        self._action, self._left = action, stop_at
        self._reached, self._resumed = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._action()
        except Exception as error:  # the thread that joins this one judges it
            self.error = error
        self._reached.set()

    def step(self) -> None:
        self._left -= 1
        if self._left == -1:
            self._reached.set()
            assert self._resumed.wait(60)

    def until_suspended(self) -> Leader:
        self.start()
        assert self._reached.wait(60)
        return self

    def resume(self) -> None:
        self._resumed.set()
        self.join(60)
        assert not self.is_alive()


def finishing(pending: PendingRescale, term: int, stop_at: int) -> Leader:
    return Leader(partial(put_in_place, pending, term), stop_at)


def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*args: Any, **kwargs: Any) -> Any:
        thread = threading.current_thread()
        if isinstance(thread, Leader):
            thread.step()
        return function(*args, **kwargs)

    return stepped


def move_in(folder: Path) -> CheckpointMove:
    uri = f"file://{folder}/ck"
    return CheckpointMove("q", uri, f"{uri}.rescale-ab", f"{uri}.before-ab", 5)


@pytest.fixture
def decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PendingRescale:
    golden_on_disk(GOLDEN, tmp_path / "ck")
    golden_on_disk(GOLDEN, tmp_path / "ck.rescale-ab")
    (tmp_path / "ck.rescale-ab" / "new").touch()
    pending = PendingRescale((move_in(tmp_path),)).decided()
    for name in STEPS:
        if name == "rename":
            monkeypatch.setattr(Path, name, stepping(Path.rename))
        else:
            monkeypatch.setattr(pending_rescale, name, stepping(getattr(pending_rescale, name)))
    return pending


# A leader that finishes a rescale elsewhere is suspended before each call of these, five in all.
STEPS_ELSEWHERE = ("is_published", "_batch_of", "publish_successor", "void_successor", "retire", "withdraw")


class Elsewhere:
    """A rescale in an object store, of which a number is published or made void."""

    def __init__(self) -> None:
        memory().store.clear()
        self.first, self.second = "memory://bucket/jobs/ck", "memory://bucket/jobs/ck.r1"
        for uri in (self.first, self.second):
            for path, data in without_checksums(golden_files(GOLDEN)).items():
                open_in_memory(uri).write(path, data)
        moves = (CheckpointMove("q", self.first, self.second, self.first, 5),)
        self.pending = PendingRescale(moves).decided()

    def is_replaced(self) -> bool:
        replaced = json.loads(open_in_memory(self.first).read("metadata"))
        return (
            list_successors(self.first) == [1]
            and replaced_by(replaced) == "ck.r1"
            and "id" in json.loads(open_in_memory(self.second).read("metadata"))
        )


def memory() -> Any:
    import fsspec

    return fsspec.filesystem("memory")


def open_in_memory(address: str) -> Storage:
    return RemoteStorage(address, memory())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Elsewhere]:
    for module in (pending_rescale, rescaler, successors):
        monkeypatch.setattr(module, "open_storage", open_in_memory)
    for name in STEPS_ELSEWHERE:
        monkeypatch.setattr(pending_rescale, name, stepping(getattr(pending_rescale, name)))
    return Elsewhere


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))


def is_replaced(folder: Path) -> bool:
    """True if the new checkpoint is in place and the former one kept; else all is as after a discard."""
    names = names_in(folder)
    assert names == ["ck", "ck.before-ab"], names
    assert not (folder / "ck.before-ab" / "new").exists()
    return (folder / "ck" / "new").exists()


def decided_in(folder: Path) -> PendingRescale:
    folder.mkdir()
    golden_on_disk(GOLDEN, folder / "ck")
    golden_on_disk(GOLDEN, folder / "ck.rescale-ab")
    (folder / "ck.rescale-ab" / "new").touch()
    return PendingRescale((move_in(folder),)).decided()


@pytest.mark.parametrize("first_at", range(8))
def test_suspended_leaders_change_nothing_after_a_later_one(
    tmp_path: Path, decided: PendingRescale, first_at: int
) -> None:
    for second_at, is_first_first in itertools.product(range(8), (True, False)):
        case = tmp_path / f"{second_at}-{is_first_first}"
        pending = decided_in(case)
        first = finishing(pending, 1, first_at).until_suspended()
        second = finishing(pending, 2, second_at).until_suspended()
        put_in_place(pending, 3)
        assert is_replaced(case)
        (case / "ck" / "a batch of the third leader").touch()
        for leader in (first, second) if is_first_first else (second, first):
            leader.resume()
            assert leader.error is None or isinstance(leader.error, LeadershipLost), leader.error
        assert is_replaced(case)
        assert (case / "ck" / "a batch of the third leader").exists()
        assert result_of(pending.moves) is True


@pytest.mark.parametrize("first_at", range(8))
def test_an_earlier_leader_does_not_undo_what_a_later_one_is_doing(
    tmp_path: Path, decided: PendingRescale, first_at: int
) -> None:
    for second_at in range(8):
        case = tmp_path / f"{second_at}"
        pending = decided_in(case)
        first = finishing(pending, 1, first_at).until_suspended()
        second = finishing(pending, 2, second_at).until_suspended()
        first.resume()
        second.resume()
        put_in_place(pending, 3)
        assert is_replaced(case)


def test_suspended_leaders_change_nothing_after_a_later_one_elsewhere(
    elsewhere: Callable[[], Elsewhere],
) -> None:
    for first_at, second_at in itertools.product(range(6), repeat=2):
        is_first_first = bool((first_at + second_at) % 2)
        case = elsewhere()
        first = finishing(case.pending, 1, first_at).until_suspended()
        second = finishing(case.pending, 2, second_at).until_suspended()
        put_in_place(case.pending, 3)
        assert case.is_replaced()
        open_in_memory(case.second).write("a batch of the third leader", b"")
        for leader in (first, second) if is_first_first else (second, first):
            leader.resume()
            assert leader.error is None, (first_at, second_at, leader.error)
        assert case.is_replaced()
        assert result_of(case.pending.moves) is True


def test_a_checkpoint_that_was_continued_is_not_replaced_elsewhere(
    elsewhere: Callable[[], Elsewhere],
) -> None:
    for first_at in range(5):
        case = elsewhere()
        (mark,) = (case.pending.marks or {}).values()
        earlier = PendingRescale(case.pending.moves, {"q": CheckpointMark(mark.batch - 1)})
        first = finishing(earlier, 1, first_at).until_suspended()
        put_in_place(earlier, 2)
        first.resume()
        assert first.error is None
        assert (list_successors(case.first), result_of(case.pending.moves)) == ([], False)
        assert b"replaced" not in open_in_memory(case.first).read("metadata")


def test_a_late_discard_deletes_no_checkpoint_of_a_later_leader(elsewhere: Callable[[], Elsewhere]) -> None:
    # It is suspended before it makes the number void, and before it deletes the files.
    for stop_at, is_published_then in ((0, True), (1, False)):
        case = elsewhere()
        late = Leader(partial(discard, case.pending.moves), stop_at).until_suspended()
        put_in_place(case.pending, 2)
        late.resume()
        assert result_of(case.pending.moves) is is_published_then
        assert case.is_replaced() == is_published_then
        assert (open_in_memory(case.second).size("metadata") is not None) == is_published_then


def test_a_rescale_that_was_not_begun_deletes_no_checkpoint_of_a_later_owner(
    tmp_path: Path, elsewhere: Callable[[], Elsewhere]
) -> None:
    """Its supervisor was killed before it had a directory, and one on another machine took the number."""
    case, home = elsewhere(), StateHome(tmp_path)
    registry, operations = Registry(home.registry), Operations(home)
    registry.start_job(JobRecord.begun("shop", "job.py", case.first, "retain", 0, None, None))
    operations.ask(OPERATION, "rescale", "shop", Rescale({"q": 5}), 0)
    begun = operations.begin(OPERATION, owner_of("shop"), 0)
    assert begun is not None
    left = operations.note(begun, moves=[asdict(move) for move in case.pending.moves])
    put_in_place(case.pending, 1)
    recover_left_behind(home, operations, left, lambda: 1)
    assert operations.get(OPERATION).state is OperationState.FAILED
    assert case.is_replaced()


def test_a_killed_leader_is_followed_at_each_step(tmp_path: Path, decided: PendingRescale) -> None:
    leader = finishing(decided, 1, 99).until_suspended()
    leader.resume()
    assert leader.error is None
    assert is_replaced(tmp_path)
    put_in_place(decided, 2)
    assert is_replaced(tmp_path)


def test_a_checkpoint_that_was_continued_is_not_replaced(tmp_path: Path, decided: PendingRescale) -> None:
    (mark,) = (decided.marks or {}).values()
    put_in_place(PendingRescale(decided.moves, {"q": CheckpointMark(mark.batch - 1, mark.old, mark.new)}), 1)
    assert names_in(tmp_path) == ["ck"]
    assert not (tmp_path / "ck" / "new").exists()
    assert result_of(decided.moves) is False


def test_so_is_one_that_was_exchanged_by_somebody_else(tmp_path: Path, decided: PendingRescale) -> None:
    os.rename(tmp_path / "ck", tmp_path / "elsewhere")  # noqa: PTH104 - the leader's rename is stepped
    golden_on_disk(GOLDEN, tmp_path / "ck")
    put_in_place(decided, 1)
    assert names_in(tmp_path) == ["ck", "elsewhere"]
    assert result_of(decided.moves) is False


def test_what_is_not_decided_is_discarded(tmp_path: Path, decided: PendingRescale) -> None:
    assert result_of(decided.moves) is None
    discard(decided.moves)
    assert names_in(tmp_path) == ["ck"]
    assert result_of(decided.moves) is False


@pytest.mark.parametrize(
    ("made", "kept", "expected"),
    [
        ("file:///jobs/ck.rescale-a", "file:///jobs/ck.before-a", True),
        ("file:///etc/ck.rescale-a", "file:///jobs/ck.before-a", False),
        ("file:///jobs/ck.rescale-a", "file:///jobs/other", False),
        ("s3a://bucket/ck.r1", "s3a://bucket/ck", False),
    ],
)
def test_a_forged_record_names_no_other_directory(made: str, kept: str, expected: bool) -> None:
    move = CheckpointMove("q", "file:///jobs/ck", made, kept, 5)
    assert is_consistent(PendingRescale((move,))) == expected


def candidate(folder: Path, elections: MemoryStorage) -> Candidacy:
    folder.mkdir()
    return Candidacy(
        lambda job: StorageElection(elections, job, 1000.0, lambda: 0.0, lambda: 1_800_000_000),
        "shop",
        Registry(folder / "registry.db"),
        lambda: 1_800_000_000_000,
        lambda: 0.0,
    )


@pytest.mark.parametrize("is_decided", [True, False])
def test_the_record_tells_the_next_leader_what_to_do(
    tmp_path: Path, decided: PendingRescale, is_decided: bool
) -> None:
    elections = MemoryStorage()
    first, second = (candidate(tmp_path / f".{name}", elections) for name in ("first", "second"))
    assert first.stand()
    first.begin(decided.moves[0].checkpoint, 1, ran=True)
    first.note_now(pending=decided if is_decided else PendingRescale(decided.moves))
    assert not second.stand()
    first.close()
    assert second.stand()
    home = StateHome(tmp_path / ".second")
    Rescaler(home, "shop", DriverSpec(target="job.py", home=str(home.path)), lambda: 1, second).recover()
    if is_decided:
        assert is_replaced(tmp_path)
    else:
        assert names_in(tmp_path) == ["ck"]
    assert second.record is not None
    assert second.record.pending is None
    second.begin(decided.moves[0].checkpoint, 1, ran=True)
    second.close()
    third = candidate(tmp_path / ".third", elections)
    assert third.stand()
    assert third.record is not None
    assert third.record.pending is None
    third.close()
    with pytest.raises(LeadershipLost):
        first.note_now(pending=decided)
