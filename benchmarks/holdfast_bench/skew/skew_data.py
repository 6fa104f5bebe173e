"""The events of the skew measurements: with one hot key, and with all keys alike."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

EVENTS = "user long, amount long, ts timestamp"
OFFERS = "user long, offer long, since timestamp"
HOT = 0
SHARE = 0.5

# 2026-01-01; the times only have to be plausible, and all within the bound of the join.
_EPOCH_US = 1_767_225_600_000_000
_SPAN_US = 600_000_000
_OFFERS_OF_A_USER = 2
# In so many batches the JVM compiles: a job in production has done so long ago.
WARMING = 2
_ROW_GROUPS = 16


@dataclass(frozen=True, slots=True)
class Events:
    """Where the rows of one measurement are; a file of events is a batch.

    Attributes:
        events: The many rows.
        offers: The few rows that they are joined with, one file, read with the first batch.
    """

    events: Path
    offers: Path


def write(folder: Path, *, rows: int, batches: int, keys: int, hot: bool, seed: int = 1) -> Events:
    """Write `batches` files with `rows` events together, after those that are not counted.

    The first has a row for each of a hundred keys: the offers come with it, so that all of these are in
    the state when events come. `WARMING` more are like the counted ones. With `hot` one key has half of
    the events.
    """
    random = np.random.default_rng(seed)
    made = Events(folder / "events", folder / "offers")
    for each in (made.events, made.offers):
        each.mkdir(parents=True)
    _write(made.events, 0, np.arange(min(keys, 100)), "amount", "ts", random)
    for number in range(1, 1 + WARMING + batches):
        size = rows // batches
        users = random.integers(0, keys, size)
        if hot:
            users[random.random(size) < SHARE] = HOT
        _write(made.events, number, users, "amount", "ts", random)
    _write(made.offers, 0, np.repeat(np.arange(keys), _OFFERS_OF_A_USER), "offer", "since", random)
    return made


def _write(
    folder: Path, number: int, users: NDArray[np.int64], value: str, time: str, random: np.random.Generator
) -> None:
    times = _EPOCH_US + random.integers(0, _SPAN_US, len(users))
    table = pa.table(
        {
            "user": pa.array(users, pa.int64()),
            value: pa.array(random.integers(0, 1000, len(users)), pa.int64()),
            time: pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )
    path = folder / f"{number:05}.parquet"
    # A task reads whole row groups.
    pq.write_table(table, path, row_group_size=max(1, -(-len(users) // _ROW_GROUPS)))
    # Spark takes the files of a folder by their time of change.
    seconds = _EPOCH_US // 1_000_000 + number
    os.utime(path, (seconds, seconds))
