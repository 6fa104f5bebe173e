"""State at rest: a key looked up, all rows read, savepoints compared, edited and erased from."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import holdfast as hf
from holdfast import savepoints
from holdfast.errors import Failed
from holdfast_bench.at_rest.savepoint_process import Task, write
from holdfast_bench.measure import Bench, Series, time_commands

# Batches after the one that loads all keys: some have a snapshot behind them, the others are changelogs.
_BATCHES: Final = 15
_GETS: Final = 20
_SAVEPOINTS: Final = 10
_WAIT_S: Final = 1200
_TIMES_FASTER: Final = 3
# What is promised, in the order of the ratios.
_BOUNDS: Final = (0.1, 0.5, 1.0, 5.0, 2.0, 10.0)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        keys: Keys in the state.
        rows: Keys that change with each batch.
    """

    keys: int = 1_000_000
    rows: int = 10_000


def state(sizes: Sizes, *, runs: int, say: Say = lambda _: None) -> Bench:
    """Measure a large state: one key, all rows beside Spark's reader, a comparison, an edit and an erasure.

    Args:
        sizes: How large the state is.
        runs: Counted runs of each side.
        say: Told what is being measured.

    Raises:
        Failed: The query did not come to its end, or two sides do not agree.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        say(f"measuring state: a state of {sizes.keys:,} keys …")
        write(folder / "events", sizes.keys, sizes.rows, _BATCHES + 1)
        _run(folder)
        checkpoint = str(folder / "checkpoint")
        say("measuring state: one key …")
        gets = Series("get, in a process that runs", tuple(_gets(checkpoint, sizes.keys)))
        [command] = time_commands(
            {"holdfast state get": [*_HOLDFAST, "state", "get", checkpoint, "aggregate", "17"]}, runs
        )
        say("measuring state: all rows …")
        ours, sparks = time_commands(
            {
                "scan to Arrow, start-up counted": [*_SIDE, "ours", checkpoint],
                "Spark's reader to Arrow, start-up counted": [*_SIDE, "sparks", checkpoint],
            },
            runs,
        )
        _agree(checkpoint, sizes.keys)
        say("measuring state: a comparison …")
        diffs = Series("diff of two savepoints", tuple(_diffs(folder, sizes, runs)))
        say("measuring state: an edit …")
        edits, rewrites = _edits(folder, sizes, runs)
        say("measuring state: an erasure …")
        erasures = Series(f"erase from {_SAVEPOINTS} savepoints", tuple(_erasures(folder, runs)))
    what = f"{sizes.keys:,} keys in RocksDB, {sizes.rows:,} of them changed by each of {_BATCHES} batches"
    series = (gets, command, ours, sparks, diffs, edits, rewrites, erasures)
    ratios = {
        "seconds of a get": gets.median,
        "seconds of holdfast state get": command.median,
        f"{_TIMES_FASTER} x scan / Spark's reader": _TIMES_FASTER * ours.median / sparks.median,
        "seconds of a diff": diffs.median,
        "edit of 1 % / Spark's rewriting of all": edits.median / rewrites.median,
        "seconds of an erasure": erasures.median,
    }
    return Bench("state", what, series, ratios, dict(zip(ratios, _BOUNDS, strict=True)))


_HOLDFAST: Final = (sys.executable, "-m", "holdfast")
_SIDE: Final = (sys.executable, "-m", "holdfast_bench.at_rest.state_process")


def _run(folder: Path) -> None:
    """The query that makes the state."""
    task = Task(
        str(folder / "events"), str(folder / "checkpoint"), str(folder / "home"), batches=_BATCHES + 1
    )
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "holdfast_bench.at_rest.savepoint_process", task.as_text()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        check=False,
    )
    if done.returncode:
        raise Failed("the measured query did not finish", found=done.stderr[-2000:])


def _gets(checkpoint: str, keys: int) -> list[float]:
    """Different keys, each with everything that a first look costs, but for Python's own start."""
    chance = random.Random(1)  # noqa: S311 - which keys are looked up is no secret
    taken = []
    for number in range(_GETS + 1):
        key = chance.randrange(keys)
        began = time.perf_counter()
        found = hf.state(checkpoint).get("aggregate", key)
        if number:  # the first fills the caches
            taken.append(time.perf_counter() - began)
        if not found.exists:
            raise Failed("a key was not found", found=str(key))
    return taken


def _agree(checkpoint: str, keys: int) -> None:
    for side in ("ours", "sparks"):
        said = subprocess.run([*_SIDE, side, checkpoint], capture_output=True, text=True, check=True)  # noqa: S603
        if int(said.stdout.splitlines()[-1]) != keys:
            raise Failed("a side did not read all rows", found=said.stdout, expected=str(keys))


def _diffs(folder: Path, sizes: Sizes, runs: int) -> list[float]:
    newest = savepoints.take(folder / "checkpoint", folder / "catalog")
    batch = newest.manifest.batch_id
    before = savepoints.take(folder / "checkpoint", folder / "catalog", batch=batch - 1)
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        found = savepoints.diff(before.uri, newest.uri)
        taken.append(time.perf_counter() - began)
        [only] = found.states
        if (only.first_rows, only.changed) != (sizes.keys, min(sizes.rows, sizes.keys)):
            raise Failed("the comparison is wrong", found=str(only.as_dict()))
    return taken


def _edits(folder: Path, sizes: Sizes, runs: int) -> tuple[Series, Series]:
    """An edit of each hundredth key, and Spark's rewriting of all rows, its start left out."""
    saved = savepoints.take(folder / "checkpoint", folder / "edited").uri
    ours, sparks = [], []
    for number in range(runs):
        began = time.perf_counter()
        done = hf.edit(saved, "aggregate", where="user % 100 = 0", set={"sum": "sum + 1"}, why="measured")
        ours.append(time.perf_counter() - began)
        changed = sum(each.changed for each in hf.savepoints.diff(saved, done.uri).states)
        if changed != -(-sizes.keys // 100):
            raise Failed("the edit is wrong", found=f"{changed} rows changed")
        copy = folder / f"rewritten-{number}"
        shutil.copytree(folder / "checkpoint", copy)
        said = subprocess.run([*_SIDE, "rewriting", str(copy)], capture_output=True, text=True, check=True)  # noqa: S603
        sparks.append(float(said.stdout.splitlines()[-1]))
        shutil.rmtree(copy)
    return Series("edit of 1 %", tuple(ours)), Series("Spark's rewriting of all rows", tuple(sparks))


def _erasures(folder: Path, runs: int) -> list[float]:
    newest = savepoints.take(folder / "checkpoint", folder / "many").manifest.batch_id
    for batch in range(newest - _SAVEPOINTS + 1, newest):
        savepoints.take(folder / "checkpoint", folder / "many", batch=batch)
    taken = []
    for key in range(runs):
        began = time.perf_counter()
        hf.erase(str(key), everywhere=folder / "many", column="user", why="measured")
        taken.append(time.perf_counter() - began)
        for saved in savepoints.list(folder / "many"):
            if hf.state(saved.uri).get("aggregate", key).exists:
                raise Failed("a key was not erased", where=saved.uri, found=str(key))
    return taken
