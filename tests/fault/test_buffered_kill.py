"""SIGKILL while rows wait in operator state of ever another number of instances: each row comes once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from grid import WHOLE
from keyed_runs import START, write_batch
from killing import Killer
from process_table import working_in
from running_job import JOBS, running, until

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261123
KILLS = 4 if WHOLE else 2


def rows_in(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "out" / "ledger.db")) as connection:
        return sorted(row[0] for row in connection.execute("SELECT n FROM events"))


def test_a_kill_loses_and_repeats_no_row_that_waits(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    files = sent = 0

    def more() -> None:
        nonlocal files, sent
        count = rng.randrange(1, 12)
        write_batch(tmp_path / "in", files, [{"n": sent + at, "ts": START} for at in range(count)])
        files, sent = files + 1, sent + count

    more()
    (tmp_path / "out").mkdir()
    numbers = [2, 3, 1, 4, 2]
    (tmp_path / "instances").write_text(str(numbers[0]), encoding="utf-8")
    killer = Killer(tmp_path, more)
    with running(JOBS / "buffered.py:buffered", tmp_path) as job:
        for attempt in range(1, KILLS + 1):
            driver = job.driver(attempt)
            (tmp_path / "instances").write_text(str(numbers[attempt]), encoding="utf-8")
            killer.kill_driver(driver, rng.randrange(4), again=attempt % 2 == 0)
        job.driver(KILLS + 1)
        more()
        until(lambda: len(rows_in(tmp_path)) >= sent, "all that waits has grown old and is written")
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert len(killer.hit) == KILLS
    assert rows_in(tmp_path) == list(range(sent))
    assert working_in(tmp_path) == []
