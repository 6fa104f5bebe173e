"""What a state home remembers of its jobs: one SQLite file that any process may read.

It holds nothing that a checkpoint does not hold better: lose it, and the next `holdfast run` starts it
anew. Jobs, their attempts, batches and requests are found by the job's name.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdfast.checkpoints.guard.terms import Leader, LeadershipLost
from holdfast.errors import NotFound
from holdfast.formats.savepoint.manifest import Manifest
from holdfast.jobs.recovery.timings import Recovery
from holdfast.jobs.registry.attempt_counts import COUNTED, AttemptCounts, make_room
from holdfast.jobs.registry.schema import REGISTRY, insert
from holdfast.model import BatchProgress, Failure, JobState, QueryStarted, SavepointNote
from holdfast.plain_values import READ, from_known
from holdfast.storage.shared_database import PATIENCE_S, SharedDatabase

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
        """Who led a job last; None if it never had several supervisors."""
        return next(iter(self._read(Leader, "SELECT * FROM leaders WHERE job = ?", job)), None)

    def leaders(self) -> dict[str, Leader]:
        """Who led each job last, by the job's name."""
        rows = self._file.read("SELECT * FROM leaders")
        return {str(row["job"]): from_known(Leader, row) for row in rows}

    def add_recovery(self, job: str, recovery: Recovery) -> None:
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

    def recoveries(self, job: str) -> list[Recovery]:
        """What the recoveries of a job took, oldest first."""
        rows = self._file.read("SELECT body FROM recoveries WHERE job = ? ORDER BY attempt", job)
        return [from_known(Recovery, json.loads(row["body"])) for row in rows]

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
        """Whether somebody has asked for something since then; a job that is started anew forgets it."""
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
    """What is remembered of a savepoint that was taken."""
    size_bytes, new_bytes = manifest.size_bytes, manifest.new_bytes
    return SavepointNote(query, at_ms, took_ms, uri, manifest.batch_id, size_bytes, new_bytes, problem)


def _leadership_lost(job: str, path: Path, token: int, holder: int | None) -> LeadershipLost:
    return LeadershipLost(
        f"another supervisor leads job {job!r}",
        where=str(path),
        found=f"term {token}",
        expected="a registry that knows this term" if holder is None else f"term {holder}",
    )
