"""What outlives a crash of the machine once a write has returned, and the error where a flush fails."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import Conflict, Unavailable
from holdfast.storage.local import LocalStorage


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and directories that were flushed, in order."""
    seen: list[Path] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return seen


@pytest.mark.parametrize("operation", ["write", "copy"])
def test_the_names_of_new_directories_are_flushed(
    tmp_path: Path, flushed: list[Path], operation: str
) -> None:
    (tmp_path / "linked").write_bytes(b"1")
    root = tmp_path / "new" / "root"
    if operation == "write":
        LocalStorage(root).write("x/y/z/file", b"1")
    else:
        LocalStorage(root).copy("linked", "x/y/z/file", origin=LocalStorage(tmp_path))
    # The name of a directory is in the one above it.
    named = {tmp_path, tmp_path / "new", root, root / "x", root / "x/y", root / "x/y/z"}
    assert {path for path in flushed if path.is_dir()} == named
    flushed.clear()
    LocalStorage(root).write("x/y/z/other", b"2")
    assert [path for path in flushed if path.is_dir()] == [root / "x/y/z"]


@pytest.mark.parametrize("replace", [False, True], ids=["new", "replaced"])
def test_a_file_that_is_in_place_and_not_flushed_is_reported_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("folder/other", b"0")
    if replace:
        storage.write("folder/file", b"old")

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Unavailable, match="the directory of a file could not be flushed") as caught:
        storage.write("folder/file", b"new", replace=replace)
    assert caught.value.where == f"{storage.uri}/folder/file"
    assert storage.read("folder/file") == b"new"
    monkeypatch.undo()
    if not replace:
        with pytest.raises(Conflict):
            storage.write("folder/file", b"new")
