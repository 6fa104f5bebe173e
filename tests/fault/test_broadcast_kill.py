"""SIGKILL while rules change: every event is checked by the rules of its batch, once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from broadcast_programs import Event, events_and_rules, expected, read_in
from grid import WHOLE
from keyed_runs import START, write_batch
from killing import STANDBY, Killer, killed_and_stopped
from process_table import working_in
from running_job import JOBS, BatchLogs, until
from small_day import found_in_files

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 20261122
KILLS = 3 if WHOLE else 1
Files = list[tuple[list[Event], list[Event]]]


def all_read(logs: BatchLogs, files: int) -> bool:
    return not logs.uncommitted and read_in(logs.path)[-1] == (files, files)


@STANDBY
def test_a_kill_between_rules_and_events_changes_nothing(tmp_path: Path, standby: bool) -> None:
    rng = random.Random(SEED)
    files = events_and_rules(SEED, batches=200, size=30, start=START)
    given: Files = []

    def more() -> None:
        events, rules = files[len(given)]
        write_batch(tmp_path / "in" / "rules", len(given), rules)
        write_batch(tmp_path / "in" / "events", len(given), events)
        given.append((events, rules))

    more()
    (tmp_path / "out").mkdir()
    killer = Killer(tmp_path, more)

    def finish() -> None:
        more()
        until(lambda: all_read(killer.logs, len(given)), "all is read")

    ended = killed_and_stopped(
        JOBS / "alerts.py:alerts", killer, rng, kills=KILLS, files=6, finish=finish, standby=standby
    )
    assert ended.code == 0, ended.words
    assert len(killer.hit) == KILLS
    assert killer.logs.offsets == killer.logs.commits
    wanted = sum(expected(tmp_path / "checkpoint", given).values(), Counter())
    assert wanted
    assert found_in_files(tmp_path / "out" / "alerts", "who", "rule", "least", "seen") == wanted
    assert working_in(tmp_path) == []
