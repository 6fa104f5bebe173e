"""SIGKILL while sessions are open: each closes once, with all of its events."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import timely_programs
from grid import WHOLE
from keyed_runs import EPOCH, START, write_batch
from killing import STANDBY, Killer, killed_and_stopped
from process_table import working_in
from running_job import JOBS, until
from small_day import found_in_files

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261124
KILLS = 3 if WHOLE else 1


@STANDBY
def test_a_kill_loses_and_repeats_no_session(tmp_path: Path, standby: bool) -> None:
    rng = random.Random(SEED)
    made = timely_programs.files(SEED, count=400, size=12, start=START)
    given: list[list[dict[str, Any]]] = []

    def more() -> None:
        write_batch(tmp_path / "in", len(given), made[len(given)])
        given.append(made[len(given)])

    more()
    (tmp_path / "out").mkdir()
    killer = Killer(tmp_path, more)

    def finish() -> None:
        given.append(timely_programs.closing(START, 0))
        write_batch(tmp_path / "in", len(given) - 1, given[-1])
        closed = timely_programs.expected_sessions(given).total()
        until(lambda: found(tmp_path).total() >= closed, "all sessions are closed")

    ended = killed_and_stopped(
        JOBS / "tracked.py:tracked", killer, rng, kills=KILLS, files=4, finish=finish, standby=standby
    )
    assert ended.code == 0, ended.words
    assert len(killer.hit) == KILLS
    assert found(tmp_path) == timely_programs.expected_sessions(given)
    assert working_in(tmp_path) == []


def found(folder: Path) -> Counter[Any]:
    """The closed sessions, times in milliseconds."""
    names = ("who", "session_start", "session_end", "events", "total")
    rows = found_in_files(folder / "out" / "tracked", *names)
    return Counter({(who, ms(a), ms(b), n, total): count for (who, a, b, n, total), count in rows.items()})


def ms(time: Any) -> int:
    since = time.replace(tzinfo=EPOCH.tzinfo) - EPOCH
    return int(since.total_seconds() * 1_000)
