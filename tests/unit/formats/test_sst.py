"""Data files of RocksDB, entry by entry, beside what RocksDB was told to write."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict

from golden import NAMES, golden_files
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.files.sst import _File, check_sst, sst_entries
from holdfast.formats.text import Allowance
from holdfast.savepoints.stores import Scratch


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


# What RocksDB's numbers of compressions are in a block's last byte.
COMPRESSIONS = {"none": 0, "snappy": 1, "bz2": 3, "lz4": 4, "lz4hc": 5, "zstd": 7}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_that_rocksdb_reads_here_is_read(tmp_path: Path, compression: str) -> None:
    rows = [(b"k%05d" % number, b"value " * (number % 50)) for number in range(2000)]
    options = Options(raw_mode=True)
    blocks = BlockBasedOptions()
    blocks.set_format_version(5)  # as Spark's
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(getattr(DBCompressionType, compression)())
    database = Rdict(str(tmp_path / "db"), options)
    for key, value in rows:
        database[key] = value
    database.flush()
    database.close()
    data = b"".join(files(tmp_path / "db"))
    check_sst(lambda start, size: data[start : start + size], len(data), "x")
    assert list(sst_entries(data, "x")) == rows
    packed = sum(len(value) for _, value in rows) > 2 * len(data)
    assert packed == (compression != "none")


def test_an_index_that_stores_differences_of_sizes_is_read(tmp_path: Path) -> None:
    """Spark's index has a full entry per block; with a longer interval RocksDB stores differences."""
    rows = [(b"k%05d" % number, b"%04d" % number * (number % 50)) for number in range(2000)]
    options = Options(raw_mode=True)
    blocks = BlockBasedOptions()
    blocks.set_format_version(5)
    blocks.set_index_block_restart_interval(8)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    database = Rdict(str(tmp_path / "db"), options)
    for key, value in rows:
        database[key] = value
    database.flush()
    database.close()
    (data,) = files(tmp_path / "db")
    check_sst(lambda start, size: data[start : start + size], len(data), "x")
    assert list(sst_entries(data, "x")) == rows


def test_a_block_of_bzip2_that_unpacks_to_more_than_it_says_is_damaged() -> None:
    with pytest.raises(ValueError, match="5 bytes in a block of 4"):
        block_of(3, b"\x04" + bz2.compress(b"12345"))
    with pytest.raises(ValueError, match="Invalid data stream"):
        block_of(3, b"\x04BZnot")
    assert block_of(3, b"\x05" + bz2.compress(b"12345")) == b"12345"


@pytest.mark.parametrize(("kind", "found"), [(2, "zlib"), (6, "xpress")])
def test_a_compression_that_is_not_read_here_is_named(kind: int, found: str) -> None:
    with pytest.raises(Unsupported) as error:
        block_of(kind, b"\x05packed")
    assert (error.value.found, error.value.where) == (found, "x")


def block_of(kind: int, packed: bytes) -> bytes:
    """What is in a block of one compression, in a file that sums up nothing."""
    data = packed + bytes([kind]) + bytes(4)
    handle = (0, len(packed))
    allowance = Allowance(len(data), "a file", "x")

    def read(start: int, size: int) -> bytes:
        return data[start : start + size]

    return _File(read, len(data), "x", 0, 5, handle, handle, allowance).block(handle)
