"""A SQLite file that several processes share, looked at by one that may change nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast.errors import Corrupt, Unavailable, Unsupported
from holdfast.storage.shared_database import DatabaseShape, SharedDatabase

FIRST = DatabaseShape("the list", 1, ["CREATE TABLE words (word TEXT)"], "delete it")
SECOND = DatabaseShape(
    "the list",
    2,
    ["CREATE TABLE words (word TEXT, times INTEGER)"],
    "delete it",
    {1: ["ALTER TABLE words ADD COLUMN times INTEGER"]},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "with ? and #" / "list.db"
    made.parent.mkdir()
    with SharedDatabase(made, FIRST).write() as db:
        db.execute("INSERT INTO words VALUES ('one')")
    return made


def reader(path: Path, shape: DatabaseShape = FIRST) -> SharedDatabase:
    return SharedDatabase(path, shape, patience_s=0.01, read_only=True)


def state(path: Path) -> tuple[list[str], bytes, int, int]:
    return (
        sorted(each.name for each in path.parent.iterdir()),
        path.read_bytes(),
        path.stat().st_mode,
        path.stat().st_mtime_ns,
    )


def test_it_reads_what_is_there_and_leaves_the_file_as_it_is(path: Path) -> None:
    path.chmod(0o644)
    before = state(path)
    assert reader(path).read("SELECT * FROM words") == [{"word": "one"}]
    assert state(path) == before


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert reader(tmp_path / "none.db").read("SELECT * FROM words") == []
    assert list(tmp_path.iterdir()) == []


def test_a_write_is_refused(path: Path) -> None:
    before = state(path)
    with pytest.raises(Unavailable, match="readonly"), reader(path).write() as db:
        db.execute("INSERT INTO words VALUES ('two')")
    assert state(path) == before


def test_tables_of_an_earlier_version_stay(path: Path) -> None:
    before = state(path)
    with pytest.raises(Unsupported, match="format 1"):
        reader(path, SECOND).read("SELECT * FROM words")
    assert state(path) == before
    assert SharedDatabase(path, SECOND).read("SELECT * FROM words") == [{"word": "one", "times": None}]


def test_an_empty_file_stays_empty(tmp_path: Path) -> None:
    empty = tmp_path / "list.db"
    empty.write_bytes(b"")
    with pytest.raises(Unsupported):
        reader(empty).read("SELECT * FROM words")
    assert empty.read_bytes() == b""


def test_damage_is_told(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(Corrupt):
        reader(path).read("SELECT * FROM words")


def test_it_waits_no_longer_than_it_may(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(Unavailable, match="locked"):
            reader(path).read("SELECT * FROM words")
    finally:
        other.close()
