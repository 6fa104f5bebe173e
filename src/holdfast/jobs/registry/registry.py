"""The registry of a state home: one SQLite file that any process may read.

The newest attempts are kept one by one; older ones are kept as counts per kind of ending.

The registry can be rebuilt: after a loss the next `holdfast run` creates it again from the checkpoint.
Jobs, their attempts, batches and requests are found by the job's name.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.errors import NotFound
from holdfast.formats.manifest import Manifest
from holdfast.jobs.recovery import RecoveryTimes
from holdfast.model import BatchProgress, Failure, JobKind, JobState, QueryStarted, SavepointNote
from holdfast.ownership.election import Leader, LeadershipLost
from holdfast.plain_values import READ, from_known
from holdfast.storage.file_lock import lock_holder
from holdfast.storage.shared_database import PATIENCE_S, DatabaseShape, SharedDatabase

VERSION: Final = 8
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
_STANDBYS: Final = """
CREATE TABLE standbys (
  job TEXT PRIMARY KEY, pid INTEGER NOT NULL, ready_ms INTEGER NOT NULL, memory_bytes INTEGER NOT NULL)
"""
# What turns a registry of each earlier version into the next.
_UPGRADES: Final = {
    1: (_SAVEPOINTS,),
    2: (_LEADERS, _RECOVERIES),
    3: (_DROPPED_ATTEMPTS, _ATTEMPT_KINDS),
    4: ("ALTER TABLE jobs ADD COLUMN savepoint_catalog TEXT",),
    5: (_DATABASES,),
    6: (_STANDBYS,),
    7: ("ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'job'",),
}

_SCHEMA: Final = (
    _SAVEPOINTS,
    _LEADERS,
    _RECOVERIES,
    _DROPPED_ATTEMPTS,
    _DATABASES,
    _STANDBYS,
    """
    CREATE TABLE jobs (
      name TEXT PRIMARY KEY, job_id TEXT NOT NULL, target TEXT NOT NULL, checkpoint TEXT NOT NULL,
      on_cancel TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, started_ms INTEGER NOT NULL,
      updated_ms INTEGER NOT NULL, ended_ms INTEGER, supervisor_pid INTEGER NOT NULL,
      savepoint_catalog TEXT, kind TEXT NOT NULL DEFAULT 'job')
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


REGISTRY: Final = DatabaseShape(
    "the registry",
    VERSION,
    _SCHEMA,
    "move it away; checkpoints are not affected, and the next `holdfast run` creates a new one",
    _UPGRADES,
)


def writer_of(path: Path) -> int | None:
    """Return the pid of the local process that is writing the registry, or None."""
    return lock_holder(path, _RESERVED, 1)


