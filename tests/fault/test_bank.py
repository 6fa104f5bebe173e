"""A bank whose money never changes: by its state, its savepoints, its forks and its sinks, at every instant.

The long form is `make soak`: hours of the same bank under faults that follow from a seed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bank_audit import BEGIN, STEP, Books, Town, Window, audit_journal, audit_volume, files_read
from bank_faults import FAULTS, chosen, plan
from soak_report import Outcome, page_with

from holdfast.testing import Harness

TESTS = Path(__file__).parents[1]
SOAK = TESTS / "support" / "soak.py"
PLACES = [str(TESTS / name) for name in ("support", "fault", "services")]
SEED = 20261129
FILES = 8


class Branch:
    """The two operators of the job, one behind the other, in harnesses."""

    def __init__(self) -> None:
        spec = importlib.util.spec_from_file_location("bank_job", Path(__file__).parent / "jobs" / "bank.py")
        assert spec is not None
        assert spec.loader is not None
        job = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(job)
        self.desk = Harness(job.Desk(), by="source", events=job.TRANSFERS, output=job.LEGS, time="ts")
        self.accounts = Harness(job.Accounts(), by="account", events=job.LEGS, output=job.ENTRIES, time="ts")

    def take(self, town: Town, file: int, lost: int = 0) -> list[dict[str, Any]]:
        """Take a file as a batch; so many legs are lost between the two. The entries of the journal."""
        events = [
            {
                "id": each.id,
                "source": each.source,
                "target": each.target,
                "amount": each.amount,
                "ts": each.ts,
            }
            for each in town.transfers(file)
        ]
        legs = self.desk.send(*events)
        entries = list(self.accounts.send(*legs[lost:]))
        for harness in (self.desk, self.accounts):
            entries += harness.watermark(BEGIN + STEP * file - STEP * 2)
        return entries

    def books(self) -> Books:
        """The money that the two hold."""
        states = {name: self.accounts.state(name) for (name,) in [*self.accounts.keys()]}
        return Books(
            {name: state["balance"] for name, state in states.items()},
            {name: sum(state["pending"].values()) for name, state in states.items()},
            sum(state["paid"] for state in states.values()),
            sum(self.desk.state(name)["sent"] for (name,) in [*self.desk.keys()]),
        )


def test_money_in_accounts_and_in_flight_is_the_same_after_batches(tmp_path: Path) -> None:
    town, branch, journal = Town(SEED), Branch(), tmp_path / "journal.db"
    entries: Counter[str] = Counter()
    for file in range(FILES):
        rows = branch.take(town, file)
        note(journal, rows)
        entries.update(row["entry"] for row in rows)
        assert audit_journal(town, journal) == entries.total()
    branch.books().check(town.worth(FILES))
    assert entries["debit"] == entries["hold"] == FILES * 20
    assert 0 < entries["clear"] < FILES * 20


def test_the_auditor_sees_a_lost_leg_and_an_entry_that_is_there_twice(tmp_path: Path) -> None:
    town, branch, journal = Town(SEED), Branch(), tmp_path / "journal.db"
    rows = branch.take(town, 0)
    books = branch.books()
    books.check(town.worth(1))
    with pytest.raises(AssertionError, match="accounts that have something else than the model"):
        books.check(town.worth(2))
    note(journal, rows)
    note(journal, rows[:1])
    with pytest.raises(AssertionError, match="more than once"):
        audit_journal(town, journal)
    branch.take(town, 1, lost=1)
    with pytest.raises(AssertionError, match="too much in all accounts together"):
        branch.books().check(town.worth(2))


def test_a_seed_gives_the_same_faults_again_and_each_comes_in_every_round() -> None:
    first, again = (list(islice(plan(SEED), 3 * len(FAULTS))) for _ in range(2))
    assert first == again
    assert [each.number for each in first] == list(range(len(first)))
    for start in range(0, len(first), len(FAULTS)):
        assert {each.name for each in first[start : start + len(FAULTS)]} == set(FAULTS)
    assert first != list(islice(plan(SEED + 1), len(first)))


def test_faults_are_chosen_by_number_or_by_name() -> None:
    numbers = chosen(plan(SEED), "3,17")
    assert [each.number for each in numbers] == [3, 17]
    names = list(islice(chosen(plan(SEED), "restart"), 3))
    assert {each.name for each in names} == {"restart"}
    for words in ("restart,reboot", "restart,3"):
        with pytest.raises(ValueError, match="faults"):
            chosen(plan(SEED), words)


def test_windows_are_those_of_all_transfers() -> None:
    town, sums = Town(SEED), Counter[str]()
    for file in range(40):
        for each in town.transfers(file):
            half = each.received.second // 30 * 30
            sums[f"{each.received:%Y-%m-%dT%H:%M}:{half:02}Z"] += each.amount
    windows = town.windows(6)
    assert [window.begin for window in windows] == sorted(sums)[:6]
    assert [window.amount for window in windows] == [sums[window.begin] for window in windows]


def test_the_auditor_sees_a_window_that_is_wrong_missing_or_there_twice(tmp_path: Path) -> None:
    town = Town(SEED)
    first, second, third = town.windows(3)
    wrong = {
        "wrong": [first, second._replace(amount=second.amount + 1)],
        "missing": [first, third],
        "more than once": [first, second, second],
    }
    for number, (problem, windows) in enumerate(wrong.items()):
        with pytest.raises(AssertionError, match=problem):
            audit_volume(town, volume(tmp_path / str(number), windows))
    assert audit_volume(town, volume(tmp_path / "right", [second, first, third])) == 3


def test_files_of_a_batch_are_counted_with_compact_entries(tmp_path: Path) -> None:
    sources, offsets = tmp_path / "sources" / "0", tmp_path / "offsets"
    sources.mkdir(parents=True)
    offsets.mkdir()
    for entry in range(25):
        first = 0 if entry % 10 == 9 else entry
        lines = [json.dumps({"path": f"in/{file}.json"}) for file in range(first, entry + 1)]
        name = f"{entry}.compact" if entry % 10 == 9 else str(entry)
        (sources / name).write_text("\n".join(["v1", *lines]))
        (offsets / str(entry)).write_text(f'v1\n{{}}\n{{"logOffset":{entry}}}')
    for file in range(9):
        (sources / str(file)).unlink()
    assert [files_read(tmp_path, batch) for batch in (9, 12, 19, 24)] == [10, 13, 20, 25]


def test_a_report_adds_a_row_and_keeps_what_people_wrote() -> None:
    page = "# Soak\n\nBy hand.\n\n## What was run\n\n| Date | What |\n|---|---|\n\n## Looked at\n\n- This.\n"
    once = page_with(page, Outcome("make soak SEED=1", "abc", 60, 3))
    twice = page_with(once, Outcome("make soak SEED=2", "abc", 60, 3, error=AssertionError("a | b\nc")))
    table = twice.partition("## What was run")[2].partition("## ")[0]
    assert ["SEED=1" in line for line in table.splitlines() if "make soak" in line] == [True, False]
    assert "failed: a / b c" in table
    assert twice.count("## The newest run") == 1
    assert "SEED=1" not in twice.partition("## The newest run")[2]
    assert "By hand." in twice
    assert twice.endswith("## Looked at\n\n- This.\n")


@pytest.mark.fault
@pytest.mark.spark
@pytest.mark.parametrize("faults", ["kill_driver", "rescale,restore,damage,upgrade"])
def test_the_money_is_the_same_through_faults(faults: str, tmp_path: Path) -> None:
    names = faults.split(",")
    numbers = [str(each.number) for each in islice(plan(SEED), len(FAULTS)) if each.name in names]
    program = [sys.executable, str(SOAK), "--seed", str(SEED), "--hours", "1", "--no-report"]
    done = subprocess.run(
        [*program, "--faults", ",".join(numbers), "--folder", str(tmp_path / "soak")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*PLACES, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"| faults | {len(names)} |" in done.stdout


def note(journal: Path, rows: list[dict[str, Any]]) -> None:
    """Append entries to a journal, as the sink does."""
    with closing(sqlite3.connect(journal)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS journal (id, account, entry, balance, pending)")
        database.execute("CREATE TABLE IF NOT EXISTS holdfast_batches (sink, query_id, batch_id)")
        database.executemany("INSERT INTO journal VALUES (:id, :account, :entry, :balance, :pending)", rows)


def volume(table: Path, windows: list[Window]) -> Path:
    """Write a Delta table of these rows."""
    (table / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([window._asdict() for window in windows]), table / "rows.parquet")
    (table / "_delta_log" / f"{0:020}.json").write_text('{"add": {"path": "rows.parquet"}}\n')
    return table
