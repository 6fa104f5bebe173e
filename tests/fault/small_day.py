"""Two small streams, orders and payments, and what jobs over them must have written at the end.

File `i` of a stream holds ten minutes of event time. Its rows are out of order and up to eight minutes
late, less than the watermark's delay of ten, so they are on time however files are cut into batches.
From file 5 on some rows belong to file `i - 5`: the watermark passed them three files ago. Every file
ends with a row of its last second, so both streams advance together. The last two files hold one row of
the next day, which pushes everything out: even if a kill comes between the first of them and the batch
that it would have pushed out, the second does it.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.formats.logs.table_logs import committed_files

FILES = 8
BATCHES = FILES + 2
WIDTH = dt.timedelta(minutes=10)
DISORDER_S = 8 * 60
LATE_FROM = 5
BOUND = dt.timedelta(minutes=15)
BEGIN = dt.datetime(2026, 3, 2, 8, 0, tzinfo=dt.timezone.utc)
CLOSING = BEGIN + dt.timedelta(days=1)
ACCOUNTS = 7
# What each account has ordered, in the table that `SmallDay.totals` tells of.
TOTALS = "SELECT account, orders, amount FROM totals"
_MARK = b"PAR1"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An order or a payment. `late` rows count only where there is no watermark."""

    id: str
    order_id: str
    account: str
    amount: int
    ts: dt.datetime
    late: bool = False


@dataclass(frozen=True, slots=True)
class SmallDay:
    """The two streams, as files."""

    orders: tuple[tuple[Entry, ...], ...]
    payments: tuple[tuple[Entry, ...], ...]

    @classmethod
    def make(cls, seed: int, rows: int = 25) -> SmallDay:
        """Make the same day for the same seed, with `rows` orders in each file."""
        rng = random.Random(seed)
        orders: list[list[Entry]] = [[] for _ in range(BATCHES)]
        payments: list[list[Entry]] = [[] for _ in range(BATCHES)]
        for file in range(FILES):
            begin = BEGIN + file * WIDTH
            for number in range(rows):
                back = DISORDER_S if file else 0
                ts = begin + dt.timedelta(seconds=rng.randrange(-back, 600))
                order = _order(rng, f"o{file:02d}-{number:02d}", ts)
                orders[file].append(order)
                _pay(rng, payments, order)
            last = begin + WIDTH - dt.timedelta(seconds=1)
            orders[file].append(_order(rng, f"o{file:02d}-end", last))
            payments[file].append(Entry(f"p{file:02d}-end", "none", "a0", 1, last))
            if file >= LATE_FROM:
                _late(rng, orders, payments, file)
        for file in (FILES, FILES + 1):
            orders[file].append(_order(rng, f"o{file:02d}-end", CLOSING))
            payments[file].append(Entry(f"p{file:02d}-end", "none", "a0", 1, CLOSING))
        for entries in (*orders, *payments):
            rng.shuffle(entries)
        return cls(tuple(map(tuple, orders)), tuple(map(tuple, payments)))

    def write(self, folder: Path) -> None:
        """Write both streams as JSON files whose times of modification are in order."""
        for name, files in (("orders", self.orders), ("payments", self.payments)):
            (folder / name).mkdir(parents=True)
            for number, entries in enumerate(files):
                path = folder / name / f"{number:03d}.json"
                path.write_text("".join(_line(entry) for entry in entries))
                os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def copies(self) -> Counter[Row]:
        """All orders, late ones too."""
        return Counter((each.id, each.account, each.amount) for file in self.orders for each in file)

    def totals(self, files: int = BATCHES) -> Counter[Row]:
        """Per account: its orders in the first files and their sum, late ones too."""
        orders = [entry for file in self.orders[:files] for entry in file]
        return Counter(
            (
                account,
                sum(1 for each in orders if each.account == account),
                sum(each.amount for each in orders if each.account == account),
            )
            for account in {each.account for each in orders}
        )

    def changes(self, files: int = BATCHES) -> Counter[Row]:
        """Of each account that is in a file its orders and their sum after that file, late ones too."""
        rows: Counter[Row] = Counter()
        totals: dict[str, tuple[int, int]] = {}
        for file in self.orders[:files]:
            for each in file:
                orders, amount = totals.get(each.account, (0, 0))
                totals[each.account] = (orders + 1, amount + each.amount)
            rows.update((account, *totals[account]) for account in {each.account for each in file})
        return rows

    def windows(self) -> Counter[Row]:
        """Per account and ten minutes: its orders and their sum. The closing window never closes."""
        sums: dict[tuple[str, str], list[int]] = {}
        for each in _on_time(self.orders):
            begin = BEGIN + (each.ts - BEGIN) // WIDTH * WIDTH
            sums.setdefault((_text(begin), each.account), []).append(each.amount)
        return Counter((begin, account, len(all_), sum(all_)) for (begin, account), all_ in sums.items())

    def joined(self) -> Counter[Row]:
        """Each order with each payment of the 15 minutes after it, or with none."""
        rows: Counter[Row] = Counter()
        payments = _on_time(self.payments)
        for order in _on_time(self.orders):
            met = [
                each
                for each in payments
                if each.order_id == order.id and order.ts <= each.ts <= order.ts + BOUND
            ]
            for payment in met:
                rows[order.id, order.amount, _text(order.ts), payment.id, _text(payment.ts)] += 1
            if not met:
                rows[order.id, order.amount, _text(order.ts), None, None] += 1
        return rows

    def met(self) -> Counter[Row]:
        """Each order with each payment of its account in the 15 minutes after it, or with none."""
        rows: Counter[Row] = Counter()
        payments = [each for file in self.payments for each in file if not each.late]
        for number, file in enumerate(self.orders):
            for order in file:
                partners = [] if order.late else [each for each in payments if _meet(order, each)]
                for payment in partners:
                    rows[order.id, order.account, payment.id] += 1
                # Nothing comes after the closing orders that would let them go alone.
                if not partners and not order.late and number < FILES:
                    rows[order.id, order.account, None] += 1
        return rows


