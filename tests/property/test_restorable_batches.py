"""Verify and take agree on the batches that can be restored, whichever file is missing. Seeded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from damages import Files, hidden, truncate
from grid import WHOLE

from golden import NAMES, golden_files
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.restoring import RestoreKind, plan_restore, restore
from holdfast.savepoints.taking import take
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

SOME = (
    "4.2/aggregate-memory",
    "4.2/aggregate-changelog",
    "4.2/aggregate-format2",
    "4.2/join-memory",
    "4.2/state-format2",
)
URI = "memory://checkpoint"


def _is_restored(checkpoint: MemoryStorage, batch_id: int, folder: Path) -> bool:
    """Take a batch and restore it; False where the take is refused."""
    catalog = MemoryStorage(uri="memory://catalog")
    try:
        taken = take(checkpoint, catalog, plan_take(checkpoint, catalog, batch_id))
    except (Corrupt, NotFound):
        return False
    # Paths to schemas can be led to a local directory alone.
    made = LocalStorage(folder)
    restore(catalog, made, plan_restore(catalog, taken.manifest.savepoint_id, made, RestoreKind.RESTORE))
    found = verify(made)
    assert (found.problems, found.batch_id) == ((), batch_id)
    return True


def _agree(files: Files, folder: Path) -> None:
    checkpoint = MemoryStorage(files, URI)
    try:
        found = verify(checkpoint)
    except HoldfastError:
        return
    committed = Logs(checkpoint).committed
    batches = committed if WHOLE else random.Random(str(len(files))).sample(committed, min(4, len(committed)))
    taken = [each for each in batches if _is_restored(checkpoint, each, folder / str(each))]
    assert taken == [each for each in batches if each in found.restorable]


@pytest.mark.parametrize("name", NAMES if WHOLE else SOME)
def test_take_takes_the_batches_that_verify_names_whichever_file_is_missing(
    name: str, tmp_path: Path
) -> None:
    files = golden_files(name)
    paths = sorted(path for path in files if not hidden(path))
    chosen = paths if WHOLE else random.Random(name).sample(paths, 5)
    for number, path in enumerate(chosen):
        rest = {each: data for each, data in files.items() if each != path}
        _agree(rest, tmp_path / str(number))


@pytest.mark.parametrize("name", NAMES if WHOLE else SOME)
def test_take_takes_the_batches_that_verify_names_whichever_file_is_cut_short(
    name: str, tmp_path: Path
) -> None:
    files = golden_files(name)
    rng = random.Random(f"{name} cut")
    chosen = sorted(files) if WHOLE else rng.sample(sorted(files), 5)
    for number, path in enumerate(chosen):
        _agree({**files, path: truncate(files[path], rng)}, tmp_path / str(number))


@pytest.mark.parametrize("name", ["4.2/aggregate-changelog", "4.2/join-memory"])
def test_a_lost_entry_of_a_source_makes_every_batch_that_needs_it_unrestorable(name: str) -> None:
    """Batch N reads entry N of the source; `9.compact` repeats the entries before it, and no later one."""
    files = golden_files(name)
    lost = ("sources/0/10", "sources/0/.10.crc")
    rest = {path: data for path, data in files.items() if path not in lost}
    whole, found = verify(MemoryStorage(files, URI)), verify(MemoryStorage(rest, URI))
    needing = {batch_id for batch_id in whole.restorable if batch_id >= 10}
    assert {10, 11} <= needing < set(whole.restorable)
    assert set(found.restorable) == {*whole.restorable} - needing
