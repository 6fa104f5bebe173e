"""Work on many files: its share of a machine whose seconds are counted by hand, and its end at a failure."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.savepoints.copying import Pace, each, seems_to_run
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage


class Machine:
    """A clock, and a thread's use of a processor."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used = 7.0
        self.pauses: list[float] = []

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds

    def steps(self, pace: Pace, count: int, seconds: float) -> None:
        for _ in range(count):
            self.work(seconds)
            pace.step()

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def pace(self, share: float, processors: int, longest_s: float = 10.0) -> Pace:
        return Pace(
            share, processors, longest_s, used=lambda: self.used, clock=lambda: self.now, pause=self.pause
        )


def test_a_thread_gets_its_share_of_all_processors() -> None:
    machine = Machine()
    machine.steps(machine.pace(0.05, processors=2), 4, 0.03)
    # A tenth of one processor: 0.03 s of work, and 0.27 s of pause.
    assert machine.pauses == pytest.approx([0.27] * 4)


def test_short_pauses_are_made_in_one() -> None:
    machine = Machine()
    machine.steps(machine.pace(0.1, processors=1), 12, 0.006)
    # 0.054 s are owed for each 0.006 s of work; four of them are worth a pause.
    assert machine.pauses == pytest.approx([0.216] * 3)


def test_time_that_was_waited_for_a_disk_counts_as_a_pause() -> None:
    machine = Machine()
    pace = machine.pace(0.1, processors=1)
    machine.work(0.02)
    machine.now += 0.5
    pace.step()
    assert machine.pauses == []


def test_many_processors_need_no_pauses() -> None:
    machine = Machine()
    pace = machine.pace(0.06, processors=32)
    machine.work(3.0)
    pace.step()
    assert machine.pauses == []


def test_all_pauses_together_have_a_bound() -> None:
    machine = Machine()
    told: list[tuple[int, int, str]] = []
    tell = machine.pace(0.05, processors=1, longest_s=1.0).before(lambda *each: told.append(each))
    for done in range(3):
        machine.work(0.04)
        tell(done, 3, "hashing")
    assert machine.pauses == pytest.approx([0.76, 0.24])
    assert told == [(0, 3, "hashing"), (1, 3, "hashing"), (2, 3, "hashing")]


def test_a_query_seems_to_run_while_its_batches_are_young(tmp_path: Path) -> None:
    checkpoint = LocalStorage(tmp_path)
    assert not seems_to_run(checkpoint, 1_000_000)
    checkpoint.write("offsets/0", b"v1")
    checkpoint.write("offsets/1", b"v1")
    os.utime(tmp_path / "offsets/0", (900, 900))
    os.utime(tmp_path / "offsets/1", (941, 941))
    assert seems_to_run(checkpoint, 1_000_000)
    assert not seems_to_run(checkpoint, 1_002_000)
    elsewhere = MemoryStorage()
    elsewhere.write("offsets/0", b"v1")
    assert not seems_to_run(elsewhere, 0)


def test_the_first_failure_skips_the_items_that_have_not_begun_and_awaits_the_others() -> None:
    """Of two workers, the one whose item failed may begin a third item before the rest is skipped."""
    begun, finished = [], []
    second, released = threading.Event(), threading.Event()

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            second.wait()
            # The rest is skipped within microseconds of the failure.
            threading.Timer(0.2, released.set).start()
            raise OSError("no space left")
        second.set()
        released.wait()
        finished.append(item)

    with pytest.raises(OSError, match="no space left"):
        each(work, range(9), workers=2)
    assert {0, 1} <= set(begun) <= {0, 1, 2}
    assert set(finished) == set(begun) - {0}
