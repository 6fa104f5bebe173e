"""The hot keys of a join are changed in a small checkpoint: the same rows in their new parts."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from catalogs import Hands
from written_state import unpacked

import holdfast as hf
from holdfast.storage.local import LocalStorage

# Both sides have two rows of each key. Only `hot` is split, into three parts.
ROWS = [("ann", 0), ("ann", 1), ("hot", 0), ("hot", 1)]


@pytest.fixture
def savepoint(tmp_path: Path) -> str:
    checkpoint = LocalStorage(unpacked("split-join", tmp_path))
    return Hands().take(checkpoint, LocalStorage(tmp_path / "catalog")).uri


def by_part(address: str | Path, side: str, column: str) -> dict[int, list[tuple[str, int]]]:
    """The rows of a side in each part; the second field of a key is the part."""
    found = defaultdict(list)
    for row in hf.state(address).scan(side):
        found[row.key["field1"]].append((row.value["who"], row.value[column]))
    return {part: sorted(rows) for part, rows in found.items()}


def test_one_more_key_in_two_parts(savepoint: str, tmp_path: Path) -> None:
    change = hf.change(savepoint).split("meeting", hot=["hot", "ann"], parts=2)
    [step] = change.plan(tmp_path / "new").steps
    assert step.plan == {
        "join": "meeting",
        "side": "left",
        "hot_before": ['["hot"]'],
        "hot": ['["ann"]', '["hot"]'],
        "parts_before": 3,
        "parts": 2,
    }
    [done] = change.to(tmp_path / "new").reports
    assert (done.report.left_rows, done.report.right_rows) == (4, 4)
    note = json.loads((tmp_path / "new" / "_holdfast" / "split-meeting.json").read_text("utf-8"))
    assert note == {"by": ["who"], "hot": ['["ann"]', '["hot"]'], "parts": 2, "side": "left"}
    assert hf.checkpoints.verify(tmp_path / "new").ok
    # Each row of the left side is in one part, and each of the right side in both parts of its key.
    left, right = by_part(tmp_path / "new", "left", "n"), by_part(tmp_path / "new", "right", "paid")
    assert sorted(row for rows in left.values() for row in rows) == ROWS
    assert sorted(row for rows in right.values() for row in rows) == sorted(ROWS * 2)
    for key in ("ann", "hot"):
        copies = [[row for row in rows if row[0] == key] for rows in right.values()]
        assert [rows for rows in copies if rows] == [[(key, 0), (key, 1)]] * 2
