"""A release on a local disk: replaced checkpoints are listed and not deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from golden import golden_on_disk
from holdfast.errors import NotFound


def test_directories_of_replaced_checkpoints_are_listed(tmp_path: Path) -> None:
    for name in ("ck", "ck.before-0a1b", "ck.damaged-20260305", "ck2.before-0a1b"):
        golden_on_disk("4.2/limit-memory", tmp_path / name)
    (tmp_path / "ck.savepoints").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for call in (hf.plan_release, hf.release):
        found = call(tmp_path / "ck")
        assert found.moved == (f"file://{tmp_path}/ck.before-0a1b", f"file://{tmp_path}/ck.damaged-20260305")
        assert (found.checkpoint, found.replaced) == (f"file://{tmp_path}/ck", ())
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(NotFound):
        hf.plan_release(tmp_path / "no")
