"""The guard of what changes, replaces or doubles a checkpoint: who is asked and what is watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from catalogs import file_query

import holdfast as hf
from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.changes.erase import checkpoint_swap
from holdfast.changes.erase.checkpoint_swap import replace_checkpoint
from holdfast.changes.partitions import apply_rescale, planned_rescale
from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_guard import CheckpointGuard, Timing, guarded, refuse_held, watch_ms
from holdfast.ownership.checkpoint_lock import Owner, fence, holder, lock_path, reserved, supervisor_lock
from holdfast.ownership.usage import CheckpointUsage, ProcessScan, usage_of
from holdfast.savepoints.access import ChangeSource
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.file_lock import FileLock
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

HEAP = "4.2/aggregate-memory"
LOCKER = (
    "import fcntl,os,sys; d=os.open(sys.argv[1], os.O_RDWR|os.O_CREAT); fcntl.lockf(d, fcntl.LOCK_EX);"
    " print('held', flush=True); sys.stdin.read()"
)
READER = "import sys; f=open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@dataclass
class Time:
    """A clock that only pauses move, and what happens in them."""

    now_s: float = 1_000_000.0
    happens: list[Callable[[], object]] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.paused.append(seconds)
        if self.happens:
            self.happens.pop(0)()

    @property
    def timing(self) -> Timing:
        return Timing(lambda: int(self.now_s * 1000), lambda: self.now_s, self.pause)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk(HEAP, tmp_path / "ck")


def guard_of(place: Path, time: Time, *, stopped: bool = True) -> AbstractContextManager[CheckpointGuard]:
    return guarded(LocalStorage(place), "state erase", stopped=stopped, hint="stop it", timing=time.timing)


def files(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in place.rglob("*") if each.is_file()}


@contextmanager
def process(script: str, path: Path) -> Iterator[int]:
    """A process that has said its word and lives on."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() in ("held\n", "open\n")
        yield child.pid
        child.communicate("")


def test_the_evidence_of_a_checkpoint() -> None:
    """Planned at 0, 15, 30 and 47 seconds, the last one not committed."""
    made = file_query(4)
    for number, second in enumerate((0, 15, 30, 47)):
        planned = "v1\n" + json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_000_000 + 1000 * second})
        made[f"offsets/{number}"] = (planned + '\n{"logOffset":0}').encode()
    del made["commits/3"]
    usage = usage_of(MemoryStorage(made), 1_050_000)
    assert (usage.planned, usage.planned_age_ms, usage.committed) == (3, 3_000, 2)
    assert usage.interval_ms == 15_000
    lines = usage.lines()
    assert "newest planned batch: 3, 3.0 s ago" in lines
    assert "batch 3 is planned but not committed" in lines
    assert "usual interval between batches: 15.0 s" in lines
    # A silence of 3 seconds is there already; 2 x 15 and a margin of 2 are wanted.
    assert watch_ms(usage) == 29_000


@pytest.mark.parametrize(
    ("interval_ms", "silent_ms", "wanted_ms"),
    [
        (None, None, 3_000),
        (300, 50, 3_000),
        (15_000, 0, 32_000),
        (15_000, 10**9, 3_000),
        (600_000, 5, 120_000),
    ],
)
def test_how_long_it_is_watched(interval_ms: int | None, silent_ms: int | None, wanted_ms: int) -> None:
    usage = CheckpointUsage("u", 1, silent_ms, 1, None, interval_ms, ProcessScan(possible=False))
    assert watch_ms(usage) == wanted_ms


