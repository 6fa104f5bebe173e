"""The registry of a state home: one SQLite file that any process may read.

The registry keeps the newest attempts one by one, and of those that made room how many there were of a kind.

It holds nothing that a checkpoint does not hold better: lose it, and the next `holdfast run` starts it
anew. Jobs, their attempts, batches and requests are found by the job's name.
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
from holdfast.model import BatchProgress, Failure, JobState, QueryStarted, SavepointNote
from holdfast.ownership.election import Leader, LeadershipLost
from holdfast.plain_values import READ, from_known
from holdfast.storage.file_lock import lock_holder
from holdfast.storage.shared_database import PATIENCE_S, DatabaseShape, SharedDatabase

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


REGISTRY: Final = DatabaseShape(
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
    """The attempts of a job in numbers.

    Attributes:
        restarts: Those that followed a failed one.
        failed: Those that failed.
        failed_running: Those that failed once their queries had started.
        restored: Those after the first one whose queries had started.
        causes: Those that failed, by whose it is to mend.
    """

    restarts: int = 0
    failed: int = 0
    failed_running: int = 0
    restored: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kinds: Iterable[Mapping[str, Any]]) -> AttemptCounts:
        """The sums over what `COUNTED` finds."""
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
    """Keep the newest attempts of a job, and the rest as numbers; a transaction is open."""
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
    """A job as the registry knows it.

    Attributes:
        name: Its name, unique within the state home.
        job_id: 32 hexadecimal digits that depend on the name alone.
        target: The job file, and the job in it.
        checkpoint: Where its queries keep their state.
        on_cancel: Whether a cancelled job's checkpoint is kept: `retain` or `delete`.
        state: Where it stands, in Flink's words.
        reason: Why it is in this state, if somebody or something ended or restarts it.
        started_ms: When its supervisor took it up, in epoch milliseconds.
        updated_ms: When anything was last heard of it.
        ended_ms: When it ended for good.
        supervisor_pid: The process of its supervisor.
        savepoint_catalog: The directory that the job's settings name for its savepoints, if they name one.
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
    ) -> JobRecord:
        """A job that this process begins to supervise; `since_ms` is when another one began it before."""
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
        )


def _failure(text: str | None) -> Failure | None:
    return None if text is None else from_known(Failure, json.loads(text))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One driver of a job, from its start to its end.

    Attributes:
        job: The job's name.
        number: Counted over the job's whole life.
        driver_pid: Its process.
        began_ms: When it was started, in epoch milliseconds.
        running_ms: When its queries had started.
        first_commit_ms: When its first batch was committed.
        ended_ms: When it ended.
        ending: `finished`, `stopped`, `canceled`, `failed` or `lost`; None while it runs.
        failure: Why it ended, where it failed.
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
    failure: Failure | None = field(metadata={READ: _failure})
    recovers: bool = field(metadata={READ: bool})


