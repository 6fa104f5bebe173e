"""What a killed JVM leaves is deleted, and nothing else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from holdfast.jobs.processes.driver_process import libraries_of, remove_scratch


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_directories_of_spark_and_libraries_are_deleted(temporary: Path) -> None:
    blocks = temporary / "blockmgr-0b8f6a0e-7f43-4e2a-9a53-0d2b8a1f0c11"
    (blocks / "0a").mkdir(parents=True)
    library, lock = temporary / "librocksdbjni1.so", temporary / "librocksdbjni1.so.lck"
    for file in (library, lock):
        file.touch()
    remove_scratch([str(blocks), str(library), str(temporary / "gone.so")])
    assert list(temporary.iterdir()) == []


def test_other_paths_are_left_alone(temporary: Path) -> None:
    other, below = temporary / "data", temporary / "data" / "mine.so"
    other.mkdir()
    below.touch()
    remove_scratch([str(other), str(below)])
    assert below.exists()


def test_a_process_without_libraries_there_has_none(temporary: Path) -> None:
    assert libraries_of(os.getpid()) == ()
    assert libraries_of(None) == ()


def test_a_mapped_library_is_found(temporary: Path) -> None:
    import mmap

    library = temporary / "libx.so"
    library.write_bytes(bytes(4096))
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert libraries_of(os.getpid()) == (str(library),)
