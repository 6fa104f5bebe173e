"""Sockets of processes that were killed are cleared away, and no others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.engine.session.workers import socket_folder

pytestmark = pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="only Linux lists open sockets")


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory with a short path, as sockets need one."""
    with TemporaryDirectory(prefix="hf", dir="/tmp") as name:
        yield Path(name)


def test_only_old_sockets_that_nobody_has_open_are_removed(base: Path) -> None:
    folder = socket_folder(base)
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    names = {name: folder / f".{name}.sock" for name in ("open", "left", "young")}
    other = folder / "notes.txt"
    other.write_text("not ours")
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(names["open"]))
        for name in ("left", "young"):
            with closing(socket.socket(socket.AF_UNIX)) as gone:
                gone.bind(str(names[name]))
        for name in ("open", "left"):
            os.utime(names[name], (0, 0))
        os.utime(other, (0, 0))
        assert socket_folder(base) == folder
        assert {name for name, path in names.items() if path.exists()} == {"open", "young"}
        assert other.exists()


def test_a_place_that_cannot_serve_is_left_alone(base: Path) -> None:
    long = base / ("x" * 60)
    long.mkdir()
    assert socket_folder(long) is None
    # PySpark hands the path to its workers in lower case.
    capital = base / "Temporary"
    capital.mkdir()
    assert socket_folder(capital) is None
    folder = socket_folder(base)
    assert folder is not None
    folder.rmdir()
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert socket_folder(base) is None
    assert socket_folder(base / "missing") is None
