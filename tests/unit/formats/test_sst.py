"""Data files of RocksDB, entry by entry, beside what RocksDB was told to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import NAMES, golden_files
from holdfast.errors import Corrupt
from holdfast.formats.files.sst import sst_entries
from holdfast.savepoints.rewrite.scratch_store import Scratch


def files(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.glob("*.sst"))]


def test_every_row_is_found(tmp_path: Path) -> None:
    rows = [(b"\0k%05d" % number, b"value " * (number % 50)) for number in range(5000)]
    made = Scratch.new(tmp_path / "db")
    made.put(rows)
    made.settle()
    assert [each for data in files(tmp_path / "db") for each in sst_entries(data, "x")] == rows


def test_what_was_deleted_and_overwritten_is_found_too(tmp_path: Path) -> None:
    made = Scratch.new(tmp_path / "db", bulk=False)
    made.put([(b"a", b"first"), (b"b", b"gone")])
    made.database.flush()
    made.put([(b"a", b"second")])
    made.delete([b"b"])
    made.settle()
    found = [each for data in files(tmp_path / "db") for each in sst_entries(data, "x")]
    assert sorted(found) == [(b"a", b"first"), (b"a", b"second"), (b"b", b""), (b"b", b"gone")]


@pytest.mark.parametrize("name", [name for name in NAMES if "rocksdb" in name or "format2" in name])
def test_sparks_own_are_read(name: str) -> None:
    data = [bytes_ for path, bytes_ in golden_files(name).items() if path.endswith(".sst")]
    assert data
    for each in data:
        keys = [key for key, _ in sst_entries(each, "x")]
        assert keys == sorted(keys)
        assert keys


@pytest.mark.parametrize("name", NAMES)
def test_blocks_that_cannot_have_a_key_are_left_out(name: str) -> None:
    for path, data in golden_files(name).items():
        if path.endswith(".sst"):
            _require_found(data)


@pytest.mark.slow
def test_older_values_of_a_key_are_found_in_the_blocks_behind(tmp_path: Path) -> None:
    made = Scratch.new(tmp_path / "db")
    made.put([(b"k%05d" % number, b"v" * 30) for number in range(0, 3000, 3)])
    made.settle()
    for data in files(tmp_path / "db"):
        read = _require_found(data)
        assert read < 100 * 1000  # of 1,000 rows for each of 1,000 keys


def _require_found(data: bytes) -> int:
    """Each key's entries are among those of the blocks that may have it; how many were read in all."""
    everything = list(sst_entries(data, "x"))
    read = 0
    for key in {key for key, _ in everything}:
        found = list(sst_entries(data, "x", {key}))
        read += len(found)
        assert [each for each in found if each[0] == key] == [each for each in everything if each[0] == key]
        for other in (key + b"\0", key[:-1]):
            there = [each for each in sst_entries(data, "x", {other}) if each[0] == other]
            assert there == [each for each in everything if each[0] == other]
    return read


def test_damage_is_named(tmp_path: Path) -> None:
    made = Scratch.new(tmp_path / "db")
    made.put([(b"k%05d" % number, b"v" * 30) for number in range(3000)])
    made.settle()
    (whole,) = files(tmp_path / "db")
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], b"\xff" * len(whole), whole[100:]):
        with pytest.raises(Corrupt, match="x"):
            list(sst_entries(damaged, "x"))
