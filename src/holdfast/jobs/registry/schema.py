"""The file of a registry: its tables, its versions, and how processes share it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

from holdfast.storage.file_lock import lock_holder
from holdfast.storage.shared_database import Shape

VERSION: Final = 6
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
# How many attempts of a kind have made room for newer ones.
_DROPPED_ATTEMPTS: Final = """
CREATE TABLE dropped_attempts (
  job TEXT NOT NULL, cause TEXT NOT NULL, recovers INTEGER NOT NULL, failed INTEGER NOT NULL,
  ran INTEGER NOT NULL, initial INTEGER NOT NULL, attempts INTEGER NOT NULL,
  PRIMARY KEY (job, cause, recovers, failed, ran, initial))
"""
_ATTEMPT_KINDS: Final = """
CREATE VIEW attempt_kinds AS SELECT job, number, recovers, ending IS 'failed' AS failed,
  running_ms IS NOT NULL AS ran, number = 1 AS initial,
  iif(failure IS NULL, '', coalesce(json_extract(failure, '$.cause'), 'unknown')) AS cause
FROM attempts
"""
_DATABASES: Final = "CREATE TABLE databases (job TEXT NOT NULL, address TEXT NOT NULL)"
# What turns a registry of each earlier version into the next.
_UPGRADES: Final = {
    1: (_SAVEPOINTS,),
    2: (_LEADERS, _RECOVERIES),
    3: (_DROPPED_ATTEMPTS, _ATTEMPT_KINDS),
    4: ("ALTER TABLE jobs ADD COLUMN savepoint_catalog TEXT",),
    5: (_DATABASES,),
}

_SCHEMA: Final = (
    _SAVEPOINTS,
    _LEADERS,
    _RECOVERIES,
    _DROPPED_ATTEMPTS,
    _DATABASES,
    """
    CREATE TABLE jobs (
      name TEXT PRIMARY KEY, job_id TEXT NOT NULL, target TEXT NOT NULL, checkpoint TEXT NOT NULL,
      on_cancel TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, started_ms INTEGER NOT NULL,
      updated_ms INTEGER NOT NULL, ended_ms INTEGER, supervisor_pid INTEGER NOT NULL,
      savepoint_catalog TEXT)
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
    _ATTEMPT_KINDS,
)


REGISTRY: Final = Shape(
    "the registry",
    VERSION,
    _SCHEMA,
    "move it away: checkpoints are untouched, and the next `holdfast run` makes a new one",
    _UPGRADES,
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
