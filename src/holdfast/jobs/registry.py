"""What a state home remembers of its jobs: one SQLite file that any process may read.

It holds nothing that a checkpoint does not hold better: lose it, and the next `holdfast run` starts it
anew. Jobs, their attempts, batches and requests are found by the job's name.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import Corrupt, NotFound, Unavailable, Unsupported
from holdfast.model import BatchProgress, Failure, JobState, QueryStarted, SavepointNote

VERSION = 2
BATCHES_KEPT = 1000
SAVEPOINTS_KEPT = 100
_BUSY_S = 15.0

_SAVEPOINTS = """
CREATE TABLE savepoints (
  job TEXT NOT NULL, query TEXT NOT NULL, at_ms INTEGER NOT NULL, took_ms INTEGER, uri TEXT, batch_id INTEGER,
  size_bytes INTEGER, new_bytes INTEGER, problem TEXT)
"""
# What turns a registry of each earlier version into the next.
_UPGRADES = {1: _SAVEPOINTS}

_SCHEMA = f"""
{_SAVEPOINTS};
CREATE TABLE jobs (
  name TEXT PRIMARY KEY, job_id TEXT NOT NULL, target TEXT NOT NULL, checkpoint TEXT NOT NULL,
  on_cancel TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, started_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL, ended_ms INTEGER, supervisor_pid INTEGER NOT NULL);
CREATE TABLE attempts (
  job TEXT NOT NULL, number INTEGER NOT NULL, driver_pid INTEGER NOT NULL, began_ms INTEGER NOT NULL,
  running_ms INTEGER, first_commit_ms INTEGER, ended_ms INTEGER, ending TEXT, failure TEXT,
  recovers INTEGER NOT NULL, PRIMARY KEY (job, number));
CREATE TABLE queries (
  job TEXT NOT NULL, name TEXT NOT NULL, query_id TEXT NOT NULL, run_id TEXT NOT NULL,
  checkpoint TEXT NOT NULL, promise TEXT NOT NULL, PRIMARY KEY (job, name));
CREATE TABLE batches (
  job TEXT NOT NULL, query TEXT NOT NULL, batch_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
  body TEXT NOT NULL, PRIMARY KEY (job, query, batch_id));
CREATE TABLE requests (
  id INTEGER PRIMARY KEY, job TEXT NOT NULL, verb TEXT NOT NULL, asked_ms INTEGER NOT NULL, taken_ms INTEGER);
"""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the registry knows it."""

    name: str
    job_id: str
    target: str
    checkpoint: str
    on_cancel: str
    state: JobState
    reason: str | None
    started_ms: int
    updated_ms: int
    ended_ms: int | None
    supervisor_pid: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One driver of a job, from its start to its end.

    Attributes:
        number: Counted over the job's whole life.
        running_ms: When its queries had started.
        first_commit_ms: When its first batch was committed.
        ending: `finished`, `stopped`, `canceled`, `failed` or `lost`; None while it runs.
        recovers: Whether it follows a failed attempt under the same supervisor.
    """

    job: str
    number: int
    driver_pid: int
    began_ms: int
    running_ms: int | None
    first_commit_ms: int | None
    ended_ms: int | None
    ending: str | None
    failure: Failure | None
    recovers: bool


def job_id(name: str) -> str:
    """32 hex digits that depend on the name alone, so that a lost registry gives the same again."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast:{name}").hex


