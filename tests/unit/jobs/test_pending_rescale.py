"""A decided rescale on a shared disk is finished by three leaders, which are suspended at every step."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden import golden_on_disk
from holdfast.jobs import pending_rescale
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
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.rescaler import Rescaler
from holdfast.jobs.state_home import StateHome
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.memory import MemoryStorage

GOLDEN = "4.2/aggregate-memory"
# A leader is suspended before each call of these.
STEPS = ("_names_of", "rename", "inode_of", "_batch_of", "exchange")


class Leader(threading.Thread):
    """A leader that is suspended before a step, until it is resumed."""

    def __init__(self, pending: PendingRescale, term: int, stop_at: int) -> None:
        super().__init__(daemon=True)
        self._pending, self._term, self._left = pending, term, stop_at
        self._reached, self._resumed = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            put_in_place(self._pending, self._term)
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
        first = Leader(pending, 1, first_at).until_suspended()
        second = Leader(pending, 2, second_at).until_suspended()
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
        first = Leader(pending, 1, first_at).until_suspended()
        second = Leader(pending, 2, second_at).until_suspended()
        first.resume()
        second.resume()
        put_in_place(pending, 3)
        assert is_replaced(case)


def test_a_killed_leader_is_followed_at_each_step(tmp_path: Path, decided: PendingRescale) -> None:
    leader = Leader(decided, 1, 99).until_suspended()
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
    rescaler = Rescaler(home, "shop", DriverSpec(target="job.py", home=str(home.path)), lambda: 1, second)
    rescaler.recover()
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
