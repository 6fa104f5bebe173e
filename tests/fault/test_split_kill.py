"""SIGKILL while hot keys are split: what is taken together before the shuffle counts once."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from keyed_runs import START, clocks, write_batch
from killing import Killer
from running_job import JOBS, BatchLogs, running, until, working_in
from small_day import found_in_files
from split_programs import batches, expected

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261123
KILLS = 5 if WHOLE else 1
COLUMNS = ("who", "n", "total", "least", "average", "items", "kinds")


def all_read(logs: BatchLogs, files: int) -> bool:
    return not logs.uncommitted and clocks(logs.path)[-1][2] == files


def test_a_kill_loses_and_repeats_no_part_of_a_hot_key(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    files = [batch for batch in batches(SEED, count=200, size=120, start=START) if batch]
    given: list[list[dict[str, Any]]] = []

    def more() -> None:
        write_batch(tmp_path / "in", len(given), files[len(given)])
        given.append(files[len(given)])

    more()
    (tmp_path / "out").mkdir()
    killer = Killer(tmp_path, more)
    with running(JOBS / "baskets.py:baskets", tmp_path) as job:
        for attempt in range(1, KILLS + 1):
            killer.kill_driver(job.driver(attempt), rng.randrange(6), again=attempt % 2 == 0)
        job.driver(KILLS + 1)
        more()
        until(lambda: all_read(killer.logs, len(given)), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert len(killer.hit) == KILLS
    assert killer.logs.offsets == killer.logs.commits
    read = [0, *(files for _, _, files in clocks(tmp_path / "checkpoint"))]
    of_batches = [[event for file in given[begin:end] for event in file] for begin, end in pairwise(read)]
    wanted = Counter(row for rows in expected(of_batches) for row in rows)
    assert max(row[1] for row in wanted) > 50
    assert found_in_files(tmp_path / "out" / "baskets", *COLUMNS) == wanted
    assert working_in(tmp_path) == []