def insert(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    """Insert a row, or replace the one with the same key."""
    names = ", ".join(values)
    marks = ", ".join("?" for _ in values)
    # The names are this module's own, never a person's.
    db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608


ATTEMPTS_KEPT: Final = 200
# So many of them keep the whole text of their failure.
DETAILS_KEPT: Final = 20

COUNTED: Final = """
SELECT cause, recovers, failed, ran, initial, count(*) AS attempts FROM attempt_kinds WHERE job = ?
GROUP BY cause, recovers, failed, ran, initial
UNION ALL SELECT cause, recovers, failed, ran, initial, attempts FROM dropped_attempts WHERE job = ?
"""
_DROP: Final = """
INSERT INTO dropped_attempts
SELECT job, cause, recovers, failed, ran, initial, count(*) FROM attempt_kinds
WHERE job = ? AND number <= ? AND number NOT IN (?, ?) GROUP BY cause, recovers, failed, ran, initial
ON CONFLICT DO UPDATE SET attempts = attempts + excluded.attempts
"""
# A recovery that lasts began with the failure of one of the two.
_BEGINNINGS: Final = """
SELECT coalesce(max(CASE WHEN first_commit_ms IS NOT NULL THEN number END), 0),
  coalesce(max(CASE WHEN recovers = 0 THEN number END), 0) FROM attempts WHERE job = ?
"""


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Counts of a job's attempts.

    Attributes:
        restarts: Attempts that followed a failed one.
        failed: Attempts that failed.
        failed_running: Attempts that failed after their queries had started.
        restored: Attempts after the first whose queries had started.
        causes: Failed attempts by cause (who has to fix it).
    """

    restarts: int = 0
    failed: int = 0
    failed_running: int = 0
    restored: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kinds: Iterable[Mapping[str, Any]]) -> AttemptCounts:
        """Sum the rows of `COUNTED`."""
        sums: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        for kind in kinds:
            attempts, ran, failed = kind["attempts"], kind["ran"], kind["failed"]
            sums["restarts"] += attempts * kind["recovers"]
            sums["failed"] += attempts * failed
            sums["failed_running"] += attempts * failed * ran
            sums["restored"] += attempts * ran * (1 - kind["initial"])
            if kind["cause"]:
                causes[kind["cause"]] += attempts
        return cls(**sums, causes=dict(causes))


def make_room(db: sqlite3.Connection, job: str, newest: int) -> None:
    """Keep the newest attempts of a job and the rest as counts, in an open transaction."""
    last, beginnings = newest - ATTEMPTS_KEPT, tuple(db.execute(_BEGINNINGS, (job,)).fetchone())
    db.execute(_DROP, (job, last, *beginnings))
    db.execute(
        "DELETE FROM attempts WHERE job = ? AND number <= ? AND number NOT IN (?, ?)",
        (job, last, *beginnings),
    )
    db.execute(
        "UPDATE attempts SET failure = json_set(failure, '$.detail', '')"
        " WHERE job = ? AND number <= ? AND json_extract(failure, '$.detail') != ''",
        (job, newest - DETAILS_KEPT),
    )


T = TypeVar("T")

BATCHES_KEPT = 1000
SAVEPOINTS_KEPT = 100
RECOVERIES_KEPT = 100


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's row in the registry.

    Attributes:
        name: The job's name, unique within the state home.
        job_id: 32 hexadecimal digits derived from the name alone.
        target: The job file, and the job in it.
        checkpoint: The directory where its queries keep their state.
        on_cancel: `retain` or `delete`: what happens to the checkpoint of a cancelled job.
        state: The job's state, in Flink's terms.
        reason: The reason for this state, for example why the job ended or restarts.
        started_ms: The time when its supervisor started it, in epoch milliseconds.
        updated_ms: The time of the last update.
        ended_ms: The time when it ended for good.
        supervisor_pid: The process id of its supervisor.
        savepoint_catalog: The savepoint directory from the job's settings, if set.
        kind: `job`; for a query under `hf.watch` or `hf.guard`, `watched` or `guarded`: its own process takes
            the place of the supervisor. For a query that is known from its checkpoint alone, `checkpoint`:
            it has no row in the registry, and neither a job file nor a supervisor.
    """

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
    savepoint_catalog: str | None = None
    kind: JobKind = JobKind.JOB

    @classmethod
    def begun(
        cls,
        name: str,
        target: str,
        checkpoint: str,
        on_cancel: str,
        now_ms: int,
        since_ms: int | None,
        savepoint_catalog: str | None = None,
        kind: JobKind = JobKind.JOB,
    ) -> JobRecord:
        """Return the record of a newly supervised job; `since_ms` is its earlier start, if any."""
        began_ms = now_ms if since_ms is None else since_ms
        created = JobState.CREATED
        return cls(
            name,
            job_id(name),
            target,
            checkpoint,
            on_cancel,
            created,
            reason=None,
            started_ms=began_ms,
            updated_ms=now_ms,
            ended_ms=None,
            supervisor_pid=os.getpid(),
            savepoint_catalog=savepoint_catalog,
            kind=kind,
        )


@dataclass(frozen=True, slots=True)
class Standby:
    """A driver that is ready to take over.

    Attributes:
        pid: Its process id.
        ready_ms: The time since which it is ready, in epoch milliseconds.
        memory_bytes: The resident memory of the driver and its child processes at that time.
    """

    pid: int
    ready_ms: int
    memory_bytes: int


def _failure(text: str | None) -> Failure | None:
    return None if text is None else from_known(Failure, json.loads(text))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One driver of a job, from its start to its end.

    Attributes:
        job: The job's name.
        number: The attempt's number, counted over the job's whole life.
        driver_pid: The driver's process id.
        began_ms: The time when it was started, in epoch milliseconds.
        running_ms: The time when its queries had started.
        first_commit_ms: The time when its first batch was committed.
        ended_ms: The time when it ended.
        ending: `finished`, `stopped`, `canceled`, `failed` or `lost`; None while it runs.
        failure: The failure that ended it, if it failed.
        recovers: True if it follows a failed attempt under the same supervisor.
    """

    job: str
    number: int
    driver_pid: int
    began_ms: int
    running_ms: int | None
    first_commit_ms: int | None
    ended_ms: int | None
    ending: str | None
    failure: Failure | None = field(metadata={READ: _failure})
    recovers: bool = field(metadata={READ: bool})


def job_id(name: str) -> str:
    """Return 32 hex digits derived from the name alone, so that they survive the loss of the registry."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast:{name}").hex


