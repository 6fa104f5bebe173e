"""SIGKILL at every stage of a batch: the final sinks equal a model in plain Python, row for row."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from grid import WHOLE
from process_table import in_group, working_in
from running_job import (
    CONF,
    JOBS,
    BatchLogs,
    RunningJob,
    commit_held_up,
    freeze,
    kill_at,
    running,
    transaction_open,
    until,
)
from small_day import (
    BATCHES,
    FILES,
    TOTALS,
    Row,
    SmallDay,
    found_by_globbing,
    found_in_files,
    found_in_ledger,
    rows_in,
)

from holdfast.formats.logs.table_logs import committed_files
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.model import JobState
from holdfast.stream.sinks.ledger import ledger

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20260302
INSIDE = ("offsets", "sink")
COPIES = JOBS / "copied_orders.py"


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a driver dies.

    Attributes:
        point: `process` (it exists), `java` (Spark is starting), `checkpoint` (its directory is there),
            `offsets` (a batch is in the offset log and not in the commit log) or `sink` (its rows are
            being written).
        batch: The first batch in which a kill at one of the last two may come.
        alone: Whether only the driver's Python dies. Its JVM then has a moment to go on.
    """

    point: str
    batch: int = 0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A job, its points, and its rows as they must be; `columns` are those of a table of files."""

    name: str
    points: tuple[str, ...]
    expected: Callable[[SmallDay], Counter[Row]]
    columns: tuple[str, ...] = ()

    def found(self, out: Path) -> Counter[Row]:
        """The rows of the sink."""
        if self.columns:
            return found_in_files(out / self.name, *self.columns)
        return found_in_ledger(out / "totals.db", TOTALS)

    def plan(self, rng: random.Random) -> list[Kill]:
        """Choose the order, the batches, and how much dies."""
        points = list(self.points)
        rng.shuffle(points)
        # A checkpoint appears once, and only a first driver dies before anything is known of its job.
        points.sort(key=lambda point: point not in ("process", "checkpoint"))
        # Each kill inside a batch gets a stretch of its own; none is in the last two.
        inside = [point for point in points if point in INSIDE]
        stretch = (FILES - 2) // len(inside)
        kills: list[Kill] = []
        for point in points:
            if point in INSIDE:
                first = 1 + stretch * sum(kill.point in INSIDE for kill in kills)
                # After a driver that dies alone the JVM goes on, out of its sink.
                alone = point == "offsets" and rng.random() < 0.5
                kills.append(Kill(point, rng.randrange(first, first + stretch), alone))
            else:
                kills.append(Kill(point, alone=rng.random() < 0.5))
        return kills


CASES = [
    Case("running_totals", ("process", "offsets", "sink", "sink"), SmallDay.totals),
    Case(
        "windows",
        ("checkpoint", "offsets", "sink"),
        SmallDay.windows,
        ("begin", "account", "orders", "amount"),
    ),
    Case(
        "joined",
        ("java", "offsets", "sink"),
        SmallDay.joined,
        ("order_id", "amount", "ordered", "payment_id", "paid"),
    ),
    # Its hot keys are split.
    Case("met", ("offsets", "sink"), SmallDay.met, ("order_id", "account", "payment_id")),
]


class Killer:
    """Watches the disk until a point is reached, and kills there.

    For the points inside a batch everything is frozen first and looked at again: a kill that came a
    moment too late would prove nothing.
    """

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.logs = BatchLogs(folder / "checkpoint")
        self.table = folder / "out" / case.name
        self.database = folder / "out" / "totals.db"
        self.before: set[Path] = set()

    def kill(self, kill: Kill, job: RunningJob, attempt: int) -> None:
        """Wait for a driver, then for its point, and kill it."""
        driver = job.driver(attempt)
        self.before = set(self.table.glob("*.parquet"))
        batch = max(kill.batch, self.logs.newest + 1)
        if kill.point not in INSIDE:
            self._at_start(kill, driver)
        elif kill.point == "sink" and not self.case.columns:
            self._in_transaction(driver, batch)
        elif kill.point == "sink":
            self._in_batch(driver, lambda: self._files_unlisted(batch), alone=kill.alone)
        else:
            self._in_batch(driver, lambda: self._uncommitted(batch), alone=kill.alone)

    def _at_start(self, kill: Kill, driver: int) -> None:
        if kill.point == "java":
            until(lambda: any(each.name == "java" for each in in_group(driver)), "a JVM is starting")
        elif kill.point == "checkpoint":
            until(self.logs.path.exists, "the checkpoint's directory")
        end(driver, alone=kill.alone)

    def _in_batch(self, driver: int, reached: Callable[[], bool], *, alone: bool) -> None:
        point = "the point inside a batch"
        if alone:
            until(reached, point)
            end(driver, alone=True)
        else:
            kill_at(driver, reached, point)

    def _in_transaction(self, driver: int, batch: int) -> None:
        """Keep the ledger's transaction open, and kill within it."""
        until(lambda: self._uncommitted(batch), f"batch {batch} or a later one begins")
        with commit_held_up(self.database):
            until(lambda: transaction_open(self.database), "a transaction that has written")
            end(driver, alone=False)

    def _uncommitted(self, batch: int) -> bool:
        return self.logs.newest >= batch and self.logs.uncommitted

    def _files_unlisted(self, batch: int) -> bool:
        """Whether rows of the newest batch are in the table's directory, and not yet in its log."""
        log = self.table / "_spark_metadata"
        if not self._uncommitted(batch) or (log / str(self.logs.newest)).exists():
            return False
        listed = committed_files(self.table) if log.exists() else []
        return any(rows_in(file) for file in set(self.table.glob("*.parquet")) - self.before - set(listed))


