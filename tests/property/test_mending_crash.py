"""Killed or failed at any change to the catalog: savepoints are old or new; a second try does the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from catalogs import Hands
from grid import WHOLE
from mended import all_rows, leaks, view_of

from golden import golden_on_disk
from holdfast.changes.edit.editing import edit, plan_edit
from holdfast.changes.edit.request import Edit
from holdfast.changes.erase.erasing import erase
from holdfast.changes.erase.searching import subject
from holdfast.errors import HoldfastError
from holdfast.savepoints.catalog import ids
from holdfast.savepoints.proof import prove
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.testing.failing_storage import FaultyStorage, Killed

FAULTS = [(True, False), (True, True), (False, False), (False, True)]
WAYS = ["killed before", "killed behind", "failed before", "failed behind"]
# In the short form each way takes one change in so many, and all ways together take each.
STRIDE = 1 if WHOLE else 3
C3 = "c3\0\0\0\0\0\0"
HOUR_MS = 3_600_000


class Start:
    """A catalog in memory, with savepoints of two batches."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.hands = Hands()
        checkpoint = LocalStorage(golden_on_disk(name, folder / "ck"))
        self.storage = MemoryStorage(uri="memory://catalog")
        for batch in (10, 11):
            self.hands.take(checkpoint, self.storage, batch)
        self.rows = {each: all_rows(view_of(self.storage, each)) for each in ids(self.storage)}

    def fresh(self) -> MemoryStorage:
        return MemoryStorage(self.storage.files, self.storage.uri)

    def edit(self, catalog: Storage) -> None:
        plan = plan_edit(catalog, ids(self.storage)[-1], catalog, Edit("aggregate", key="c3", delete=True))
        work = self.folder / self.hands.token()
        edit(catalog, catalog, plan, work, who="ada", clock=self.hands.clock, chance=self.hands.chance)

    def erase(self, catalog: Storage) -> None:
        work = self.folder / self.hands.token()
        erase(catalog, subject("c3"), work, who="ada", clock=self.hands.clock, chance=self.hands.chance)


def broken(do: Callable[[Storage], None], inner: Storage, at: int, fault: tuple[bool, bool]) -> bool:
    kill, late = fault
    try:
        do(FaultyStorage(inner, at, kill=kill, late=late))
    except (Killed, HoldfastError):
        return True
    return False


def steps(do: Callable[[Storage], None], inner: Storage) -> int:
    counting = FaultyStorage(inner)
    do(counting)
    return counting.steps


@pytest.mark.parametrize("fault", FAULTS, ids=WAYS)
def test_edit(fault: tuple[bool, bool], tmp_path: Path) -> None:
    start = Start(tmp_path, "4.2/aggregate-memory")
    total = steps(start.edit, start.fresh())
    assert total >= 4
    for at in range(1 + FAULTS.index(fault) % STRIDE, total + 1, STRIDE):
        into = start.fresh()
        failed = broken(start.edit, into, at, fault)
        for each in ids(into):
            assert prove(into, each, workers=1).problems == ()
        for each, rows in start.rows.items():
            assert all_rows(view_of(into, each)) == rows
        assert len(ids(into)) in (2, 3)
        assert failed or len(ids(into)) == 3
        start.hands.now_ms += 2 * HOUR_MS
        start.hands.sweep(into)
        start.edit(into)
        assert prove(into, ids(into)[-1], deep=True, workers=1).problems == ()


@pytest.mark.parametrize("fault", FAULTS, ids=WAYS)
def test_erase(fault: tuple[bool, bool], tmp_path: Path) -> None:
    start = Start(tmp_path, "4.2/aggregate-memory")
    total = steps(start.erase, start.fresh())
    assert total >= 6
    without = {
        each: {row: n for row, n in rows.items() if "'c3'" not in row} for each, rows in start.rows.items()
    }
    for at in range(1 + FAULTS.index(fault) % STRIDE, total + 1, STRIDE):
        into = start.fresh()
        broken(start.erase, into, at, fault)
        assert ids(into) == sorted(start.rows)
        for each, rows in start.rows.items():
            assert prove(into, each, workers=1).problems == ()
            assert all_rows(view_of(into, each)) in (rows, without[each])
        start.hands.now_ms += 2 * HOUR_MS
        start.erase(into)
        for each in start.rows:
            assert prove(into, each, deep=True, workers=1).problems == ()
            assert all_rows(view_of(into, each)) == without[each]
        left = tmp_path / f"left-{at}"
        for path, data in into.files.items():
            (left / path).parent.mkdir(parents=True, exist_ok=True)
            (left / path).write_bytes(data)
        assert leaks(left, C3) == []