def test_a_checkpoint_is_watched_for_two_minutes_at_most_and_the_progress_says_so(
    checkpoint: Path, time: Time
) -> None:
    notes: list[str] = []
    logs = sorted(checkpoint.glob("offsets/[0-9]*"), key=lambda file: int(file.name))
    for before, file in enumerate(reversed(logs)):
        version, planned, *offsets = file.read_text().splitlines()
        moved = {**json.loads(planned), "batchTimestampMs": int(time.now_s - 600 * before) * 1000}
        file.write_text("\n".join((version, json.dumps(moved), *offsets)))
    with guarded(
        LocalStorage(checkpoint),
        "state erase",
        stopped=True,
        hint="stop it",
        timing=time.timing,
        tell=lambda _done, _total, note: notes.append(note),
    ):
        assert "for 120 s, the maximum, though its batches are usually 600 s apart" in notes[0]


def test_without_a_persons_word_it_is_refused_with_the_evidence(checkpoint: Path, time: Time) -> None:
    before = files(checkpoint.parent)
    with (
        pytest.raises(Conflict, match="a query may still be using the checkpoint") as caught,
        guard_of(checkpoint, time, stopped=False),
    ):
        pytest.fail("it was let through")
    newest = checkpoints.read(checkpoint).batch_id
    assert f"newest committed batch: {newest}, " in (caught.value.found or "")
    assert caught.value.exit_code == 4
    assert files(checkpoint.parent) == before


def test_a_batch_while_it_is_watched_is_a_refusal(checkpoint: Path, time: Time) -> None:
    time.happens = [lambda: None, lambda: (checkpoint / "offsets/99").write_text("v1\n")]
    with (
        pytest.raises(Conflict, match="a query still uses the checkpoint") as caught,
        guard_of(checkpoint, time),
    ):
        pytest.fail("it was let through")
    assert "offsets/99 is new" in (caught.value.found or "")
    assert len(time.paused) == 2


def test_a_state_file_that_changes_is_a_refusal_too(checkpoint: Path, time: Time) -> None:
    state = next(checkpoint.glob("state/0/*/*.delta"))
    time.happens = [lambda: state.write_bytes(b"x")]
    with (
        pytest.raises(Conflict, match="a query still uses the checkpoint") as caught,
        guard_of(checkpoint, time),
    ):
        pytest.fail("it was let through")
    assert f"{state.relative_to(checkpoint)} has changed" in (caught.value.found or "")


def test_a_process_that_has_it_open_is_a_refusal_whatever_is_said(checkpoint: Path, time: Time) -> None:
    newest = next(checkpoint.glob("commits/*"))
    with process(READER, newest) as pid:
        with pytest.raises(Conflict, match="has the checkpoint open") as caught, guard_of(checkpoint, time):
            pytest.fail("it was let through")
        assert f"process {pid} " in (caught.value.found or "")


