"""Killed or failed at any change to a storage: old or new, the source as it was, and a second try works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query, manifests, target

from golden import NAMES, golden_files, golden_on_disk
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import HoldfastError, NotFound
from holdfast.savepoints.catalog import listed
from holdfast.savepoints.proof import prove
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.testing.failing_storage import FaultyStorage, Killed

HOUR_MS = 3_600_000
# With paths that are led into the copy, and files that are shared: each step of it in one of the four ways,
# and each step of the one without state in all of them.
STATE = golden_files(next(name for name in NAMES if "state-format2" in name))
CHECKPOINTS = {"no state": (file_query(4), 1), "state": (STATE, 4)}
FAULTS = [(True, False), (True, True), (False, False), (False, True)]
WAYS = ["killed before", "killed behind", "failed before", "failed behind"]


def steps(do: Callable[[FaultyStorage], object], inner: MemoryStorage) -> int:
    counting = FaultyStorage(inner)
    do(counting)
    return counting.steps


def broken(
    do: Callable[[FaultyStorage], object], inner: MemoryStorage, at: int, fault: tuple[bool, bool]
) -> bool:
    """Do it on a storage that fails at one step; whether the failure was seen."""
    kill, late = fault
    try:
        do(FaultyStorage(inner, at, kill=kill, late=late))
    except (Killed, HoldfastError):
        return True
    return False


def all_whole(into: MemoryStorage) -> None:
    for each in manifests(into):
        assert prove(into, each, workers=1).problems == ()


@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("fault", FAULTS, ids=WAYS)
def test_take(fault: tuple[bool, bool], kind: str) -> None:
    files, stride = CHECKPOINTS[kind]
    newest = max(int(path[8:]) for path in files if path.startswith("commits/") and path[8:].isdigit())
    hands, start = Hands(), catalog()
    hands.take(MemoryStorage(files), start, newest - 1)
    total = steps(lambda into: hands.take(MemoryStorage(files), into), MemoryStorage(start.files, start.uri))
    assert total >= 5
    for at in range(1 + FAULTS.index(fault) % stride, total + 1, stride):
        into = MemoryStorage(start.files, start.uri)
        source = MemoryStorage(files)
        failed = broken(lambda storage, source=source: hands.take(source, storage), into, at, fault)  # type: ignore[misc]
        assert source.files == files
        assert len(manifests(into)) in (1, 2)
        assert failed or len(manifests(into)) == 2
        all_whole(into)
        hands.take(source, into)
        hands.sweep(into, dead_after_ms=0)
        all_whole(into)
        assert {path for path in into.files if path.startswith("objects/")} == needed(into)
        assert not [path for path in into.files if path.startswith("staging/")]


def test_take_on_one_disk(tmp_path: Path) -> None:
    name = next(name for name in NAMES if "aggregate-memory" in name)
    files, checkpoint = golden_files(name), LocalStorage(golden_on_disk(name, tmp_path / "ck"))
    counting = FaultyStorage(LocalStorage(tmp_path / "counted"))
    hands = Hands()
    hands.take(checkpoint, counting)
    assert counting.steps > 50  # files are held on to, linked, and let go
    for at in range(1, counting.steps + 1, 13):
        into = LocalStorage(tmp_path / f"catalog-{at}")
        with pytest.raises(Killed):
            hands.take(checkpoint, FaultyStorage(into, at))
        assert list(listed(into)) == [] or at == counting.steps
        taken = hands.take(checkpoint, into)
        hands.sweep(into, dead_after_ms=0)
        assert prove(into, taken.manifest.savepoint_id, workers=1).ok
        assert list(into.list("staging").names) == []
    assert {path: checkpoint.read(path) for path in files} == files


def needed(into: MemoryStorage) -> set[str]:
    hashes = [
        file["sha256"]
        for each in manifests(into)
        for file in json.loads(into.read(f"savepoints/{each}/manifest.json"))["files"]
    ]
    return {f"objects/{each[:1]}/{each}" for each in hashes}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("fault", FAULTS, ids=WAYS)
@pytest.mark.parametrize("operation", ["restore", "fork"])
def test_restore_and_fork(operation: str, fault: tuple[bool, bool], kind: str) -> None:
    files, stride = CHECKPOINTS[kind]
    hands, into = Hands(), catalog()
    taken = hands.take(MemoryStorage(files), into).manifest
    held = into.files

    def make(storage: FaultyStorage | MemoryStorage) -> None:
        getattr(hands, operation)(into, taken.savepoint_id, storage)

    total = steps(make, target())
    assert total > 5
    for at in range(1 + FAULTS.index(fault) % stride, total + 1, stride):
        new = target()
        failed = broken(make, new, at, fault)
        if "metadata" in new.files:  # it is there as a whole, or not at all
            assert verify(new).problems == ()
        assert failed or "metadata" in new.files
        query = json.loads(new.files.get("metadata", b"{}")).get("id")
        make(new)
        found = verify(new)
        assert (found.problems, found.batch_id) == ((), taken.batch_id)
        again = json.loads(new.read("metadata"))["id"]
        assert query in (None, again)
        assert (again == taken.query_id) == (operation == "restore")
        assert into.files == held


@pytest.mark.parametrize("fault", FAULTS, ids=WAYS)
def test_delete(fault: tuple[bool, bool]) -> None:
    hands, start = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(6))
    gone, kept = (hands.take(checkpoint, start, batch).manifest.savepoint_id for batch in (3, 5))
    total = steps(lambda into: hands.delete(into, gone), MemoryStorage(start.files, start.uri))
    assert total > 4
    for at in range(1, total + 1):
        into = MemoryStorage(start.files, start.uri)
        failed = broken(lambda storage: hands.delete(storage, gone), into, at, fault)
        all_whole(into)
        assert kept in manifests(into)
        assert failed or gone not in manifests(into)
        hands.now_ms += HOUR_MS
        if gone in manifests(into):
            hands.delete(into, gone)
        else:
            with pytest.raises(NotFound):
                hands.delete(into, gone)
        hands.sweep(into)
        assert manifests(into) == [kept]
        all_whole(into)
        hands.delete(into, kept)
        assert into.files == {}


@pytest.mark.parametrize("fault", FAULTS, ids=WAYS)
def test_sweep(fault: tuple[bool, bool]) -> None:
    hands, start = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(6))
    kept = hands.take(checkpoint, start, 5).manifest.savepoint_id
    other = MemoryStorage(file_query(4, "0c9c4a52-1111-4222-8333-444455556666"))
    broken(lambda storage: hands.take(other, storage), start, 9, (True, False))
    start.write("staging/dead-1", b"held")
    hands.now_ms += HOUR_MS
    total = steps(hands.sweep, MemoryStorage(start.files, start.uri))
    assert total > 6
    for at in range(1, total + 1):
        into = MemoryStorage(start.files, start.uri)
        broken(hands.sweep, into, at, fault)
        assert manifests(into) == [kept]
        all_whole(into)
        hands.now_ms += HOUR_MS
        hands.sweep(into)
        all_whole(into)
        hands.take(checkpoint, into, 4)
        all_whole(into)
        for each in manifests(into):
            hands.delete(into, each)
        assert not [path for path in into.files if not path.startswith("takes/")]
