"""What is only looked at needs no place to write beside the checkpoint."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from golden import golden_on_disk
from holdfast import savepoints
from holdfast.errors import Unavailable
from holdfast.savepoints.view import scratch
from holdfast.storage.local import LocalStorage


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint in a folder of its own."""
    return golden_on_disk("4.2/aggregate-memory", tmp_path / "streams" / "ck")


@pytest.fixture
def read_only(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be made in that folder; modes would not do, since tests may be run by root."""
    really = os.open

    def refusing(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_CREAT and Path(os.fsdecode(path)).is_relative_to(checkpoint.parent):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return really(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.usefixtures("read_only")
def test_an_edit_is_looked_at_where_nothing_may_be_written(checkpoint: Path, tmp_path: Path) -> None:
    asked = {"key": "c3", "delete": True, "to": tmp_path / "saved"}
    plan = hf.plan_edit(checkpoint, "aggregate", **asked)  # type: ignore[arg-type]
    assert plan.tally.deleted == 1
    assert [each.name for each in checkpoint.parent.iterdir()] == ["ck"]
    assert not (tmp_path / "saved").exists()


def test_an_erasure_is_looked_at_where_nothing_may_be_written(
    checkpoint: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    savepoints.take(checkpoint, tmp_path / "saved")
    whole = hf.plan_erase("c3", everywhere=tmp_path / "saved", checkpoint=checkpoint)
    request.getfixturevalue("read_only")
    plan = hf.plan_erase("c3", everywhere=tmp_path / "saved", checkpoint=checkpoint)
    assert plan.searched == whole.searched
    assert plan.searched[0].touched


def test_what_fails_in_it_is_not_tried_elsewhere(checkpoint: Path) -> None:
    places = []

    def fail() -> None:
        with scratch(LocalStorage(checkpoint)) as folder:
            places.append(folder)
            raise Unavailable("the disk is full")

    with pytest.raises(Unavailable, match="disk"):
        fail()
    assert [place.parent for place in places] == [checkpoint.parent]
    assert not places[0].exists()