def end(driver: int, *, alone: bool) -> None:
    """SIGKILL for the driver, or for its whole group."""
    (os.kill if alone else os.killpg)(driver, signal.SIGKILL)


def make_day(folder: Path, seed: int) -> SmallDay:
    day = SmallDay.make(seed)
    day.write(folder / "day")
    (folder / "out").mkdir()
    return day


@pytest.mark.parametrize("case", CASES if WHOLE else (CASES[2],), ids=lambda case: f"{case.name}-seed-{SEED}")
def test_a_driver_killed_anywhere_loses_nothing_and_repeats_nothing(case: Case, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} {case.name}")
    kills = case.plan(rng)
    day = make_day(tmp_path, SEED)
    killer = Killer(tmp_path, case)
    with running(JOBS / f"{case.name}.py:{case.name}", tmp_path) as job:
        for attempt, kill in enumerate(kills, start=1):
            killer.kill(kill, job, attempt)
        ended = job.ended()
    assert (ended.code, ended.words) == (0, "")
    assert ended.kinds.count("starting") == len(kills) + 1
    assert ended.kinds.count("restarting") == len(kills)
    assert ("caution" in ended.kinds) == (case.name in ("joined", "met"))  # two streams, two watermarks
    assert killer.logs.offsets == killer.logs.commits
    assert case.found(tmp_path / "out") == case.expected(day), kills
    if case.columns:
        # Who does not know of the log sees rows of the killed batch twice.
        assert found_by_globbing(killer.table, *case.columns) > case.expected(day)
    else:
        written = [each.batch_id for each in ledger(killer.database).history("totals")]
        assert written == list(range(BATCHES))
    assert working_in(tmp_path) == []


@dataclass(frozen=True, slots=True)
class Copies:
    """The job that copies orders to a table, and its folder."""

    folder: Path
    day: SmallDay

    @property
    def logs(self) -> BatchLogs:
        return BatchLogs(self.folder / "checkpoint")

    @property
    def database(self) -> Path:
        return self.folder / "out" / "copies.db"

    @property
    def tokens(self) -> dict[int, int]:
        """By batch, the owner who wrote it."""
        return {each.batch_id: each.token for each in ledger(self.database).history("copies")}

    def run(self) -> AbstractContextManager[RunningJob]:
        return running(COPIES, self.folder)

    def begun(self, batch: int) -> bool:
        return self.logs.newest >= batch and self.logs.uncommitted

    def check(self) -> None:
        """Hold what was written against the day; nothing may still run."""
        assert found_in_ledger(self.database, "SELECT id, account, amount FROM copies") == self.day.copies()
        assert self.logs.offsets == self.logs.commits
        assert sorted(self.tokens) == list(range(BATCHES))
        assert working_in(self.folder) == []


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path, make_day(tmp_path, SEED))


def test_a_driver_without_its_supervisor_ends_its_batch_and_the_next_run_waits_for_it(copies: Copies) -> None:
    with copies.run() as first, ExitStack() as held:
        driver = first.driver()
        until(lambda: copies.begun(2), "batch 2 begins")
        held.enter_context(commit_held_up(copies.database))
        until(lambda: transaction_open(copies.database), "a transaction that has written")
        batch = copies.logs.newest
        first.kill()
        with copies.run() as second:
            second.await_event("waiting")
            assert in_group(driver)
            assert batch not in copies.logs.commits
            held.close()
            ended = second.ended()
        assert in_group(driver) == []
    assert (ended.code, ended.words) == (0, "")
    assert copies.tokens == {each: 1 if each <= batch else 2 for each in range(BATCHES)}
    copies.check()


def test_supervisor_and_driver_killed_together_lose_nothing(copies: Copies) -> None:
    with copies.run() as first:
        driver = first.driver()
        until(lambda: copies.begun(2), "batch 2 begins")
        first.kill()
        end(driver, alone=True)
        with copies.run() as second:
            ended = second.ended()
    assert (ended.code, ended.words) == (0, "")
    copies.check()


def test_a_frozen_driver_is_ended_with_all_that_it_holds(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    with copies.run() as first, ExitStack() as held:
        driver = first.driver()
        until(lambda: copies.begun(2), "batch 2 begins")
        held.enter_context(commit_held_up(copies.database))
        until(lambda: transaction_open(copies.database), "a transaction that has written")
        first.kill()
        freeze(driver)
        held.close()
        monkeypatch.chdir(copies.folder)
        home = copies.folder / "home"
        outcome = Supervisor(
            DriverSpec(str(COPIES), str(home), conf=CONF, master="local[2]"),
            StateHome(home),
            lambda event: events.append(event.kind),
            clock=lambda: time.time_ns() // 1_000_000,
            rng=random.Random(SEED),
            launch=lambda spec: DriverProcess.start(spec, quiet=True),
            orphan_grace_s=0.5,
        ).run()
        # Nobody is left who could be woken.
        assert in_group(driver) == []
    assert (outcome.state, events.count("starting")) == (JobState.FINISHED, 1)
    assert "waiting" in events
    monkeypatch.undo()
    copies.check()
