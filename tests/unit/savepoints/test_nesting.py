"""No checkpoint and no catalog is made within another one, nor where a file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.errors import Conflict, Invalid
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.restoring import RestoreKind, plan_restore
from holdfast.storage.local import LocalStorage

NAME = "4.2/aggregate-memory"


def shown(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Two checkpoints, a savepoint of the first, and a file."""
    golden_on_disk(NAME, tmp_path / "ck")
    golden_on_disk(NAME, tmp_path / "other")
    savepoints.take(tmp_path / "ck", tmp_path / "sp")
    (tmp_path / "file").write_text("mine")
    return tmp_path


def saved(disk: Path) -> str:
    return savepoints.list(disk / "sp")[0].uri


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [
        ("ck/state/1", Invalid, "a checkpoint cannot be inside a checkpoint"),
        ("ck/offsets/13", Invalid, "a checkpoint cannot be inside a checkpoint"),
        ("ck/new", Invalid, "a checkpoint cannot be inside a checkpoint"),
        ("ck/state/0/1/more", Invalid, "a checkpoint cannot be inside a checkpoint"),
        ("file", Conflict, "the path is a file, not a directory"),
        ("file/new", Conflict, "the path is a file, not a directory"),
    ],
)
def test_no_checkpoint_is_made_there(disk: Path, place: str, kind: type[Exception], message: str) -> None:
    before = shown(disk)
    given = saved(disk)
    with pytest.raises(kind, match=message):
        plan_restore(
            *StateAddress.resolve(given).open_savepoint(), LocalStorage(disk / place), RestoreKind.RESTORE
        )
    for make in (savepoints.restore, savepoints.fork):
        with pytest.raises(kind, match=message):
            make(given, disk / place)
    with pytest.raises(kind, match=message):
        savepoints.rescale(given, disk / place, partitions=3)
    assert shown(disk) == before


def test_what_is_made_of_a_checkpoint_does_not_go_into_it(disk: Path) -> None:
    with pytest.raises(Invalid, match="a checkpoint cannot be inside a checkpoint"):
        savepoints.rescale(disk / "ck", disk / "ck/p3", partitions=3, stopped=True)


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [
        ("other", Invalid, "cannot be a savepoint catalog"),
        ("other/sp", Invalid, "a savepoint catalog cannot be inside a checkpoint"),
        ("sp/savepoints", Invalid, "a savepoint catalog cannot be inside a savepoint catalog"),
        ("sp/savepoints/ID", Invalid, "cannot be inside a savepoint catalog"),
        ("file", Conflict, "the path is a file, not a directory"),
        ("file/sp", Conflict, "the path is a file, not a directory"),
    ],
)
def test_no_savepoint_is_taken_there(disk: Path, place: str, kind: type[Exception], message: str) -> None:
    before = shown(disk)
    into = disk / place.replace("ID", saved(disk).rpartition("/")[2])
    with pytest.raises(kind, match=message):
        plan_take(LocalStorage(disk / "ck"), LocalStorage(into))
    with pytest.raises(kind, match=message):
        savepoints.take(disk / "ck", into)
    assert shown(disk) == before


def test_checkpoints_of_several_sinks_lie_below_one_directory(disk: Path) -> None:
    for query in ("totals", "offsets"):
        savepoints.restore(saved(disk), disk / "job" / query)
        savepoints.take(disk / "job" / query, disk / "job" / f"{query}.savepoints")
    savepoints.restore(saved(disk), disk / "ck-restored")
