"""State is moved in tasks as in one process, also if tasks run again."""

from __future__ import annotations

from pathlib import Path

import pytest
from grid import one_in
from tasks_here import as_executors

import holdfast as hf
from golden import golden_on_disk
from holdfast.changes.rewriting import sweeps

NAMES = (
    "4.2/aggregate-changelog",
    "4.2/aggregate-memory",
    "4.2/state-format2",
    "4.2/join-format2",
    "4.2/keyed-format2",
    "3.5/session-rocksdb",
)
MOVED = ["reading state", "writing state", "reading state"]


@pytest.mark.parametrize("name", one_in(len(NAMES), NAMES))
def test_it_is_what_one_process_makes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = golden_on_disk(name, tmp_path / "checkpoint")
    saved = hf.savepoints.take(place, tmp_path / "catalog").uri
    expected = hf.savepoints.rescale(saved, tmp_path / "alone", partitions=5)
    with as_executors(monkeypatch) as tasks:
        rescaled = hf.savepoints.rescale(saved, tmp_path / "spread out", partitions=5, master="its")
        assert tasks.notes == MOVED
        migrated = hf.migrate(saved, tmp_path / "three", partitions=3, master="its")
        assert tasks.notes == MOVED * 2
        changed = hf.change(saved).partitions(4, master="its").to(tmp_path / "four")
        assert tasks.notes == MOVED * 3
        hf.change(saved).partitions(4, master="its").drop_expired().to(tmp_path / "rows")
        assert tasks.notes == MOVED * 3
    for made in (rescaled, migrated, changed):
        assert hf.checkpoints.verify(made.checkpoint).problems == ()
        assert hf.savepoints.diff(tmp_path / "alone", made.checkpoint).same
    assert rescaled.states == migrated.after == expected.states
    assert [path.name for path in tmp_path.glob(".holdfast-*")] == []


def test_more_workers_get_more_parts_and_each_new_partition_is_in_one() -> None:
    assert list(sweeps(2, 4)) == [(range(0, 2, 2), range(0, 4, 2)), (range(1, 2, 2), range(1, 4, 2))]
    assert list(sweeps(3, 4)) == [(range(3), range(4))]
    assert list(sweeps(3, 4, workers=2)) == [(range(3), range(2)), (range(3), range(2, 4))]
    assert len(list(sweeps(3, 4, workers=100))) == 4
    assert len(list(sweeps(1, 200))) == 7  # at most 32 stores are open at once
    assert len(list(sweeps(200, 400, workers=16))) == 200
