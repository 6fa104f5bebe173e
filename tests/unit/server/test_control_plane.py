"""The connection by which a server sees that the registry has changed."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.server.control_plane import _Version


def test_the_registry_s_file_is_let_go_when_nobody_asks_any_more(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    version = _Version(path)
    assert version.now() is None
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE jobs (name TEXT)")
        first = version.now()
        assert version.now() == first is not None
        db.execute("INSERT INTO jobs VALUES ('shop')")
        db.commit()
        assert version.now() != first
    connection = version._connection
    assert connection is not None
    del version
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_file_that_is_no_database_is_let_go_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"nothing of the kind" * 100)
    version = _Version(path)
    assert version.now() is None
    assert version._connection is None
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE jobs (name TEXT)")
    assert version.now() is not None


def test_another_file_in_the_place_of_the_registry_is_another_version(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    version, seen = _Version(path), []
    for _ in range(3):
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE jobs (name TEXT)")
        seen.append(version.now())
        assert version.now() == seen[-1]
        path.rename(path.with_suffix(".bad"))  # as the hint of a damaged registry says
        assert version.now() is None
    assert None not in seen
    assert len(set(seen)) == 3


def test_a_registry_that_is_replaced_at_one_stroke_is_another_version(tmp_path: Path) -> None:
    path, fresh = tmp_path / "registry.db", tmp_path / "fresh.db"
    for each in (path, fresh):
        with closing(sqlite3.connect(each)) as db:
            db.execute("CREATE TABLE jobs (name TEXT)")
    version = _Version(path)
    first = version.now()
    fresh.replace(path)
    assert version.now() not in (first, None)