class Registry:
    """The registry of one state home; cheap to open, safe to share between processes.

    Args:
        path: The registry's file.
        token: The fencing token of the leader that writes. A write about a job is refused with
            `LeadershipLost` if another leader has come since. None where the job has a single supervisor.
        patience_s: The maximum wait, in seconds, while another process writes.
        read_only: Open the registry for reading only; see `SharedDatabase`.
    """

    def __init__(
        self,
        path: Path,
        token: int | None = None,
        *,
        patience_s: float = PATIENCE_S,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._token = token
        self._file = SharedDatabase(path, REGISTRY, patience_s, read_only=read_only)

    def start_job(self, record: JobRecord) -> None:
        """Record that a supervisor has taken the job.

        Earlier requests are discarded, unless a leader takes over a running job: it has to answer them.
        """
        with self._writing(record.name) as db:
            row = db.execute("SELECT state FROM jobs WHERE name = ?", (record.name,)).fetchone()
            if self._token is None or row is None or JobState(row["state"]).terminal:
                db.execute("DELETE FROM requests WHERE job = ?", (record.name,))
                db.execute("DELETE FROM standbys WHERE job = ?", (record.name,))
            kind = {"state": record.state.value, "kind": record.kind.value}
            insert(db, "jobs", {**asdict(record), **kind})

    def lead(self, job: str, leader: Leader) -> None:
        """Record the leader of a job; earlier leaders can no longer write about it.

        Raises:
            LeadershipLost: A leader with a later term exists.
        """
        with self._file.write() as db:
            row = db.execute("SELECT token FROM leaders WHERE job = ?", (job,)).fetchone()
            if row is not None and row["token"] > leader.token:
                raise _leadership_lost(job, self.path, leader.token, row["token"])
            insert(db, "leaders", {"job": job, **asdict(leader)})

    def beat(self, job: str, now_ms: int) -> None:
        """Record a sign of life of the leader.

        Raises:
            LeadershipLost: Another one leads.
        """
        with self._writing(job) as db:
            db.execute("UPDATE leaders SET beat_ms = ? WHERE job = ?", (now_ms, job))

    def set_standby(self, job: str, standby: Standby) -> None:
        """Record a job's standby driver, in place of an earlier one."""
        with self._file.write() as db:
            insert(db, "standbys", {"job": job, **asdict(standby)})

    def end_standby(self, job: str, pid: int) -> None:
        """Record that a standby driver has taken over or has ended."""
        with self._file.write() as db:
            db.execute("DELETE FROM standbys WHERE job = ? AND pid = ?", (job, pid))

    def standby(self, job: str) -> Standby | None:
        """Return the standby driver of a job, or None."""
        return next(iter(self._read(Standby, "SELECT * FROM standbys WHERE job = ?", job)), None)

    def leader(self, job: str) -> Leader | None:
        """Return the last leader of a job; None if it never had several supervisors."""
        return next(iter(self._read(Leader, "SELECT * FROM leaders WHERE job = ?", job)), None)

    def leaders(self) -> dict[str, Leader]:
        """Return the last leader of each job, by name."""
        rows = self._file.read("SELECT * FROM leaders")
        return {str(row["job"]): from_known(Leader, row) for row in rows}

    def add_recovery(self, job: str, recovery: RecoveryTimes) -> None:
        """Record how long a recovery took; a job's newest `RECOVERIES_KEPT` are kept."""
        body = json.dumps(recovery.as_dict())
        key = {"job": job, "attempt": recovery.attempt, "at_ms": recovery.at_ms}
        with self._writing(job) as db:
            insert(db, "recoveries", {**key, "body": body})
            db.execute(
                "DELETE FROM recoveries WHERE job = ? AND attempt NOT IN"
                " (SELECT attempt FROM recoveries WHERE job = ? ORDER BY attempt DESC LIMIT ?)",
                (job, job, RECOVERIES_KEPT),
            )

    def recoveries(self, job: str) -> list[RecoveryTimes]:
        """Return the recoveries of a job, oldest first."""
        rows = self._file.read("SELECT body FROM recoveries WHERE job = ? ORDER BY attempt", job)
        return [from_known(RecoveryTimes, json.loads(row["body"])) for row in rows]

    def set_state(self, job: str, state: JobState, now_ms: int, reason: str | None = None) -> None:
        """Record a job's new state; for a terminal state, also record `now_ms` as the job's end."""
        ended = now_ms if state.terminal else None
        with self._writing(job) as db:
            db.execute(
                "UPDATE jobs SET state = ?, reason = ?, updated_ms = ?, ended_ms = ? WHERE name = ?",
                (state.value, reason, now_ms, ended, job),
            )

    def start_attempt(self, job: str, driver_pid: int, now_ms: int, *, recovers: bool) -> int:
        """Record a new driver and return its number; attempts without an end are marked lost.

        The newest `ATTEMPTS_KEPT` are kept; older ones only in the counts of `attempt_counts`.
        """
        with self._writing(job) as db:
            db.execute("UPDATE attempts SET ending = 'lost' WHERE job = ? AND ending IS NULL", (job,))
            row = db.execute("SELECT coalesce(max(number), 0) + 1 FROM attempts WHERE job = ?", (job,))
            number = int(row.fetchone()[0])
            values = {"job": job, "number": number, "driver_pid": driver_pid, "began_ms": now_ms}
            insert(db, "attempts", {**values, "recovers": int(recovers)})
            make_room(db, job, number)
        return number

    def queries_started(
        self,
        job: str,
        number: int,
        queries: Sequence[QueryStarted],
        now_ms: int,
        databases: Sequence[str] = (),
    ) -> None:
        """Record that an attempt's queries run; the reason of the previous state is cleared.

        Queries that the job no longer has are removed, and so are batches of former checkpoints: a query with
        a different id counts from 0 again.

        Args:
            job: The job's name.
            number: The attempt.
            queries: All queries of the job.
            now_ms: The time in epoch milliseconds.
            databases: The state databases that the job's code names; they replace the earlier ones.
        """
        with self._writing(job) as db:
            same = [
                query.name
                for query in queries
                if db.execute(
                    "SELECT 1 FROM queries WHERE job = ? AND name = ? AND query_id = ?",
                    (job, query.name, query.query_id),
                ).fetchone()
            ]
            db.execute(
                "DELETE FROM batches WHERE job = ? AND attempt < ?"
                " AND query NOT IN (SELECT value FROM json_each(?))",
                (job, number, json.dumps(same)),
            )
            db.execute("DELETE FROM queries WHERE job = ?", (job,))
            db.execute(
                "UPDATE attempts SET running_ms = ? WHERE job = ? AND number = ?", (now_ms, job, number)
            )
            for query in queries:
                insert(db, "queries", {"job": job, **asdict(query)})
            db.execute("DELETE FROM databases WHERE job = ?", (job,))
            for address in databases:
                insert(db, "databases", {"job": job, "address": address})
            db.execute(
                "UPDATE jobs SET state = ?, reason = NULL, updated_ms = ? WHERE name = ?",
                (JobState.RUNNING.value, now_ms, job),
            )

    def add_batch(self, job: str, number: int, batch: BatchProgress) -> None:
        """Record a committed batch; the newest `BATCHES_KEPT` of a query are kept.

        Later batches of earlier attempts are removed: the query has resumed from an older batch.
        """
        body = json.dumps(batch.as_dict())
        with self._writing(job) as db:
            key = {"job": job, "query": batch.query, "batch_id": batch.batch_id}
            insert(db, "batches", {**key, "attempt": number, "body": body})
            db.execute(
                "DELETE FROM batches WHERE job = ? AND query = ?"
                " AND (batch_id <= ? OR batch_id > ? AND attempt < ?)",
                (job, batch.query, batch.batch_id - BATCHES_KEPT, batch.batch_id, number),
            )
            db.execute(
                "UPDATE attempts SET first_commit_ms = ?"
                " WHERE job = ? AND number = ? AND first_commit_ms IS NULL",
                (batch.committed_ms, job, number),
            )
            db.execute("UPDATE jobs SET updated_ms = ? WHERE name = ?", (batch.committed_ms, job))

    def add_savepoint(self, job: str, note: SavepointNote) -> None:
        """Record a savepoint that was taken or failed; a job's newest `SAVEPOINTS_KEPT` are kept.

        The newest of each directory is kept too: requests may name the directories of a job's savepoints.
        """
        with self._writing(job) as db:
            insert(db, "savepoints", {"job": job, **asdict(note)})
            db.execute(
                "DELETE FROM savepoints WHERE job = ? AND rowid NOT IN"
                " (SELECT rowid FROM savepoints WHERE job = ? ORDER BY rowid DESC LIMIT ?) AND rowid NOT IN"
                " (SELECT max(rowid) FROM savepoints WHERE job = ? AND uri IS NOT NULL"
                " GROUP BY rtrim(uri, replace(uri, '/', '')))",
                (job, job, SAVEPOINTS_KEPT, job),
            )

    def end_attempt(self, job: str, number: int, ending: str, failure: Failure | None, now_ms: int) -> None:
        """Record how and when a driver ended."""
        text = json.dumps(asdict(failure)) if failure else None
        with self._writing(job) as db:
            db.execute(
                "UPDATE attempts SET ended_ms = ?, ending = ?, failure = ? WHERE job = ? AND number = ?",
                (now_ms, ending, text, job, number),
            )

    def jobs(self) -> list[JobRecord]:
        """Return every job, the most recently started first."""
        return self._read(JobRecord, "SELECT * FROM jobs ORDER BY started_ms DESC, name")

    def job(self, name: str) -> JobRecord:
        """Return a job by its name or its 32-digit id.

        Raises:
            NotFound: This state home has no such job.
        """
        named = self._read(JobRecord, "SELECT * FROM jobs WHERE name = ? OR job_id = ?", name, name)
        if not named:
            names = ", ".join(job.name for job in self.jobs())
            raise NotFound(
                f"unknown job {name!r} in this state home",
                code="HF-E3048",
                expected=names or None,
                where=str(self.path),
                hint="list the jobs with `holdfast list`; give a different state home with --home",
            )
        return named[0]

    def checkpoints(self) -> set[str]:
        """Return the checkpoints of all jobs and of their queries."""
        rows = self._file.read("SELECT checkpoint FROM jobs UNION SELECT checkpoint FROM queries")
        return {str(row["checkpoint"]) for row in rows}

    def attempts(self, job: str) -> list[Attempt]:
        """Return a job's newest attempts, oldest first."""
        return self._read(Attempt, "SELECT * FROM attempts WHERE job = ? ORDER BY number", job)

    def attempt_counts(self, job: str) -> AttemptCounts:
        """Return the counts of a job's attempts over its whole life."""
        return AttemptCounts.of(self._file.read(COUNTED, job, job))

    def queries(self, job: str) -> list[QueryStarted]:
        """Return the queries of a job's newest attempt."""
        return self._read(QueryStarted, "SELECT * FROM queries WHERE job = ? ORDER BY rowid", job)

    def databases(self) -> list[str]:
        """Return the addresses of databases that the code of any job names for its state."""
        return [str(row["address"]) for row in self._file.read("SELECT DISTINCT address FROM databases")]

    def batches(self, job: str, limit: int = BATCHES_KEPT) -> list[BatchProgress]:
        """Return a job's newest batches, oldest first; at most `limit`."""
        newest = "SELECT body FROM batches WHERE job = ? AND query = ? ORDER BY batch_id DESC LIMIT ?"
        rows = [
            row
            for query in self._file.read("SELECT DISTINCT query FROM batches WHERE job = ?", job)
            for row in self._file.read(newest, job, query["query"], limit)
        ]
        batches = [BatchProgress.from_dict(json.loads(row["body"])) for row in rows]
        return sorted(batches, key=lambda batch: (batch.committed_ms, batch.query, batch.batch_id))[-limit:]

    def newest_batches(self, job: str) -> list[BatchProgress]:
        """Return the newest batch of each query of a job."""
        rows = self._file.read(
            "SELECT body FROM batches AS one WHERE job = ? AND batch_id ="
            " (SELECT max(batch_id) FROM batches WHERE job = one.job AND query = one.query)",
            job,
        )
        return [BatchProgress.from_dict(json.loads(row["body"])) for row in rows]

    def savepoints(self, job: str) -> list[SavepointNote]:
        """Return the savepoints that the job's supervisors took or failed to take, oldest first."""
        return self._read(SavepointNote, "SELECT * FROM savepoints WHERE job = ? ORDER BY rowid", job)

    def request(self, job: str, verb: str, now_ms: int) -> None:
        """Send a request to a job's supervisor."""
        with self._file.write() as db:
            insert(db, "requests", {"job": job, "verb": verb, "asked_ms": now_ms})

    def was_asked(self, job: str, verb: str, since_ms: int) -> bool:
        """Return True if a request was made since then; a restart of the job discards requests."""
        return bool(
            self._file.read(
                "SELECT 1 FROM requests WHERE job = ? AND verb = ? AND asked_ms >= ? LIMIT 1",
                job,
                verb,
                since_ms,
            )
        )

    def take_requests(self, job: str, now_ms: int) -> list[str]:
        """Return the verbs requested since the last call, each once."""
        pending = self._file.read(
            "SELECT id, verb FROM requests WHERE job = ? AND taken_ms IS NULL ORDER BY id", job
        )
        if pending:
            with self._writing(job) as db:
                marks = [(now_ms, row["id"]) for row in pending]
                db.executemany("UPDATE requests SET taken_ms = ? WHERE id = ?", marks)
        return [str(row["verb"]) for row in pending]

    def _read(self, kind: type[T], statement: str, *values: Any) -> list[T]:
        """Read rows as instances of a class, by field names."""
        return [from_known(kind, row) for row in self._file.read(statement, *values)]

    @contextmanager
    def _writing(self, job: str) -> Iterator[sqlite3.Connection]:
        """Open a transaction about a job during which its leader cannot change."""
        with self._file.write() as db:
            if self._token is not None:
                row = db.execute("SELECT token FROM leaders WHERE job = ?", (job,)).fetchone()
                if row is None or row["token"] != self._token:
                    raise _leadership_lost(job, self.path, self._token, None if row is None else row["token"])
            yield db


def note_of(
    query: str, uri: str, manifest: Manifest, *, at_ms: int, took_ms: int, problem: str | None = None
) -> SavepointNote:
    """Return the registry's note of a taken savepoint."""
    size_bytes, new_bytes = manifest.size_bytes, manifest.new_bytes
    return SavepointNote(query, at_ms, took_ms, uri, manifest.batch_id, size_bytes, new_bytes, problem)


def _leadership_lost(job: str, path: Path, token: int, holder: int | None) -> LeadershipLost:
    return LeadershipLost(
        f"the registry has no leader of job {job!r}"
        if holder is None
        else f"a different supervisor leads job {job!r}",
        code="HF-E4031",
        hint=f"see the leader of the job with `holdfast status {job}`",
        where=str(path),
        found=f"term {token}",
        expected=None if holder is None else f"term {holder}",
    )
