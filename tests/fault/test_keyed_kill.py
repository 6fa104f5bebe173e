"""SIGKILL in the middle of batches of keyed state: output and state are those of a model in plain Python."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from keyed_programs import Model
from keyed_runs import START, clocks, expected, program, write_batch
from running_job import JOBS, BatchLogs, RunningJob, freeze, running, until, working_in
from small_day import found_in_files

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261121
KILLS = 10
COLUMNS = ("who", "what", "last", "total", "recent", "seen", "span", "at")
NAMES = ["ann", "bob", "cyd", "dan", None]
Batches = list[list[dict[str, Any]]]


def day(seed: int) -> Batches:
    """Enough batches for all kills, however far a driver comes before one; then all timers fire."""
    batches = program(seed, batches=7 * KILLS, events=12)
    end = START + len(batches) * 7_000 + 120_000
    push = [{"who": "ann", "op": "add", "n": 1, "ts": end}]
    # What pushes the watermark must come before the reads even where a kill comes between them.
    reads = [{"who": who, "op": "read", "n": 0, "ts": end + 60_000} for who in NAMES]
    return [*batches, push, push, reads]


class Killer:
    """Kills a driver, or the Python workers of one, at a chosen point of a batch.

    The point is how many files the batch has brought: state, copies of it, output. All is frozen first
    and looked at again, because a kill that comes after the commit would prove nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = BatchLogs(folder / "checkpoint")
        self.hit: list[tuple[int, int]] = []

    def kill_driver(self, driver: int, files: int) -> None:
        """Kill a driver with all that belongs to it."""
        self._in_batch(driver, files)
        os.killpg(driver, signal.SIGKILL)

    def kill_workers(self, driver: int) -> None:
        """Kill the processes that run the processor, and nothing else."""
        while True:
            self._in_batch(driver, 0)
            workers = list(forked(self.folder))
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.killpg(driver, signal.SIGCONT)
            if workers:
                return

    def _in_batch(self, driver: int, files: int) -> None:
        """Wait until a later batch has brought so many files, and freeze the driver there."""
        batch = self.logs.newest + 1
        while True:
            until(lambda: self._open(batch), f"batch {batch} or a later one begins")
            number = self.logs.newest
            reached = self._brought(files)
            self._go_on(number, reached)
            freeze(driver)
            if self._open(number) and self.logs.newest == number and reached():
                self.hit.append((number, files))
                return
            os.killpg(driver, signal.SIGCONT)

    def _go_on(self, number: int, reached: Callable[[], bool]) -> None:
        until(lambda: reached() or not self._open(number), f"batch {number} goes on")

    def _brought(self, files: int) -> Callable[[], bool]:
        """Whether there are so many more files than now."""
        before = set(self._files())
        return lambda: len(set(self._files()) - before) >= files

    def _open(self, batch: int) -> bool:
        return self.logs.newest >= batch and self.logs.uncommitted

    def _files(self) -> Iterator[Path]:
        for place in (self.logs.path / "state", self.folder / "out"):
            yield from place.rglob("*")


def forked(folder: Path) -> Iterator[int]:
    """Spark's Python workers: what its daemon has forked."""
    daemons = {}
    for pid in working_in(folder):
        with suppress(OSError):
            if b"pyspark.daemon" in (Path("/proc") / str(pid) / "cmdline").read_bytes():
                stat = (Path("/proc") / str(pid) / "stat").read_text()
                daemons[pid] = int(stat.rpartition(")")[2].split()[1])
    return (pid for pid, parent in daemons.items() if parent in daemons)


def check(folder: Path, batches: Batches) -> None:
    """Hold the table against the model, with the clocks of the batches as Spark has logged them."""
    model = Model()
    wanted = expected(folder / "checkpoint", batches, model.batch)
    rows = Counter(row for each in wanted.values() for answers in each.values() for row in answers)
    assert found_in_files(folder / "out" / "answers", *COLUMNS) == rows
    # The last rows are a read of every state of every key, after every timer has fired.
    assert sum(row[1] == "read" for row in wanted[last_with_data(folder)][None]) == 1
    assert not any(name == "event" for key in model.keys.values() for name, _ in key.timers)
    assert model.late


def last_with_data(folder: Path) -> int:
    reads = [read for _, _, read in clocks(folder / "checkpoint")]
    return reads.index(reads[-1])


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    made = day(SEED)
    for number, batch in enumerate(made):
        write_batch(tmp_path / "in", number, batch)
    (tmp_path / "out").mkdir()
    return made


def killed(job: RunningJob, killer: Killer, rng: random.Random, kills: int) -> None:
    for attempt in range(1, kills + 1):
        killer.kill_driver(job.driver(attempt), rng.randrange(6))


def test_a_keyed_job_killed_ten_times_loses_nothing_and_repeats_nothing(
    batches: Batches, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    killer = Killer(tmp_path)
    with running(JOBS / "keyed.py:keyed", tmp_path) as job:
        killed(job, killer, rng, KILLS)
        killer.kill_workers(job.driver(KILLS + 1))
        ended = job.ended()
    assert ended.code == 0, ended.words
    # Workers that die take their task along, and with it the query; those that wait are replaced.
    assert ended.kinds.count("starting") in (KILLS + 1, KILLS + 2)
    assert len(killer.hit) == KILLS + 1
    assert killer.logs.offsets == killer.logs.commits
    check(tmp_path, batches)
    assert working_in(tmp_path) == []
