"""Directories to work in: none stays, not even that of a process that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.storage.atomic_swap import sandbox

KILLED = """
import os, sys
from pathlib import Path
from holdfast.storage.atomic_swap import sandbox
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


def deep(folder: Path) -> None:
    """Make more directories in one another than Python's own rmtree can remove."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory in which other users make things too."""
    folder = tmp_path / "shared"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)  # pytest cannot


def test_directories_too_deep_to_remove_hinder_nobody(shared: Path) -> None:
    (shared / ".holdfast-x.lock").touch()
    deep(shared / ".holdfast-x")
    with sandbox(shared, "work", "one") as place:
        deep(place / "d")
    assert names(shared) >= {".holdfast-x", ".holdfast-x.lock"}
    with sandbox(shared, "work", "two"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("whose", ["lock", "directory"])
def test_what_another_user_has_made_is_left_alone(shared: Path, whose: str) -> None:
    lock, place = shared / ".holdfast-x.lock", shared / ".holdfast-x"
    lock.touch()
    place.mkdir()
    (place / "file").touch()
    os.chown(lock if whose == "lock" else place, 65534, 65534)
    with sandbox(shared, "work", "one"):
        pass
    assert names(shared) == {".holdfast-x", ".holdfast-x.lock"}
    assert names(place) == {"file"}


def test_a_link_or_a_pipe_in_place_of_a_lock_is_left_alone(shared: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    (tmp_path / "lock").touch()
    (shared / ".holdfast-a.lock").symlink_to(tmp_path / "lock")
    (shared / ".holdfast-a").symlink_to(mine)
    os.mkfifo(shared / ".holdfast-b.lock")
    (shared / ".holdfast-c.lock").touch()
    (shared / ".holdfast-c").symlink_to(mine)
    with sandbox(shared, "work", "one"):
        pass
    assert names(mine) == {"file"}
    assert names(shared) >= {".holdfast-a.lock", ".holdfast-b.lock", ".holdfast-c"}


def test_a_place_where_nothing_can_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="a working directory"), sandbox(tmp_path / "file", "work", "one"):
        pass
