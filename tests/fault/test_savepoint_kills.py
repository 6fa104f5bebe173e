"""Processes that take, restore, rescale, migrate and delete, killed at seeded moments: old or new."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from command import PROGRAM
from guard_time import PROGRAM as PROGRAM_AT_ONCE
from large_state import large_checkpoint, large_rows

import holdfast as hf
from golden import golden_files, golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Conflict
from holdfast.storage.atomic_swap import sandbox
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.fault

NAME = "4.2/join-memory"
KILLS = 5


class Place:
    """A checkpoint, a catalog, and what a restore makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = golden_on_disk(NAME, folder / "ck")
        self.catalog = folder / "catalog"

    def killed_after(self, changes: int, watched: Path, *words: str) -> bool:
        """Run the command and kill it when a directory has so many files more; whether it came to that."""
        before = count(watched)
        with subprocess.Popen(
            [*PROGRAM_AT_ONCE, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None:
                if abs(count(watched) - before) >= changes:
                    process.send_signal(signal.SIGKILL)
                    break
        return process.returncode == -signal.SIGKILL

    def untouched(self) -> bool:
        """Whether the checkpoint is, byte by byte, what it was, and nothing was added."""
        found = {
            str(file.relative_to(self.checkpoint)): file.read_bytes()
            for file in self.checkpoint.rglob("*")
            if file.is_file()
        }
        return found == golden_files(NAME)

    def whole(self) -> list[str]:
        """The savepoints that exist; each is proved."""
        found = [each.uri for each in savepoints.list(self.catalog)]
        assert all(savepoints.verify(each).ok for each in found)
        return found


def count(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_takes(place: Place) -> None:
    rng = random.Random(6)
    hit = 0
    for number in range(KILLS):
        place.catalog = place.folder / f"catalog-{number}"
        words = ("savepoint", "take", "./ck", place.catalog.name)
        killed = place.killed_after(rng.randrange(1, 80), place.catalog, *words)
        hit += killed
        assert len(place.whole()) <= 1
        assert killed or place.whole()
        assert place.untouched()
        taken = savepoints.take(place.checkpoint, place.catalog)
        savepoints.gc(place.catalog, older_than="0s")
        assert taken.uri in place.whole()
        assert not list((place.catalog / "staging").glob("*"))
        assert not list((place.catalog / "takes").glob("*.json"))
        named = {file.sha256 for each in place.whole() for file in savepoints.show(each).files}
        assert {file.name for file in (place.catalog / "objects").glob("*/*")} == named
    assert hit


def test_digests(tmp_path: Path) -> None:
    """A take of large state, killed after the savepoint is there; and the pass that makes up for it."""
    checkpoint = large_checkpoint(tmp_path / "ck", large_rows())
    rng = random.Random(10)
    catalog = tmp_path / "catalog"
    expected = None
    for _ in range(3):
        with subprocess.Popen(
            [PROGRAM, "savepoint", "take", str(checkpoint), str(catalog)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            uri = process.stdout.readline().strip()
            process.kill()
        proof = savepoints.verify(uri)
        assert (proof.ok, proof.content in ("pending", "recorded")) == (True, True)
        with subprocess.Popen(
            [PROGRAM, "savepoint", "digest", str(catalog)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                process.wait(rng.uniform(0.2, 1.5))
            except subprocess.TimeoutExpired:
                process.kill()
        assert subprocess.run([PROGRAM, "savepoint", "digest", str(catalog)], check=False).returncode == 0
        proof = savepoints.verify(uri, deep=True)
        assert (proof.ok, proof.content, proof.compared) == (True, "compared", 1)
        expected = expected or proof.states
        assert proof.states == expected
    savepoints.gc(catalog, older_than="0s")
    assert all(
        savepoints.verify(each.uri, deep=True).content == "compared" for each in savepoints.list(catalog)
    )


def test_restores(place: Place) -> None:
    taken = savepoints.take(place.checkpoint, place.catalog)
    rng = random.Random(7)
    hit = 0
    for number in range(KILLS):
        target = place.folder / f"new-{number}"
        words = ("restore", taken.uri, str(target))
        hit += place.killed_after(rng.randrange(1, 80), target, *words)
        if (target / "metadata").exists():
            with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
                savepoints.restore(taken.uri, target)
        else:
            savepoints.restore(taken.uri, target)
        assert checkpoints.verify(target).ok
        assert checkpoints.read(target).batch_id == taken.manifest.batch_id
        assert savepoints.verify(taken.uri).ok
    assert hit
    assert place.untouched()


def test_deletes(place: Place) -> None:
    newest = savepoints.take(place.checkpoint, place.catalog)
    rng = random.Random(8)
    hit = 0
    for number in range(KILLS):
        older = savepoints.take(place.checkpoint, place.catalog, batch=newest.manifest.batch_id - 1)
        words = ("savepoint", "delete", older.uri, "--yes")
        hit += place.killed_after(rng.randrange(1, 5), place.catalog, *words)
        left = place.whole()
        assert newest.uri in left
        savepoints.gc(place.catalog, older_than="0s")
        if older.uri in place.whole():
            savepoints.delete(older.uri)
        assert place.whole() == [newest.uri], number
    assert hit
    assert place.untouched()


@pytest.mark.usefixtures("guards_wait_no_time")
def test_rescales(place: Place) -> None:
    """Of the memory provider's state, which starts no JVM that would have to be killed too."""
    rng = random.Random(9)
    hit = 0
    before = contents(LocalStorage(place.checkpoint))
    for number in range(KILLS):
        target = place.folder / f"made-{number}" / "new"
        words = ("rescale", "./ck", str(target), "--partitions", "3", "--confirm-stopped")
        # What is made is seen in the target's folder, first in the sandbox and then in the target.
        hit += place.killed_after(rng.randrange(1, 300), target.parent, *words)
        if not (target / "metadata").exists():
            savepoints.rescale(place.checkpoint, target, partitions=3, stopped=True)
        assert checkpoints.verify(target).ok
        assert contents(LocalStorage(target)) == before
        assert [operator.partitions for operator in checkpoints.read(target).operators] == [3]
        with sandbox(target.parent, "look", "mine"):  # what was left is cleared up by whoever comes next
            pass
        assert [each.name for each in target.parent.iterdir()] == ["new"]
    assert hit
    assert place.untouched()


@pytest.mark.usefixtures("guards_wait_no_time")
def test_migrates(place: Place) -> None:
    rng = random.Random(10)
    hit = 0
    before = contents(LocalStorage(place.checkpoint))
    for number in range(3):
        target = place.folder / f"moved-{number}" / "new"
        how = ("--backend", "rocksdb", "--partitions", "3")
        words = ("state", "migrate", "./ck", str(target), *how, "--confirm-stopped")
        hit += place.killed_after(rng.randrange(1, 300), target.parent, *words)
        if not (target / "metadata").exists():
            hf.migrate(place.checkpoint, target, backend="rocksdb", partitions=3, stopped=True)
        assert checkpoints.verify(target).ok
        assert contents(LocalStorage(target)) == before
        assert [operator.partitions for operator in checkpoints.read(target).operators] == [3]
        with sandbox(target.parent, "look", "mine"):
            pass
        assert [each.name for each in target.parent.iterdir()] == ["new"]
    assert hit
    assert place.untouched()
