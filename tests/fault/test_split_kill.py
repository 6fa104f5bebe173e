"""SIGKILL while hot keys are split: what is taken together before the shuffle counts once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from keyed_runs import START, batches_read, write_batch
from killing import STANDBY, Killer, killed_and_stopped
from process_table import working_in
from running_job import JOBS, until
from small_day import found_in_files
from split_programs import batches, expected

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261123
KILLS = 5 if WHOLE else 1
COLUMNS = ("who", "n", "total", "least", "average", "items", "kinds")


@STANDBY
def test_a_kill_loses_and_repeats_no_part_of_a_hot_key(tmp_path: Path, standby: bool) -> None:
    rng = random.Random(SEED)
    files = [batch for batch in batches(SEED, count=200, size=120, start=START) if batch]
    given: list[list[dict[str, Any]]] = []

    def more() -> None:
        write_batch(tmp_path / "in", len(given), files[len(given)])
        given.append(files[len(given)])

    more()
    (tmp_path / "out").mkdir()
    killer = Killer(tmp_path, more)

    def finish() -> None:
        more()
        until(lambda: killer.all_read(len(given)), "all is read")

    job = JOBS / "baskets.py:baskets"
    ended = killed_and_stopped(job, killer, rng, kills=KILLS, files=6, finish=finish, standby=standby)
    assert ended.code == 0, ended.words
    assert len(killer.hit) == KILLS
    assert killer.logs.offsets == killer.logs.commits
    read = [events for _, _, events in batches_read(tmp_path / "checkpoint", given)]
    wanted = Counter(row for rows in expected(read) for row in rows)
    assert max(row[1] for row in wanted) > 50
    assert found_in_files(tmp_path / "out" / "baskets", *COLUMNS) == wanted
    assert working_in(tmp_path) == []
