"""Kill a job's driver, or its Python workers, at a chosen point of a batch."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from grid import WHOLE
from keyed_runs import clocks
from process_table import working_in
from running_job import BatchLogs, Ended, freeze, running, until

# Tests of kills are run with a standby driver too where there is time for it.
STANDBY = pytest.mark.parametrize(
    "standby",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")),
    ],
)


class Killer:
    """Kills a driver, or the Python workers of one, at a chosen point of a batch.

    The point is how many files the batch has brought: state, copies of it, output. All is frozen first
    and looked at again, because a kill that comes after the commit would prove nothing.

    Args:
        folder: Where the job works; its state is in `checkpoint`, its output in `out`.
        more: Gives the job something to read.
    """

    def __init__(self, folder: Path, more: Callable[[], None]) -> None:
        self.folder = folder
        self.more = more
        self.logs = BatchLogs(folder / "checkpoint")
        self.hit: list[tuple[int, int]] = []

    def all_read(self, files: int) -> bool:
        """Whether so many files, and no more, have come in batches that are committed."""
        return not self.logs.uncommitted and clocks(self.logs.path)[-1][2] == files

    def kill_driver(self, driver: int, files: int, *, again: bool) -> None:
        """Kill a driver with all that belongs to it, maybe in the batch in which the one before died."""
        self._in_batch(driver, max(1, files) if again else files, again=again)
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

    def _in_batch(self, driver: int, files: int, *, again: bool = False) -> None:
        """Wait until a batch has brought so many files, and freeze the driver there."""
        batch = self.logs.newest + (0 if again else 1)
        while True:
            self.more()
            self._begun(batch)
            number = self.logs.newest
            reached = self._brought(files)
            self._go_on(number, reached)
            freeze(driver)
            if self._open(number) and self.logs.newest == number and reached():
                self.hit.append((number, files))
                return
            os.killpg(driver, signal.SIGCONT)
            batch = number + 1

    def _begun(self, batch: int) -> None:
        until(lambda: self.logs.newest >= batch, f"batch {batch} or a later one begins")

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


def killed_and_stopped(
    program: Path | str,
    killer: Killer,
    rng: random.Random,
    *,
    kills: int,
    files: int,
    finish: Callable[[], None],
    standby: bool = False,
) -> Ended:
    """Kill one driver of a job after another, let the next one finish, and ask the job to stop.

    Args:
        program: The job.
        killer: Watches the folder in which the job works.
        rng: Chooses the points, up to so many files into a batch.
        kills: How many drivers die; every second one in the batch in which the one before died.
        files: One more than the most files after which one dies.
        finish: Gives the last driver what is left to read, and waits until that is done.
        standby: Whether each kill waits for a standby driver, which then takes over.
    """
    with running(program, killer.folder, options=["--standby"] if standby else []) as job:
        for attempt in range(1, kills + 1):
            if standby:
                job.await_event("standby-ready", attempt)
            killer.kill_driver(job.driver(attempt), rng.randrange(files), again=attempt % 2 == 0)
        job.driver(kills + 1)
        finish()
        os.kill(job.pid, signal.SIGTERM)
        return job.ended()


def forked(folder: Path) -> Iterator[int]:
    """Spark's Python workers: what its daemon has forked."""
    daemons = {}
    for pid in working_in(folder):
        with suppress(OSError):
            if b".daemon" in (Path("/proc") / str(pid) / "cmdline").read_bytes():
                stat = (Path("/proc") / str(pid) / "stat").read_text()
                daemons[pid] = int(stat.rpartition(")")[2].split()[1])
    return (pid for pid, parent in daemons.items() if parent in daemons)