class Registry:
    """The registry of one state home; cheap to open, safe to share between processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start_job(self, record: JobRecord) -> None:
        """Note that a supervisor has taken the job; requests made before that are void."""
        with self._write() as db:
            db.execute("DELETE FROM requests WHERE job = ?", (record.name,))
            _insert(db, "jobs", {**asdict(record), "state": record.state.value})

    def set_state(self, job: str, state: JobState, now_ms: int, reason: str | None = None) -> None:
        """Move a job to another state; a terminal one also ends it."""
        ended = now_ms if state.terminal else None
        with self._write() as db:
            db.execute(
                "UPDATE jobs SET state = ?, reason = ?, updated_ms = ?, ended_ms = ? WHERE name = ?",
                (state.value, reason, now_ms, ended, job),
            )

    def start_attempt(self, job: str, driver_pid: int, now_ms: int, *, recovers: bool) -> int:
        """Note a new driver and return its number; attempts that never ended are marked lost."""
        with self._write() as db:
            db.execute("UPDATE attempts SET ending = 'lost' WHERE job = ? AND ending IS NULL", (job,))
            row = db.execute("SELECT coalesce(max(number), 0) + 1 FROM attempts WHERE job = ?", (job,))
            number = int(row.fetchone()[0])
            values = {"job": job, "number": number, "driver_pid": driver_pid, "began_ms": now_ms}
            _insert(db, "attempts", {**values, "recovers": int(recovers)})
        return number

    def queries_started(self, job: str, number: int, queries: Sequence[QueryStarted], now_ms: int) -> None:
        """Note that an attempt's queries run."""
        with self._write() as db:
            db.execute(
                "UPDATE attempts SET running_ms = ? WHERE job = ? AND number = ?", (now_ms, job, number)
            )
            for query in queries:
                _insert(db, "queries", {"job": job, **asdict(query)})
            db.execute(
                "UPDATE jobs SET state = ?, updated_ms = ? WHERE name = ?",
                (JobState.RUNNING.value, now_ms, job),
            )

    def add_batch(self, job: str, number: int, batch: BatchProgress) -> None:
        """Note a committed batch; only the newest `BATCHES_KEPT` of a query stay."""
        body = json.dumps(batch.as_dict())
        with self._write() as db:
            key = {"job": job, "query": batch.query, "batch_id": batch.batch_id}
            _insert(db, "batches", {**key, "attempt": number, "body": body})
            db.execute(
                "DELETE FROM batches WHERE job = ? AND query = ? AND batch_id <= ?",
                (job, batch.query, batch.batch_id - BATCHES_KEPT),
            )
            db.execute(
                "UPDATE attempts SET first_commit_ms = ?"
                " WHERE job = ? AND number = ? AND first_commit_ms IS NULL",
                (batch.committed_ms, job, number),
            )
            db.execute("UPDATE jobs SET updated_ms = ? WHERE name = ?", (batch.committed_ms, job))

    def add_savepoint(self, job: str, note: SavepointNote) -> None:
        """Note a savepoint that was taken, or could not be; a job's newest `SAVEPOINTS_KEPT` stay."""
        with self._write() as db:
            _insert(db, "savepoints", {"job": job, **asdict(note)})
            db.execute(
                "DELETE FROM savepoints WHERE job = ? AND rowid NOT IN"
                " (SELECT rowid FROM savepoints WHERE job = ? ORDER BY rowid DESC LIMIT ?)",
                (job, job, SAVEPOINTS_KEPT),
            )

    def end_attempt(self, job: str, number: int, ending: str, failure: Failure | None, now_ms: int) -> None:
        """Note how and when a driver ended."""
        text = json.dumps(asdict(failure)) if failure else None
        with self._write() as db:
            db.execute(
                "UPDATE attempts SET ended_ms = ?, ending = ?, failure = ? WHERE job = ? AND number = ?",
                (now_ms, ending, text, job, number),
            )

    def jobs(self) -> list[JobRecord]:
        """Every job, the most recently started first; none if the home is new."""
        return [_job(row) for row in self._read("SELECT * FROM jobs ORDER BY started_ms DESC, name")]

    def job(self, name: str) -> JobRecord:
        """One job, by its name or its 32-digit id.

        Raises:
            NotFound: This state home has no such job.
        """
        rows = self._read("SELECT * FROM jobs WHERE name = ? OR job_id = ?", name, name)
        if not rows:
            names = ", ".join(job.name for job in self.jobs())
            raise NotFound(
                f"there is no job {name!r} in this state home",
                where=str(self.path),
                found=names or "no job at all",
                hint="see the jobs with `holdfast list`; another state home is named with --home",
            )
        return _job(rows[0])

    def attempts(self, job: str) -> list[Attempt]:
        """A job's attempts, oldest first."""
        return [
            _attempt(row) for row in self._read("SELECT * FROM attempts WHERE job = ? ORDER BY number", job)
        ]

    def queries(self, job: str) -> list[QueryStarted]:
        """The queries of a job's newest attempt."""
        rows = self._read(
            "SELECT name, query_id, run_id, checkpoint, promise FROM queries WHERE job = ? ORDER BY rowid",
            job,
        )
        return [QueryStarted(**row) for row in rows]

    def batches(self, job: str, limit: int = BATCHES_KEPT) -> list[BatchProgress]:
        """A job's newest batches, oldest first."""
        rows = self._read(
            "SELECT body FROM batches WHERE job = ?"
            " ORDER BY json_extract(body, '$.committed_ms') DESC, query DESC, batch_id DESC LIMIT ?",
            job,
            limit,
        )
        found = [BatchProgress.from_dict(json.loads(row["body"])) for row in rows]
        return sorted(found, key=lambda each: (each.committed_ms, each.query, each.batch_id))

    def newest_batches(self, job: str) -> list[BatchProgress]:
        """The newest batch of each of a job's queries."""
        rows = self._read(
            "SELECT body FROM batches AS one WHERE job = ? AND batch_id ="
            " (SELECT max(batch_id) FROM batches WHERE job = one.job AND query = one.query)",
            job,
        )
        return [BatchProgress.from_dict(json.loads(row["body"])) for row in rows]

    def savepoints(self, job: str) -> list[SavepointNote]:
        """The savepoints that the job's supervisors have taken or failed to take, oldest first."""
        rows = self._read("SELECT * FROM savepoints WHERE job = ? ORDER BY rowid", job)
        return [SavepointNote(**{key: each for key, each in row.items() if key != "job"}) for row in rows]

    def request(self, job: str, verb: str, now_ms: int) -> None:
        """Ask a job's supervisor for something."""
        with self._write() as db:
            _insert(db, "requests", {"job": job, "verb": verb, "asked_ms": now_ms})

    def was_asked(self, job: str, verb: str, since_ms: int) -> bool:
        """Whether somebody has asked for something since then; a job that is started anew forgets it."""
        return bool(
            self._read(
                "SELECT 1 FROM requests WHERE job = ? AND verb = ? AND asked_ms >= ? LIMIT 1",
                job,
                verb,
                since_ms,
            )
        )

    def take_requests(self, job: str, now_ms: int) -> list[str]:
        """The verbs asked for since the last call, each handed out once."""
        pending = self._read(
            "SELECT id, verb FROM requests WHERE job = ? AND taken_ms IS NULL ORDER BY id", job
        )
        if pending:
            with self._write() as db:
                marks = [(now_ms, row["id"]) for row in pending]
                db.executemany("UPDATE requests SET taken_ms = ? WHERE id = ?", marks)
        return [str(row["verb"]) for row in pending]

    def _read(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self._connection() as db:
            return [dict(row) for row in db.execute(statement, values)]

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
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
            db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
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
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        elif version in _UPGRADES:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] == version:
                db.execute(_UPGRADES[version])
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


def _insert(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    names = ", ".join(values)
    marks = ", ".join("?" for _ in values)
    # The names are this module's own, never a person's.
    db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608


def _job(row: dict[str, Any]) -> JobRecord:
    return JobRecord(**{**row, "state": JobState(row["state"])})


def _attempt(row: dict[str, Any]) -> Attempt:
    failure = Failure(**json.loads(row["failure"])) if row["failure"] else None
    return Attempt(**{**row, "failure": failure, "recovers": bool(row["recovers"])})