def order_one_more(folder: Path) -> Row:
    """Let another file of orders come, after all others."""
    path = folder / "orders" / f"{BATCHES:03d}.json"
    order = Entry("one more", "one more", "a1", 5, CLOSING)
    fresh = folder / path.name
    fresh.write_text(_line(order))
    # It is whole when it appears.
    fresh.rename(path)
    return order.id, order.account, order.amount


def found_in_files(table: Path, *columns: str) -> Counter[Row]:
    """The rows that a streaming query has committed to a directory of Parquet files."""
    return _rows(committed_files(table), columns)


def found_by_globbing(table: Path, *columns: str) -> Counter[Row]:
    """The rows that somebody sees who does not know of the log."""
    return _rows(table.glob("*.parquet"), columns)


def deliver(files: list[Path], folder: Path) -> None:
    """Copy files with their times, by which Spark orders them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)


def found_in_ledger(database: Path, statement: str) -> Counter[Row]:
    """The rows of a query to an SQLite file."""
    import sqlite3

    with closing(sqlite3.connect(database)) as db:
        return Counter(db.execute(statement).fetchall())


def rows_in(file: Path) -> int:
    """The rows of a Parquet file; none if whoever wrote it has not come to its end."""
    import pyarrow.parquet as pq

    # The mark stands at both ends, and alone in a file that was just begun.
    data = file.read_bytes()
    if len(data) <= len(_MARK) or not data.endswith(_MARK):
        return 0
    return int(pq.read_metadata(file).num_rows)


def _rows(files: Iterable[Path], columns: tuple[str, ...]) -> Counter[Row]:
    import pyarrow.parquet as pq

    return Counter(
        tuple(record[column] for column in columns)
        for file in files
        if rows_in(file)
        for record in pq.read_table(file).to_pylist()
    )


def _order(rng: random.Random, name: str, ts: dt.datetime, *, late: bool = False) -> Entry:
    return Entry(name, name, f"a{rng.randrange(ACCOUNTS)}", rng.randrange(1, 1000), ts, late)


def _pay(rng: random.Random, payments: list[list[Entry]], order: Entry) -> None:
    """Pay an order in time, in the last second that counts, too late, or not at all."""
    after = rng.choices((None, rng.randrange(900), 900, 901 + rng.randrange(600)), (25, 55, 10, 10))[0]
    if after is None:
        return
    ts = order.ts + dt.timedelta(seconds=after)
    file = (ts - BEGIN) // WIDTH
    # Near the end of its file it may as well come with the next one.
    if (BEGIN + (file + 1) * WIDTH - ts).total_seconds() < DISORDER_S and rng.random() < 0.5:
        file += 1
    if 0 <= file < FILES:
        payments[file].append(Entry(f"p-{order.id}", order.id, order.account, order.amount, ts))


def _late(rng: random.Random, orders: list[list[Entry]], payments: list[list[Entry]], file: int) -> None:
    begin = BEGIN + (file - LATE_FROM) * WIDTH
    for number in range(3):
        ts = begin + dt.timedelta(seconds=rng.randrange(600))
        orders[file].append(_order(rng, f"o{file:02d}-late{number}", ts, late=True))
    # A payment that would have met an order, had it come in time.
    for order in [each for each in orders[file - LATE_FROM] if not each.late][:2]:
        ts = order.ts + dt.timedelta(seconds=1)
        payments[file].append(Entry(f"p-{order.id}-late", order.id, "a0", 1, ts, late=True))


def _meet(order: Entry, payment: Entry) -> bool:
    return payment.account == order.account and order.ts <= payment.ts <= order.ts + BOUND


def _on_time(files: tuple[tuple[Entry, ...], ...]) -> list[Entry]:
    """What counts in the end: nothing that is late, nor the rows that close the day."""
    return [each for file in files[:FILES] for each in file if not each.late]


def _line(entry: Entry) -> str:
    fields = {
        "id": entry.id,
        "order_id": entry.order_id,
        "account": entry.account,
        "amount": entry.amount,
        "ts": _text(entry.ts),
    }
    return json.dumps(fields) + "\n"


def _text(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
