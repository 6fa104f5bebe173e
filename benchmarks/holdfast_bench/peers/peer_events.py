"""The events of `holdfast bench peers` as files, and the number of alerts that every side must find."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

SCHEMA: Final = "user long, amount double"
USERS: Final = 50_000
HALVES: Final = (0, 1)
# 2026-01-01; Spark takes the files of a folder by their time of change.
_EPOCH_S: Final = 1_767_225_600


def write(folder: Path, *, rows: int, batches: int, users: int = USERS, seed: int = 5) -> int:
    """Write the events and return the expected number of alerts.

    Amounts are quarters, so sums of them are exact in any order.

    Args:
        folder: Gets `parquet` with one file per batch; `halves/0` and `halves/1` with the same events and a
            time, split by the parity of the user as two partitions of a log would be; the same as text in
            `rows/0` and `rows/1`; and `csv` with one file per half.
        rows: Events per batch.
        batches: The number of batches.
        users: Number of users; each event draws one of them.
        seed: The seed of the random numbers.
    """
    random = np.random.default_rng(seed)
    tables = []
    for _ in range(batches):
        amounts = np.ceil(random.exponential(40, rows)) / 4
        tables.append(pa.table({"user": random.integers(0, users, rows), "amount": amounts}))
    write_tables(folder, tables)
    return count_alerts(
        (user, amount)
        for table in tables
        for user, amount in zip(table["user"].to_pylist(), table["amount"].to_pylist(), strict=True)
    )


def write_tables(folder: Path, tables: list[pa.Table]) -> None:
    """Write one table of users and amounts per batch, in all layouts that `write` describes."""
    for name in ("parquet", "csv", "halves/0", "halves/1", "rows/0", "rows/1"):
        (folder / name).mkdir(parents=True)
    first = 0
    for number, table in enumerate(tables):
        path = folder / "parquet" / f"{number:05}.parquet"
        pq.write_table(table, path)
        os.utime(path, (_EPOCH_S + number, _EPOCH_S + number))
        times = pa.array(_EPOCH_S * 1_000_000 + np.arange(first, first + len(table)), pa.timestamp("us"))
        first += len(table)
        for half in HALVES:
            part = _half(table.append_column("at", times), half)
            pq.write_table(part, folder / "halves" / str(half) / path.name)
            text = part.set_column(2, "at", part["at"].cast(pa.int64()))
            pc.write_csv(text, folder / "rows" / str(half) / f"{number:05}.csv")
    everything = pa.concat_tables(tables)
    for half in HALVES:
        options = pc.WriteOptions(include_header=False)
        pc.write_csv(_half(everything, half), folder / "csv" / f"{half}.csv", options)


def count_alerts(events: Iterable[tuple[int, float]]) -> int:
    """Count the events whose amount exceeds three times the average of the user's earlier amounts."""
    totals: dict[int, tuple[int, float]] = {}
    alerts = 0
    for user, amount in events:
        n, total = totals.get(user, (0, 0.0))
        alerts += bool(n and amount * n > 3 * total)
        totals[user] = (n + 1, total + amount)
    return alerts


def _half(table: pa.Table, half: int) -> pa.Table:
    return table.filter(pa.array(table["user"].to_numpy() % 2 == half))
