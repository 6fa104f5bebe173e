"""Directories to work in: none stays, not even that of a process that was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.storage.sandbox import sandbox

KILLED = """
import os, sys
from pathlib import Path
from holdfast.storage.sandbox import sandbox
with sandbox(Path(sys.argv[1]), "work", "dead") as place:
    (place / "half").write_text("done")
    print("made", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def test_it_is_gone_in_the_end_however_the_work_ends(tmp_path: Path) -> None:
    with sandbox(tmp_path / "new", "work", "one") as place:
        (place / "file").write_text("x")
        assert names(tmp_path / "new") == {".holdfast-work-one", ".holdfast-work-one.lock"}
    assert names(tmp_path / "new") == set()
    with pytest.raises(ZeroDivisionError), sandbox(tmp_path, "work", "two"):
        raise ZeroDivisionError
    assert names(tmp_path) == {"new"}


def test_what_a_killed_process_has_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == b"made\n"
    with sandbox(tmp_path, "work", "mine"):
        assert (tmp_path / ".holdfast-work-dead/half").exists()
    other.kill()
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert names(tmp_path) == {".holdfast-work-dead", ".holdfast-work-dead.lock"}
    with sandbox(tmp_path, "work", "mine"):
        assert names(tmp_path) == {".holdfast-work-mine", ".holdfast-work-mine.lock"}
    assert names(tmp_path) == set()


def test_a_place_where_nothing_can_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="to work in"), sandbox(tmp_path / "file", "work", "one"):
        pass