def job_id(name: str) -> str:
    """32 hex digits that depend on the name alone, so that a lost registry gives the same again."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast:{name}").hex


class Registry:
    """The registry of one state home; cheap to open, safe to share between processes.

    Args:
        path: Its file.
        token: That of the leader who writes with it. What a supervisor writes of a job is refused with
            `LeadershipLost` if another leader has come since. None where a supervisor has the job to itself.
        patience_s: How long to wait while another process writes.
        read_only: Whether it is only looked at; see `SharedDatabase`.
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
        """Note that a supervisor has taken the job.

        Requests made before that are void, unless a leader takes the job over while it runs: then they are
        his to answer.
        """
        with self._writing(record.name) as db:
            row = db.execute("SELECT state FROM jobs WHERE name = ?", (record.name,)).fetchone()
            if self._token is None or row is None or JobState(row["state"]).terminal:
                db.execute("DELETE FROM requests WHERE job = ?", (record.name,))
            insert(db, "jobs", {**asdict(record), "state": record.state.value})

    def lead(self, job: str, leader: Leader) -> None:
        """Note that a supervisor leads a job; from now on whoever led it before can write nothing of it.

        Raises:
            LeadershipLost: One with a later term has come in between.
        """
        with self._file.write() as db:
            row = db.execute("SELECT token FROM leaders WHERE job = ?", (job,)).fetchone()
            if row is not None and row["token"] > leader.token:
                raise _leadership_lost(job, self.path, leader.token, row["token"])
            insert(db, "leaders", {"job": job, **asdict(leader)})

    def beat(self, job: str, now_ms: int) -> None:
        """Note that the leader lives.

        Raises:
            LeadershipLost: Another one leads.
        """
        with self._writing(job) as db:
            db.execute("UPDATE leaders SET beat_ms = ? WHERE job = ?", (now_ms, job))

    def leader(self, job: str) -> Leader | None:
        """Return the last leader of a job; None if it never had several supervisors."""
        return next(iter(self._read(Leader, "SELECT * FROM leaders WHERE job = ?", job)), None)

    def leaders(self) -> dict[str, Leader]:
        """Return the last leader of each job, by name."""
        rows = self._file.read("SELECT * FROM leaders")
        return {str(row["job"]): from_known(Leader, row) for row in rows}

    def add_recovery(self, job: str, recovery: RecoveryTimes) -> None:
        """Note how long a recovery took; a job's newest `RECOVERIES_KEPT` stay."""
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
        """Move a job to another state; a terminal one also ends it."""
        ended = now_ms if state.terminal else None
        with self._writing(job) as db:
            db.execute(
                "UPDATE jobs SET state = ?, reason = ?, updated_ms = ?, ended_ms = ? WHERE name = ?",
                (state.value, reason, now_ms, ended, job),
            )

    def start_attempt(self, job: str, driver_pid: int, now_ms: int, *, recovers: bool) -> int:
        """Note a new driver and return its number; attempts that never ended are marked lost.

        The newest `ATTEMPTS_KEPT` stay, and of the others what `attempt_counts` tells.
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
        """Note that an attempt's queries run; the reason of the state before is cleared.

        Those that the job has no longer are forgotten, and so are batches of former checkpoints: a query of
        another id counts from 0 again.

        Args:
            job: The job's name.
            number: The attempt.
            queries: All queries of the job.
            now_ms: The time in epoch milliseconds.
            databases: The addresses that the job's code names for its state; they replace the earlier ones.
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
        """Note a committed batch; only the newest `BATCHES_KEPT` of a query stay.

        Later ones of earlier attempts are void: the query has begun again at an older batch.
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
        """Note a savepoint that was taken, or could not be; a job's newest `SAVEPOINTS_KEPT` stay.

        So does the newest of each directory: requests may name the directories of a job's savepoints.
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
        """Note how and when a driver ended."""
        text = json.dumps(asdict(failure)) if failure else None
        with self._writing(job) as db:
            db.execute(
                "UPDATE attempts SET ended_ms = ?, ending = ?, failure = ? WHERE job = ? AND number = ?",
                (now_ms, ending, text, job, number),
            )

    def jobs(self) -> list[JobRecord]:
        """Every job, the most recently started first; none if the home is new."""
        return self._read(JobRecord, "SELECT * FROM jobs ORDER BY started_ms DESC, name")

    def job(self, name: str) -> JobRecord:
        """One job, by its name or its 32-digit id.

        Raises:
            NotFound: This state home has no such job.
        """
        named = self._read(JobRecord, "SELECT * FROM jobs WHERE name = ? OR job_id = ?", name, name)
        if not named:
            names = ", ".join(job.name for job in self.jobs())
            raise NotFound(
                f"there is no job {name!r} in this state home",
                code="HF-E3048",
                where=str(self.path),
                found=names or "no job at all",
                hint="see the jobs with `holdfast list`; another state home is named with --home",
            )
        return named[0]

    def attempts(self, job: str) -> list[Attempt]:
        """A job's newest attempts, oldest first."""
        return self._read(Attempt, "SELECT * FROM attempts WHERE job = ? ORDER BY number", job)

    def attempt_counts(self, job: str) -> AttemptCounts:
        """A job's attempts over its whole life, in numbers."""
        return AttemptCounts.of(self._file.read(COUNTED, job, job))

    def queries(self, job: str) -> list[QueryStarted]:
        """The queries of a job's newest attempt."""
        return self._read(QueryStarted, "SELECT * FROM queries WHERE job = ? ORDER BY rowid", job)

    def databases(self) -> list[str]:
        """Return the addresses of databases that the code of any job names for its state."""
        return [str(row["address"]) for row in self._file.read("SELECT DISTINCT address FROM databases")]

    def batches(self, job: str, limit: int = BATCHES_KEPT) -> list[BatchProgress]:
        """A job's newest batches, oldest first; only so many of each query are read."""
        newest = "SELECT body FROM batches WHERE job = ? AND query = ? ORDER BY batch_id DESC LIMIT ?"
        rows = [
            row
            for query in self._file.read("SELECT DISTINCT query FROM batches WHERE job = ?", job)
            for row in self._file.read(newest, job, query["query"], limit)
        ]
        batches = [BatchProgress.from_dict(json.loads(row["body"])) for row in rows]
        return sorted(batches, key=lambda batch: (batch.committed_ms, batch.query, batch.batch_id))[-limit:]

    def newest_batches(self, job: str) -> list[BatchProgress]:
        """The newest batch of each of a job's queries."""
        rows = self._file.read(
            "SELECT body FROM batches AS one WHERE job = ? AND batch_id ="
            " (SELECT max(batch_id) FROM batches WHERE job = one.job AND query = one.query)",
            job,
        )
        return [BatchProgress.from_dict(json.loads(row["body"])) for row in rows]

    def savepoints(self, job: str) -> list[SavepointNote]:
        """The savepoints that the job's supervisors have taken or failed to take, oldest first."""
        return self._read(SavepointNote, "SELECT * FROM savepoints WHERE job = ? ORDER BY rowid", job)

    def request(self, job: str, verb: str, now_ms: int) -> None:
        """Ask a job's supervisor for something."""
        with self._file.write() as db:
            insert(db, "requests", {"job": job, "verb": verb, "asked_ms": now_ms})

    def was_asked(self, job: str, verb: str, since_ms: int) -> bool:
        """Return whether something was requested since then; a job that is started again forgets requests."""
        return bool(
            self._file.read(
                "SELECT 1 FROM requests WHERE job = ? AND verb = ? AND asked_ms >= ? LIMIT 1",
                job,
                verb,
                since_ms,
            )
        )

    def take_requests(self, job: str, now_ms: int) -> list[str]:
        """The verbs asked for since the last call, each handed out once."""
        pending = self._file.read(
            "SELECT id, verb FROM requests WHERE job = ? AND taken_ms IS NULL ORDER BY id", job
        )
        if pending:
            with self._writing(job) as db:
                marks = [(now_ms, row["id"]) for row in pending]
                db.executemany("UPDATE requests SET taken_ms = ? WHERE id = ?", marks)
        return [str(row["verb"]) for row in pending]

    def _read(self, kind: type[T], statement: str, *values: Any) -> list[T]:
        """The rows that a query finds, as values of a class, by the names of its fields."""
        return [from_known(kind, row) for row in self._file.read(statement, *values)]

    @contextmanager
    def _writing(self, job: str) -> Iterator[sqlite3.Connection]:
        """A transaction about a job, in which nobody else becomes its leader."""
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
        f"another supervisor leads job {job!r}",
        code="HF-E4031",
        where=str(path),
        found=f"term {token}",
        expected="a registry that knows this term" if holder is None else f"term {holder}",
    )
