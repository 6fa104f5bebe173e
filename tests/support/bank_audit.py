"""The bank of `fault/jobs/bank.py` from outside: its transfers, a model of them, and an auditor.

The input follows from a seed. The worth of an account after the first n files, which is its balance and what
is in flight to it, does not depend on batches, timers or kills: a transfer moves its amount from one account
to another. So the state of a committed batch, a savepoint, a fork and the journal are compared with the model
account by account, and the sum over all accounts never changes.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import holdfast as hf

OPENING = 1000
ACCOUNTS = 24
PER_FILE = 20
BEGIN = dt.datetime(2026, 3, 2, 8, 0, tzinfo=dt.timezone.utc)
STEP = dt.timedelta(seconds=5)
WINDOW_S = 30
ENTRIES = ("debit", "hold", "clear")

EARLY = dt.timedelta(seconds=4)

Worth = Counter[str]


class Window(NamedTuple):
    """The transfers that were received in half a minute, and their sum."""

    begin: str
    transfers: int
    amount: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """An amount that goes from one account to another, and when that was confirmed."""

    id: str
    source: str
    target: str
    amount: int
    ts: dt.datetime
    received: dt.datetime


class Town:
    """The transfers of a seed, file by file, and what they come to.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._worth: list[Worth] = [Counter()]
        self._windows: dict[dt.datetime, Window] = {}
        self._windows_of = 0

    def transfers(self, file: int) -> list[Transfer]:
        """The transfers of a file; none is late, whatever batches the files come in."""
        chance = random.Random(f"{self._seed}/{file}")
        made = []
        for number in range(PER_FILE):
            source, target = chance.sample(range(ACCOUNTS), 2)
            ts = BEGIN + STEP * file + dt.timedelta(milliseconds=chance.randrange(-4000, 4000))
            received = ts + dt.timedelta(milliseconds=chance.randrange(1, 3000))
            amount = chance.randrange(1, 200)
            made.append(Transfer(f"{file}-{number}", f"a{source}", f"a{target}", amount, ts, received))
        return made

    def worth(self, files: int) -> Worth:
        """What each account has gained or lost by the first files."""
        with self._lock:
            while len(self._worth) <= files:
                gained = Counter(self._worth[-1])
                for each in self.transfers(len(self._worth) - 1):
                    gained[each.source] -= each.amount
                    gained[each.target] += each.amount
                self._worth.append(gained)
            return self._worth[files]

    def windows(self, count: int) -> list[Window]:
        """The first half minutes of receipt, in order of time, by all transfers that there will ever be."""
        with self._lock:
            while self._whole_windows() < count:
                for each in self.transfers(self._windows_of):
                    begin = each.received.replace(
                        second=each.received.second // WINDOW_S * WINDOW_S, microsecond=0
                    )
                    before = self._windows.get(begin, Window(f"{begin:%Y-%m-%dT%H:%M:%SZ}", 0, 0))
                    self._windows[begin] = Window(
                        before.begin, before.transfers + 1, before.amount + each.amount
                    )
                self._windows_of += 1
            return [self._windows[begin] for begin in sorted(self._windows)[:count]]

    def _whole_windows(self) -> int:
        """The number of windows to which no later file adds."""
        least = BEGIN + STEP * self._windows_of - EARLY
        return sum(begin + dt.timedelta(seconds=WINDOW_S) <= least for begin in self._windows)

    def write(self, folder: Path, file: int) -> None:
        """Write a file of transfers and one of their receipts, each at once."""
        transfers = self.transfers(file)
        orders = [
            {"id": each.id, "source": each.source, "target": each.target, "amount": each.amount}
            | {"ts": each.ts.isoformat()}
            for each in transfers
        ]
        receipts = [{"id": each.id, "received": each.received.isoformat()} for each in transfers]
        for stream, rows in (("receipts", receipts), ("transfers", orders)):
            place = folder / stream
            place.mkdir(parents=True, exist_ok=True)
            beside = place / f".{file:06}"
            beside.write_text("".join(json.dumps(row) + "\n" for row in rows))
            # Spark reads files in the order of their times.
            os.utime(beside, (BEGIN.timestamp() + file,) * 2)
            beside.rename(place / f"{file:06}.json")


def files_read(checkpoint: Path, batch: int) -> int:
    """How many files of the first source a batch and those before it have read, by Spark's own logs."""
    offset = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
    if offset == "-":
        return 0
    # An entry of the source's log has what one batch was given; a compact one has all before it as well.
    newest = int(json.loads(offset)["logOffset"])
    entries: dict[int, Path] = {}
    for entry in (checkpoint / "sources" / "0").iterdir():
        number, _, kind = entry.name.partition(".")
        if number.isdigit() and int(number) <= newest and kind in ("", "compact"):
            entries[int(number)] = entry
    paths: set[str] = set()
    for _, entry in sorted(entries.items(), reverse=True):
        paths.update(json.loads(line)["path"] for line in entry.read_text().splitlines()[1:])
        if entry.suffix == ".compact":
            break
    return len(paths)