def test_a_process_that_names_it_is_told_of(checkpoint: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("")
    for script, named in (
        (f"'{checkpoint}/x'; {READER}", True),
        (f"'{checkpoint}-p3'; {READER}", False),
    ):
        with process(script, other) as pid:
            scan = usage_of(LocalStorage(checkpoint), 0).scan
            assert ((pid, None) in [(each.pid, each.open_file) for each in scan.processes]) is named


def test_within_it_no_job_can_take_the_lock(checkpoint: Path, time: Time) -> None:
    lock = lock_path(f"file://{checkpoint}", Path())
    former = Owner("shop", "/nowhere", 12, 5)
    assert fence(lock, former)
    with guard_of(checkpoint, time):
        taken = holder(lock)
        assert taken is not None
        assert (taken.verb, taken.pid, taken.job, taken.term) == ("state erase", os.getpid(), "shop", 5)
        # Looking has not let go of it: a lock of POSIX would be lost with the first file that is closed.
        script = (
            f"import fcntl,os; fcntl.lockf(os.open({str(lock)!r}, os.O_RDWR), fcntl.LOCK_EX|fcntl.LOCK_NB)"
        )
        assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode
        with pytest.raises(Conflict, match="in use by another command"), guard_of(checkpoint, time):
            pytest.fail("two commands at once")
    assert holder(lock) is None
    # An earlier leader is kept away as before.
    assert json.loads(lock.read_text()) == {k: v for k, v in asdict(former).items() if k != "verb"}


@pytest.mark.parametrize("where", ["ck", "."])
def test_a_lock_that_is_held_is_a_refusal_whatever_is_said(where: str, checkpoint: Path, time: Time) -> None:
    """Its own, and that of a job with several queries, whose checkpoints are below the job's."""
    held = (checkpoint.parent / where).resolve()
    with (
        process(LOCKER, lock_path(f"file://{held}", Path())),
        pytest.raises(Conflict, match="in use by another job"),
        guard_of(checkpoint, time),
    ):
        pytest.fail("it was let through")
    assert time.paused == []


def test_a_job_between_two_drivers_is_a_refusal(checkpoint: Path, tmp_path: Path, time: Time) -> None:
    """Nobody holds the lock then, in whatever state home the job is; but its last owner is supervised."""
    home = tmp_path / "another home"
    assert fence(lock_path(f"file://{checkpoint}", Path()), Owner("shop", str(home), 12))
    lock = FileLock(supervisor_lock(home, "shop"))
    assert lock.take()
    with pytest.raises(Conflict, match="a job with a live supervisor") as caught, guard_of(checkpoint, time):
        pytest.fail("it was let through")
    assert "job 'shop' in state home" in (caught.value.found or "")
    lock.release()
    with guard_of(checkpoint, time):
        pass


@pytest.mark.parametrize(
    "plan",
    [
        lambda checkpoint, new: hf.plan_migrate(checkpoint, new, backend="rocksdb"),
        lambda checkpoint, new: savepoints.plan_rescale(checkpoint, new, partitions=3),
    ],
    ids=["migrate", "rescale"],
)
def test_a_rehearsal_refuses_a_checkpoint_that_a_job_holds(
    plan: Callable[[Path, Path], object], checkpoint: Path, tmp_path: Path
) -> None:
    before = files(checkpoint)
    with (
        process(LOCKER, lock_path(f"file://{checkpoint}", Path())),
        pytest.raises(Conflict, match="in use by another job"),
    ):
        plan(checkpoint, tmp_path / "new")
    plan(checkpoint, tmp_path / "new")
    assert files(checkpoint) == before
    assert not (tmp_path / "new").exists()


def test_a_directory_that_cannot_be_written_beside_needs_no_lock(tmp_path: Path) -> None:
    with reserved(tmp_path / "nowhere" / "lock", "rescale"):
        assert not (tmp_path / "nowhere").exists()
    refuse_held(LocalStorage(tmp_path / "nowhere" / "ck"))


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_second_checkpoint_of_a_query_that_goes_on_is_not_left(
    step: str, checkpoint: Path, tmp_path: Path, time: Time
) -> None:
    """The query commits before the new checkpoint is written, or while it is."""
    target = LocalStorage(tmp_path / "new")
    source = ChangeSource(LocalStorage(checkpoint))

    def tell(_done: int, _total: int, what: str) -> None:
        new = (tmp_path / "new" / "_holdfast").exists()
        if (step == "after") == new and (new or what == "hashing"):
            (checkpoint / "offsets" / "99").write_text("v1\n")

    with guard_of(checkpoint, time) as guard:
        plan = planned_rescale(source, target, 3)
        with pytest.raises(Conflict, match="a query still uses the checkpoint"):
            apply_rescale(
                source,
                target,
                plan,
                tmp_path / "work",
                lambda *_: None,
                tell=tell,
                guard=guard,
            )
    assert (checkpoint / "offsets" / "99").exists()
    assert not (tmp_path / "new").exists()


class Swap:
    """A checkpoint and a new one that is to take its place."""

    def __init__(self, folder: Path, time: Time) -> None:
        self.old = golden_on_disk(HEAP, folder / "ck")
        self.new = golden_on_disk("4.2/state-format2", folder / "work" / "checkpoint")
        self.before, self.fresh = files(self.old), files(self.new)
        self.guard = CheckpointGuard(LocalStorage(self.old), time.timing)


def test_an_unused_checkpoint_is_replaced(tmp_path: Path, time: Time) -> None:
    swap = Swap(tmp_path, time)
    replace_checkpoint(swap.old, swap.new, swap.guard)
    assert files(swap.old) == swap.fresh
    assert files(swap.new) == swap.before


def test_what_moved_before_the_exchange_stops_it(tmp_path: Path, time: Time) -> None:
    swap = Swap(tmp_path, time)
    (swap.old / "commits" / "98").write_text("v1\n")
    with pytest.raises(Conflict, match="nothing was changed"):
        replace_checkpoint(swap.old, swap.new, swap.guard)
    assert files(swap.old) == {**swap.before, "commits/98": b"v1\n"}
    assert files(swap.new) == swap.fresh


def test_what_is_written_by_path_after_the_exchange_comes_back_with_the_old_one(
    tmp_path: Path, time: Time
) -> None:
    """A query writes to what is in its place then: the new one."""
    swap = Swap(tmp_path, time)

    def commit() -> None:
        (swap.old / "offsets" / "98").write_text("planned")
        (swap.old / "state" / "0" / "7").mkdir()
        (swap.old / "state" / "0" / "7" / "99.delta").write_text("changes")
        (swap.old / "commits" / "98").write_text("committed")

    time.happens = [commit]
    with pytest.raises(Conflict, match="the old checkpoint was restored, with the files written") as caught:
        replace_checkpoint(swap.old, swap.new, swap.guard)
    assert "commits/98 is new, offsets/98 is new" in (caught.value.found or "")
    assert files(swap.old) == {
        **swap.before,
        "offsets/98": b"planned",
        "state/0/7/99.delta": b"changes",
        "commits/98": b"committed",
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ck", "work"]


def test_what_is_written_through_an_open_file_is_in_the_old_one(tmp_path: Path, time: Time) -> None:
    """A query goes on writing to a file that it had opened before."""
    swap = Swap(tmp_path, time)
    script = (
        "import sys; f=open(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.readline();"
        " f.write('more'); f.flush(); print('open', flush=True); sys.stdin.read()"
    )
    path = swap.old / "commits" / "98"
    path.write_text("")
    swap.guard = CheckpointGuard(LocalStorage(swap.old), time.timing)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()

        def write_on() -> None:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            child.stdout.readline()

        time.happens = [write_on]
        with pytest.raises(Conflict, match="the old checkpoint was restored"):
            replace_checkpoint(swap.old, swap.new, swap.guard)
        child.communicate("")
    assert files(swap.old) == {**swap.before, "commits/98": b"more"}


def test_what_cannot_be_put_together_is_kept_and_named(tmp_path: Path, time: Time) -> None:
    """A query has written over a file of the new one: nobody can say what the old one would have."""
    swap = Swap(tmp_path, time)
    time.happens = [lambda: (swap.old / "metadata").write_text("other")]
    with pytest.raises(Conflict, match="files written to the new one meanwhile are kept in") as caught:
        replace_checkpoint(swap.old, swap.new, swap.guard)
    (kept,) = tmp_path.glob("ck.replaced-*")
    assert str(kept) in caught.value.fact
    assert files(swap.old) == swap.before
    assert files(kept) == {**swap.fresh, "metadata": b"other"}


def test_a_file_of_both_with_other_bytes_is_kept_and_named(tmp_path: Path, time: Time) -> None:
    """One writer reaches the old one, another one the new one, and both commit the same batch."""
    swap = Swap(tmp_path, time)

    def commit() -> None:
        (swap.new / "commits" / "98").write_text("in the old one")
        (swap.old / "commits" / "98").write_text("in the new one")

    time.happens = [commit]
    with pytest.raises(Conflict, match="files written to the new one meanwhile are kept in"):
        replace_checkpoint(swap.old, swap.new, swap.guard)
    (kept,) = tmp_path.glob("ck.replaced-*")
    assert files(swap.old) == {**swap.before, "commits/98": b"in the old one"}
    assert files(kept) == {**swap.fresh, "commits/98": b"in the new one"}


def test_nothing_is_put_behind_a_link_in_the_old_one(tmp_path: Path, time: Time) -> None:
    """Its writer has made a link in the old one, and a file behind that name in the new one."""
    swap, victim = Swap(tmp_path, time), tmp_path / "victim"
    victim.mkdir()

    def attack() -> None:
        (swap.new / "state" / "9").symlink_to(victim)
        (swap.old / "state" / "9").mkdir()
        (swap.old / "state" / "9" / "usercustomize.py").write_text("code")

    time.happens = [attack]
    with pytest.raises(Conflict, match="files written to the new one meanwhile are kept in"):
        replace_checkpoint(swap.old, swap.new, swap.guard)
    (kept,) = tmp_path.glob("ck.replaced-*")
    assert (kept / "state/9/usercustomize.py").read_text() == "code"
    assert list(victim.iterdir()) == []


def test_what_was_written_through_a_file_that_is_closed_again_is_in_the_old_one(
    tmp_path: Path, time: Time
) -> None:
    """No process has it open any more when they are looked at; the old one itself tells."""
    swap = Swap(tmp_path, time)
    (swap.old / "commits" / "98").write_text("")
    swap.guard = CheckpointGuard(LocalStorage(swap.old), time.timing)
    opened = (swap.old / "commits" / "98").open("a")

    def write_on() -> None:
        with opened:
            opened.write("more")

    time.happens = [write_on]
    with pytest.raises(Conflict, match="the old checkpoint was restored") as caught:
        replace_checkpoint(swap.old, swap.new, swap.guard)
    assert "commits/98 has changed" in (caught.value.found or "")
    assert files(swap.old) == {**swap.before, "commits/98": b"more"}


def test_a_process_that_opens_the_new_one_is_a_refusal(tmp_path: Path, time: Time) -> None:
    """It has written nothing yet, and may at any moment: so the new one is not deleted under it."""
    swap = Swap(tmp_path, time)
    with ExitStack() as running:
        pids: list[int] = []
        time.happens = [lambda: pids.append(running.enter_context(process(READER, swap.old / "metadata")))]
        with pytest.raises(Conflict, match="files written to the new one meanwhile are kept in") as caught:
            replace_checkpoint(swap.old, swap.new, swap.guard)
        assert f"process {pids[0]} " in (caught.value.found or "")
    (kept,) = tmp_path.glob("ck.replaced-*")
    assert files(swap.old) == swap.before
    assert files(kept) == swap.fresh


def test_what_is_written_while_the_old_one_comes_back_is_in_it(
    tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query commits to the new one at the last moment: what was added before is linked already."""
    swap = Swap(tmp_path, time)
    exchanged: list[Path] = []

    def exchange_after_a_commit(place: Path, made: Path) -> None:
        if exchanged:
            (place / "commits" / "99").write_text("committed")
        exchanged.append(place)
        exchange(place, made)

    monkeypatch.setattr(checkpoint_swap, "exchange", exchange_after_a_commit)
    time.happens = [lambda: (swap.old / "commits" / "98").write_text("committed")]
    with pytest.raises(Conflict, match="with the files written meanwhile"):
        replace_checkpoint(swap.old, swap.new, swap.guard)
    assert files(swap.old) == {**swap.before, "commits/98": b"committed", "commits/99": b"committed"}
    assert len(exchanged) == 2


def test_an_interrupt_after_the_exchange_takes_it_back(tmp_path: Path, time: Time) -> None:
    swap = Swap(tmp_path, time)

    def interrupt() -> None:
        raise KeyboardInterrupt

    time.happens = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        replace_checkpoint(swap.old, swap.new, swap.guard)
    assert files(swap.old) == swap.before
