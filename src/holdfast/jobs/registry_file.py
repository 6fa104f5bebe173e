"""The file of a registry: its tables, its versions, and how processes share it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corrupt, Unavailable, Unsupported
from holdfast.storage.file_lock import lock_holder

VERSION: Final = 3
PATIENCE_S: Final = 15.0
# Where in a file SQLite locks a byte for the one who writes.
_RESERVED: Final = 0x40000001

_SAVEPOINTS: Final = """
CREATE TABLE savepoints (
  job TEXT NOT NULL, query TEXT NOT NULL, at_ms INTEGER NOT NULL, took_ms INTEGER, uri TEXT, batch_id INTEGER,
  size_bytes INTEGER, new_bytes INTEGER, problem TEXT)
"""
_LEADERS: Final = """
CREATE TABLE leaders (
  job TEXT PRIMARY KEY, token INTEGER NOT NULL, holder TEXT NOT NULL, address TEXT NOT NULL,
  lease_ms INTEGER NOT NULL, since_ms INTEGER NOT NULL, beat_ms INTEGER NOT NULL)
"""
_RECOVERIES: Final = """
CREATE TABLE recoveries (
  job TEXT NOT NULL, attempt INTEGER NOT NULL, at_ms INTEGER NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (job, attempt))
"""
# What turns a registry of each earlier version into the next.
_UPGRADES: Final = {1: (_SAVEPOINTS,), 2: (_LEADERS, _RECOVERIES)}

_SCHEMA: Final = (
    _SAVEPOINTS,
    _LEADERS,
    _RECOVERIES,
    """
    CREATE TABLE jobs (
      name TEXT PRIMARY KEY, job_id TEXT NOT NULL, target TEXT NOT NULL, checkpoint TEXT NOT NULL,
      on_cancel TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, started_ms INTEGER NOT NULL,
      updated_ms INTEGER NOT NULL, ended_ms INTEGER, supervisor_pid INTEGER NOT NULL)
    """,
    """
    CREATE TABLE attempts (
      job TEXT NOT NULL, number INTEGER NOT NULL, driver_pid INTEGER NOT NULL, began_ms INTEGER NOT NULL,
      running_ms INTEGER, first_commit_ms INTEGER, ended_ms INTEGER, ending TEXT, failure TEXT,
      recovers INTEGER NOT NULL, PRIMARY KEY (job, number))
    """,
    """
    CREATE TABLE queries (
      job TEXT NOT NULL, name TEXT NOT NULL, query_id TEXT NOT NULL, run_id TEXT NOT NULL,
      checkpoint TEXT NOT NULL, promise TEXT NOT NULL, PRIMARY KEY (job, name))
    """,
    """
    CREATE TABLE batches (
      job TEXT NOT NULL, query TEXT NOT NULL, batch_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
      body TEXT NOT NULL, PRIMARY KEY (job, query, batch_id))
    """,
    """
    CREATE TABLE requests (
      id INTEGER PRIMARY KEY, job TEXT NOT NULL, verb TEXT NOT NULL, asked_ms INTEGER NOT NULL,
      taken_ms INTEGER)
    """,
)


class RegistryFile:
    """The SQLite file of a registry; cheap to open, safe to share between processes.

    Args:
        path: The file; it is made by the first write.
        patience_s: How long to wait while another process writes.
    """

    def __init__(self, path: Path, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self._patience_s = patience_s

    def read(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """The rows that a query finds; none if there is no file yet."""
        if not self.path.exists():
            return []
        with self._connection() as db:
            return [dict(row) for row in db.execute(statement, values)]

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of what is done in it is there afterwards, or none.

        Raises:
            Unavailable: The file cannot be written, or stays locked.
            Corrupt: It is damaged.
            Unsupported: A later version of Holdfast has written it.
        """
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        db: sqlite3.Connection | None = None
        try:
            db = sqlite3.connect(self.path, timeout=self._patience_s, isolation_level=None)
            db.row_factory = sqlite3.Row
            self._prepare(db)
            yield db
        except sqlite3.OperationalError as error:
            raise Unavailable(
                "the registry cannot be used", where=str(self.path), found=str(error)
            ) from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(
                "the registry is damaged",
                where=str(self.path),
                found=str(error),
                hint="move it away: checkpoints are untouched, and the next `holdfast run` makes a new one",
            ) from error
        finally:
            if db is not None:
                db.close()

    def _prepare(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.execute("BEGIN IMMEDIATE")
            # Another process may have made the tables while this one waited for the lock.
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _SCHEMA:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        elif version in _UPGRADES:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] == version:
                for statement in _UPGRADES[version]:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {version + 1}")
            db.execute("COMMIT")
            self._prepare(db)
        elif version != VERSION:
            raise Unsupported(
                "the registry was written by another version of Holdfast",
                where=str(self.path),
                found=f"format {version}",
                expected=f"format {VERSION}",
                hint="use that version, or another state home",
            )


def writer_of(path: Path) -> int | None:
    """The process of this machine that is in the middle of writing a registry; None if there is none."""
    return lock_holder(path, _RESERVED, 1)


def insert(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    """Put a row in place of the one with the same key, or beside the others."""
    names = ", ".join(values)
    marks = ", ".join("?" for _ in values)
    # The names are this module's own, never a person's.
    db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608
