"""`hf.offsets`, `hf.plan_offsets` and `hf.move_offsets` do what the verbs do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from golden import KAFKA, files_on_disk, files_read_from, kafka_files

EXAMPLE = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files_on_disk(kafka_files("4.2/aggregate-memory"), Path("checkpoints/orders"))


def positions(checkpoint: str) -> dict[str | None, dict[str, int | None]]:
    found: dict[str | None, dict[str, int | None]] = {}
    for position in hf.offsets(checkpoint).sources:
        found.setdefault(position.topic, {})[str(position.partition)] = position.next
    return found


def test_offsets_has_each_position() -> None:
    assert positions("checkpoints/orders") == KAFKA


def test_a_plan_changes_nothing() -> None:
    plan = hf.plan_offsets("checkpoints/orders", "rewound", changes=[hf.ToRecord("orders", 0, at=12)])
    assert (plan.repeated, plan.skipped) == (28, 0)  # records 12 to 39
    assert [path.name for path in Path().iterdir()] == ["checkpoints"]


def test_a_move_makes_the_checkpoint() -> None:
    changes: list[hf.ToRecord | hf.SkipRecords] = [
        hf.ToRecord("orders", 0, at=12),
        hf.SkipRecords("refunds", 0, 1),
    ]
    hf.move_offsets("checkpoints/orders", "checkpoints/rewound", changes=changes, stopped=True)
    assert positions("checkpoints/rewound") == {
        "orders": {**KAFKA["orders"], "0": 12},
        "refunds": {"0": KAFKA["refunds"]["0"] + 1},
    }
    assert positions("checkpoints/orders") == KAFKA


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (hf.RenameTopic("refunds", "returns"), {"orders": KAFKA["orders"], "returns": KAFKA["refunds"]}),
        (hf.ToOffset('{"refunds": {"0": 1}}'), {"refunds": {"0": 1}}),
    ],
)
def test_every_change_has_a_public_name(change: Any, expected: dict[str, dict[str, int]]) -> None:
    hf.move_offsets("checkpoints/orders", "new", changes=[change], stopped=True)
    assert positions("new") == expected


def test_files_are_skipped() -> None:
    files_on_disk(files_read_from("4.2/aggregate-memory", "file:///arrivals"), Path("files"))
    plan = hf.plan_offsets("files", "new", skip_files=["file:///arrivals/bad.json"])
    assert plan.skipped_files == ("file:///arrivals/bad.json",)


def test_a_checkpoint_that_may_be_in_use_is_refused() -> None:
    with pytest.raises(hf.Conflict):
        hf.move_offsets("checkpoints/orders", "new", changes=[hf.ToRecord("orders", 0, at=12)])