def newest_commit(checkpoint: Path) -> int:
    """The newest batch in Spark's commit log; -1 before the first."""
    return max((int(each.name) for each in checkpoint.glob("commits/*") if each.name.isdigit()), default=-1)


@dataclass(frozen=True, slots=True)
class Books:
    """The money that a state has, account by account."""

    balances: dict[str, int]
    pending: dict[str, int]
    paid: int
    sent: int

    @classmethod
    def of(cls, states: hf.StatesAtRest) -> Books:
        """Read them."""

        def column(state: str) -> Iterator[tuple[str, Any]]:
            for row in states.arrow(state).read_all().to_pylist():
                yield row.get("account", row.get("source")), row[state.rpartition(".")[2]]

        pending: Counter[str] = Counter()
        for account, amount in column("accounts.pending"):
            pending[account] += amount
        paid = sum(amount for _, amount in column("accounts.paid"))
        return cls(
            dict(column("accounts.balance")), pending, paid, sum(amount for _, amount in column("desk.sent"))
        )

    def check(self, worth: Worth) -> None:
        """Compare them with the model: the sum, both operators, and each account."""
        held: Worth = Counter()
        for account in {*self.balances, *self.pending}:
            held[account] = self.balances.get(account, OPENING) - OPENING + self.pending.get(account, 0)
        total = sum(held.values())
        assert total == 0, f"{total} too much in all accounts together"
        assert self.paid == self.sent, f"{self.sent} sent by the desk, {self.paid} paid by the accounts"
        wrong = {name: (held[name], worth[name]) for name in {*held, *worth} if held[name] != worth[name]}
        assert not wrong, f"accounts that have something else than the model: {wrong}"


def audit_state(town: Town, checkpoint: Path, batch: int | None = None) -> int:
    """Compare the state of a committed batch with the model; the number of files it has read."""
    states = hf.state(checkpoint, batch)
    books = Books.of(states)
    files = files_read(checkpoint, states.batch)
    books.check(town.worth(files))
    return files


def audit_journal(town: Town, database: Path, checkpoint: Path | None = None) -> int:
    """Compare the journal with the model at an instant; the number of its entries.

    Args:
        town: The model.
        database: The ledger.
        checkpoint: That of the query, which tells what the ledger's newest batch has read; without it, each
            entry is there once at most and the sum is right.
    """
    if not database.exists():
        return 0
    # Like each reader of SQLite, this one may have to roll back what a killed writer has left.
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        connection.execute("BEGIN")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "journal" not in tables:
            return 0
        newest = connection.execute(
            "SELECT query_id, max(batch_id) FROM holdfast_batches WHERE sink = 'accounts' GROUP BY query_id"
        ).fetchall()
        twice = connection.execute(
            "SELECT id, entry FROM journal GROUP BY id, entry HAVING count(*) > 1 LIMIT 10"
        ).fetchall()
        sums = connection.execute(
            "SELECT account, sum(balance + pending), count(*) FROM journal GROUP BY account"
        ).fetchall()
    assert not twice, f"entries that are there more than once: {twice}"
    held: Worth = Counter({account: amount for account, amount, _ in sums})
    total = sum(held.values())
    assert total == 0, f"{total} too much in the journal"
    if checkpoint is not None and newest:
        ((query, batch),) = newest
        metadata = json.loads((checkpoint / "metadata").read_text())
        assert metadata["id"] == query, f"the journal is of query {query}, the checkpoint of {metadata['id']}"
        worth = town.worth(files_read(checkpoint, batch))
        wrong = {name: (held[name], worth[name]) for name in {*held, *worth} if held[name] != worth[name]}
        assert not wrong, f"accounts whose entries come to something else than the model: {wrong}"
    return sum(count for _, _, count in sums)


def audit_volume(town: Town, table: Path) -> int:
    """Each window in the Delta table is whole, right and there once, and none before it is missing.

    Return the number of windows.
    """
    from delta_rows import rows

    if not (table / "_delta_log").is_dir():
        return 0
    found = rows(table, "begin", "transfers", "amount")
    twice = {row: times for row, times in found.items() if times > 1}
    assert not twice, f"windows that are there more than once: {twice}"
    wanted = {tuple(window) for window in town.windows(len(found))}
    assert found.keys() == wanted, (
        f"of {len(found)} windows, these are wrong: {sorted(found.keys() - wanted)[:5]};"
        f" and these are missing: {sorted(wanted - found.keys())[:5]}"
    )
    return len(found)
