"""SIGKILL in the middle of batches of keyed state: output and state are those of a model in plain Python."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cassandra_server import CassandraServer
from grid import WHOLE
from keyed_programs import Model
from keyed_runs import START, clocks, expected, program, write_batch
from killing import Killer
from process_table import working_in
from redis_server import RedisServer
from running_job import JOBS, running, until
from small_day import found_in_files

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261121
KILLS = 10 if WHOLE else 1
COLUMNS = ("who", "what", "last", "total", "recent", "seen", "span", "at")
NAMES = ["ann", "bob", "cyd", "dan", None]
Batches = list[list[dict[str, Any]]]


class Feed:
    """Hands the job one file of a random program after another, and at the end what fires all timers."""

    def __init__(self, folder: Path) -> None:
        self.given: Batches = []
        self._folder = folder
        self._batches = program(SEED, batches=500, events=12)

    def more(self) -> None:
        """The next file."""
        self._give(self._batches[len(self.given)])

    def end(self) -> None:
        """Push the watermark past all timers, and read all states."""
        end = START + len(self.given) * 7_000 + 120_000
        for _ in range(2):
            # What pushes the watermark must come before the reads even where a kill comes between them.
            self._give([{"who": "ann", "op": "add", "n": 1, "ts": end}])
        self._give([{"who": who, "op": "read", "n": 0, "ts": end + 60_000} for who in NAMES])

    def _give(self, batch: list[dict[str, Any]]) -> None:
        write_batch(self._folder, len(self.given), batch)
        self.given.append(batch)


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


def test_a_keyed_job_killed_several_times_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    killed_and_checked(tmp_path, KILLS, {})


@pytest.mark.services
def test_the_same_with_its_rows_in_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    killed_and_checked(tmp_path, max(1, KILLS // 2), {"redis": redis_server.address})
    assert "holdfast:keyed:" in redis_server.ask("KEYS", "*:everything:*")


@pytest.mark.services
def test_the_same_with_its_rows_in_cassandra(tmp_path: Path, cassandra_server: CassandraServer) -> None:
    killed_and_checked(tmp_path, max(1, KILLS // 2), {"cassandra": cassandra_server.address})
    keys = [row.key for row in cassandra_server.ask("SELECT DISTINCT key FROM kills.keyed_blobs")]
    assert keys
    assert all(key.startswith("holdfast:keyed:") and ":everything:" in key for key in keys)


def killed_and_checked(
    tmp_path: Path, kills: int, settings: dict[str, str], *, standby: bool = False
) -> list[str]:
    """Kill drivers and workers, hold the output against the model, and return the kinds of events.

    With a standby driver, each kill waits until it is ready.
    """
    rng = random.Random(SEED)
    feed = Feed(tmp_path / "in")
    feed.more()
    killer = Killer(tmp_path, feed.more)
    (tmp_path / "out").mkdir()
    options = ["--standby"] if standby else []
    with running(JOBS / "keyed.py:keyed", tmp_path, settings=settings, options=options) as job:
        for attempt in range(1, kills + 1):
            if standby:
                job.await_event("standby-ready", attempt)
            killer.kill_driver(job.driver(attempt), rng.randrange(6), again=attempt % 2 == 0)
        killer.kill_workers(job.driver(kills + 1))
        feed.end()
        until(lambda: killer.all_read(len(feed.given)), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert ended.code == 0, ended.words
    # Workers that die take their task along, and with it the query; those that wait are replaced.
    assert ended.kinds.count("starting") in (kills + 1, kills + 2)
    assert len(killer.hit) == kills + 1
    assert killer.logs.offsets == killer.logs.commits
    check(tmp_path, feed.given)
    assert working_in(tmp_path) == []
    return ended.kinds
