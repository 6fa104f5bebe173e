"""A key erased from a stopped query's checkpoint in a bucket and on HDFS, which a successor replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import guard_time
import pytest
from mended import all_rows, leaks

import holdfast as hf
from golden import golden_files, without_checksums
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.discovery import CheckpointAddress
from holdfast.errors import Conflict
from holdfast.ownership import checkpoint_guard
from holdfast.storage import open_storage
from holdfast.storage.port import files_below
from holdfast.storage.successors import current_address

pytestmark = pytest.mark.services

C3 = "c3\0\0\0\0\0\0"


def written(above: str, name: str = "4.2/aggregate-memory") -> str:
    """A golden checkpoint there, with a savepoint in the catalog next to it."""
    uri = f"{above}/jobs/ck"
    storage = open_storage(uri)
    for path, data in without_checksums(golden_files(name)).items():
        storage.write(path, data)
    savepoints.take(uri, f"{above}/jobs/sp")
    return uri


def downloaded(uri: str, folder: Path) -> Path:
    """All that is below an address, on the local disk."""
    storage = open_storage(uri)
    for path in files_below(storage):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(storage.read(path))
    return folder


@pytest.mark.usefixtures("guards_wait_no_time")
@pytest.mark.parametrize("name", ["4.2/aggregate-memory", "4.2/state-format2"])
def test_nothing_of_it_is_left_there(above: str, name: str, tmp_path: Path) -> None:
    uri = written(above, name)
    before, rows = checkpoints.read(uri), all_rows(open_storage(uri))
    assert leaks(downloaded(above, tmp_path / "before"), C3)
    planned = hf.plan_erase("c3", everywhere=f"{above}/jobs/sp", checkpoint=uri)
    assert planned.searched[0].holds
    assert current_address(uri) == uri
    found = hf.erase("c3", everywhere=f"{above}/jobs/sp", checkpoint=uri, who="ada@desk", stopped=True)
    assert (found.searched[0].place, found.searched[0].successor) == (uri, f"{uri}.r1")
    assert f"replaced by {uri}.r1" in found.searched[0].words()
    assert leaks(downloaded(above, tmp_path / "after"), C3) == []
    after = checkpoints.read(uri)
    assert after.uri == f"{uri}.r1"
    assert (after.batch_id, after.query_id, after.watermark_ms) == (
        before.batch_id,
        before.query_id,
        before.watermark_ms,
    )
    assert all_rows(open_storage(after.uri)) == {row: n for row, n in rows.items() if "'c3'" not in row}
    assert checkpoints.verify(uri).ok
    # Of the old one only the metadata is left, at which Spark refuses to start.
    assert list(files_below(open_storage(uri))) == ["metadata"]
    # Readers are given the first address, by which they find the newest successor.
    assert CheckpointAddress(above).find() == (uri,)
    # The catalog is clean, and so is the successor: nothing is replaced a second time.
    again = hf.erase("c3", everywhere=f"{above}/jobs/sp", checkpoint=uri, stopped=True)
    assert not again.searched[0].holds
    assert current_address(uri) == after.uri


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_query_that_uses_it_keeps_its_checkpoint(
    above: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = written(above)
    storage = open_storage(uri)
    metadata, newest = storage.read("metadata"), checkpoints.read(uri).committed[-1]
    timing = guard_time.passing_time()

    def write_once(reached: Callable[[], bool]) -> Callable[[float], None]:
        def pause(seconds: float) -> None:
            timing.pause(seconds)
            if reached() and storage.size(f"offsets/{newest + 1}") is None:
                storage.write(f"offsets/{newest + 1}", storage.read(f"offsets/{newest}"))

        return pause

    # A plain query writes while the checkpoint is watched, or when its successor has been published.
    reached = {"before": lambda: True, "after": lambda: current_address(uri) != uri}[moment]
    monkeypatch.setattr(checkpoint_guard, "MACHINE_TIMING", replace(timing, pause=write_once(reached)))
    with pytest.raises(Conflict, match="a query still uses the checkpoint"):
        hf.erase("c3", everywhere=f"{above}/jobs/sp", checkpoint=uri, stopped=True)
    assert current_address(uri) == uri
    assert storage.read("metadata") == metadata
    assert list(files_below(open_storage(f"{uri}.r1"))) == []
    assert storage.size(f"offsets/{newest + 1}") is not None
