"""Processes that edit savepoints and erase from them, killed at seeded moments: old or new."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from guard_time import PROGRAM
from mended import all_rows, leaks, view_of

from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.savepoints.catalog import ids
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.fault

C3 = "c3\0\0\0\0\0\0"
KILLS = 2


def count(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def killed_after(folder: Path, changes: int, *words: str) -> bool:
    """Run the command and kill it when so many files have come or gone; whether it came to that."""
    before = count(folder)
    with subprocess.Popen(
        [*PROGRAM, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            if abs(count(folder) - before) >= changes:
                process.send_signal(signal.SIGKILL)
                break
    return process.returncode == -signal.SIGKILL


def test_edits(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    taken = savepoints.take(checkpoint, tmp_path / "sp").uri
    catalog = LocalStorage(tmp_path / "sp")
    rows = all_rows(view_of(catalog, ids(catalog)[0]))
    rng = random.Random(16)
    hit = 0
    for _ in range(KILLS):
        words = ("state", "edit", taken, "aggregate", "--key", "c3", "--delete", "--yes")
        hit += killed_after(tmp_path, rng.randrange(1, 30), *words)
        for each in savepoints.list(tmp_path / "sp"):
            assert savepoints.verify(each.uri).ok
        assert all_rows(view_of(catalog, ids(catalog)[0])) == rows
    assert hit
    savepoints.gc(tmp_path / "sp", older_than="0s")
    assert not killed_after(
        tmp_path, 10_000, "state", "edit", taken, "aggregate", "--key", "c3", "--delete", "-y"
    )
    assert not list(tmp_path.glob(".holdfast-*"))
    assert all_rows(view_of(catalog, ids(catalog)[-1])) == {
        row: n for row, n in rows.items() if "'c3'" not in row
    }


def test_erasures(tmp_path: Path) -> None:
    rng = random.Random(17)
    hit = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        checkpoint = golden_on_disk("4.2/aggregate-changelog", folder / "ck")
        for batch in (9, 10, 11):
            savepoints.take(checkpoint, folder / "sp", batch=batch)
        catalog = LocalStorage(folder / "sp")
        rows = {each: all_rows(view_of(catalog, each)) for each in ids(catalog)}
        without = {
            each: {row: n for row, n in found.items() if "'c3'" not in row} for each, found in rows.items()
        }
        whole = all_rows(LocalStorage(checkpoint))
        words = ("state", "erase", "sp", "c3", "--checkpoint", "./ck", "--yes", "--confirm-stopped")
        hit += killed_after(folder, rng.randrange(1, 60), *words)
        for each, found in rows.items():
            assert savepoints.verify(f"{folder}/sp/savepoints/{each}").ok
            assert all_rows(view_of(catalog, each)) in (found, without[each])
        assert checkpoints.verify(checkpoint).ok
        assert all_rows(LocalStorage(checkpoint)) in (
            whole,
            {row: n for row, n in whole.items() if "'c3'" not in row},
        )
        assert not killed_after(folder, 10_000, *words)
        assert leaks(folder, C3) == []
        for each in rows:
            assert all_rows(view_of(catalog, each)) == without[each]
            assert savepoints.verify(f"{folder}/sp/savepoints/{each}", deep=True).ok
    assert hit
