"""No verb makes a copy of a checkpoint that its record of good batches calls damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from damages import Files, faults
from grid import one_in

from golden import golden_files, golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.changes import reshaping
from holdfast.changes.offsets import offsets_api
from holdfast.checkpoints.record import Recorder, RecordFile, record_path
from holdfast.errors import Corrupt
from holdfast.storage.local import LocalStorage

NAME = "4.2/join-memory"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def recorded(folder: Path, home: Path) -> LocalStorage:
    """A checkpoint with a record of its good batches in a state home."""
    storage = LocalStorage(golden_on_disk(NAME, folder))
    Recorder(storage, RecordFile(record_path(home, storage.uri))).look(ended=True)
    return storage


def stale(files: Files) -> tuple[str, Files]:
    """An older change of one store over its newest: each key is still in its partition."""
    return next(
        (min(fault.touched), fault.files) for fault in faults(files) if "a stale change" in fault.name
    )


def put(folder: Path, before: Files, after: Files) -> None:
    for path, data in after.items():
        if before.get(path) != data:
            (folder / path).write_bytes(data)


def _unread(place: Path) -> Path:
    """A file that source 0 has not read, in the directory that it reads."""
    entry = json.loads((place / "sources/0/0").read_text().splitlines()[1])
    folder = Path(entry["path"].removeprefix("file://")).parent
    return folder / "never.json"


MAKERS: dict[str, Any] = {
    "savepoint": lambda source, to, home: savepoints.take(source, to, home=home),
    "rescale": lambda source, to, home: savepoints.rescale(source, to, partitions=3, stopped=True, home=home),
    "migrate": lambda source, to, home: reshaping.migrate(
        source, to, backend="rocksdb", stopped=True, home=home
    ),
    "offsets": lambda source, to, home: offsets_api.move_offsets(
        source, to, skip_files=[str(_unread(source))], files_of="0", stopped=True, home=home
    ),
}


@pytest.mark.parametrize("verb", one_in(2, list(MAKERS)))
def test_what_a_record_calls_damaged_is_not_copied(verb: str, tmp_path: Path, home: Path) -> None:
    place = tmp_path / "checkpoint"
    recorded(place, home)
    before = golden_files(NAME)
    damaged, after = stale(before)
    put(place, before, after)
    found = checkpoints.verify(place, home=home)
    assert damaged in {problem.file for problem in found.problems}
    with pytest.raises(Corrupt) as caught:
        MAKERS[verb](place, tmp_path / "made", home)
    assert damaged in str(caught.value.where)
    assert not (tmp_path / "made" / "metadata").exists()
    assert "checkpoint verify" in str(caught.value.hint)
    if verb != "savepoint":
        assert "no savepoint was taken" not in caught.value.fact
    older = savepoints.take(place, tmp_path / "savepoints", batch=found.restorable[-1], home=home)
    assert savepoints.verify(older.uri, deep=True).ok


def test_without_a_record_it_is_copied(tmp_path: Path, home: Path) -> None:
    """So that the test above is about the record."""
    place = tmp_path / "checkpoint"
    golden_on_disk(NAME, place)
    before = golden_files(NAME)
    put(place, before, stale(before)[1])
    assert savepoints.take(place, tmp_path / "savepoints", home=home).uri
