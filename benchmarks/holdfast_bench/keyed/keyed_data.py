"""The events of the keyed measurements: the same files for every side, made from a seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

SCHEMA = "user long, amount double, ts timestamp"
# After as many, every kind of operator is due for a snapshot: Spark takes the first one at version 1 or 10,
# and the next ten later.
LOAD_BATCHES = 11

_ARROW = pa.schema([("user", pa.int64()), ("amount", pa.float64()), ("ts", pa.timestamp("us", tz="UTC"))])
# 2026-01-01; the times only have to be plausible.
_EPOCH_S = 1_767_225_600


@dataclass(frozen=True, slots=True)
class Shape:
    """What arrives in the batches of one workload.

    Args:
        keys: How many users there are, numbered from 0.
        rows: Events in a batch.
        batches: How many batches.
        touched: How many users have events in a batch, exactly; None draws each event's user from
            all of them.
        loaded: Whether batches come first that bring each user once, so that all have state.
    """

    keys: int
    rows: int
    batches: int
    touched: int | None = None
    loaded: bool = False


@dataclass(frozen=True, slots=True)
class Files:
    """Where the events are: one file is one batch.

    Attributes:
        load: The batches that only fill the state.
        batches: The batches to measure.
    """

    load: tuple[Path, ...]
    batches: tuple[Path, ...]


def write(folder: Path, shape: Shape, seed: int = 1) -> Files:
    """Write a workload's events as Parquet files.

    Amounts are quarters, so sums of them are exact in any order. Spark takes the files of a folder
    by their time of change: it goes up by a second from file to file.
    """
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    load: list[Path] = []
    if shape.loaded:
        everyone = random.permutation(shape.keys)
        parts = np.array_split(everyone, LOAD_BATCHES)
        load = [_write(folder, number, part, random) for number, part in enumerate(parts)]
    batches = [
        _write(folder, len(load) + number, _users(shape, random), random) for number in range(shape.batches)
    ]
    return Files(tuple(load), tuple(batches))


def _users(shape: Shape, random: np.random.Generator) -> NDArray[np.int64]:
    if shape.touched is None:
        return random.integers(0, shape.keys, shape.rows)
    users = random.choice(shape.keys, shape.touched, replace=False, shuffle=False)
    again = random.choice(users, shape.rows - shape.touched)
    return random.permutation(np.concatenate([users, again]))


def _write(folder: Path, number: int, users: NDArray[np.int64], random: np.random.Generator) -> Path:
    amounts = random.integers(1, 400, len(users)) / 4
    times = (_EPOCH_S + number) * 1_000_000 + np.arange(len(users)) * 1_000_000 // max(1, len(users))
    path = folder / f"{number:05}.parquet"
    columns = [pa.array(users, pa.int64()), pa.array(amounts), pa.array(times).cast(_ARROW.field("ts").type)]
    pq.write_table(pa.Table.from_arrays(columns, schema=_ARROW), path)
    os.utime(path, (_EPOCH_S + number, _EPOCH_S + number))
    return path
