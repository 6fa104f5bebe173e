"""Look at jobs and ask their supervisors for things, from any process of the same state home."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, Invalid, Unavailable
from holdfast.jobs.recovery import RecoveryTimes
from holdfast.jobs.registry.registry import Attempt, AttemptCounts, JobRecord, Registry, note_of
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.model import BatchProgress, QueryStarted, SavepointNote
from holdfast.ownership.election import Leader

if TYPE_CHECKING:
    from holdfast.jobs.recovery import Prediction
    from holdfast.savepoints.taking import Taken

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class JobStatus(JsonShape):
    """A job and whether its supervisor lives.

    `supervised` False with a state that is not terminal means that the supervisor died: nothing is
    lost, and `holdfast run` continues where it stopped.

    Attributes:
        job: What the registry says of it.
        supervised: Whether the process of its supervisor lives.
    """

    job: JobRecord = field(metadata=json_spread())
    supervised: bool

    @property
    def word(self) -> str:
        """The state in one word, or with a remark where the supervisor is gone."""
        state = self.job.state
        return state.value if state.terminal or self.supervised else f"{state.value} (no supervisor)"


@dataclass(frozen=True, slots=True)
class JobDetails(JsonShape):
    """All that the registry knows of one job.

    Attributes:
        status: The job.
        queries: Its queries, as its newest driver started them.
        attempts: Its newest drivers, oldest first.
        batches: Its newest batches, oldest first.
        savepoints: The savepoints that its supervisor took, or failed to take.
        recoveries: What each recovery took, by phase.
        leader: Who leads, where several supervisors stand by.
        counts: All of its drivers in numbers.
    """

    status: JobStatus = field(metadata=json_spread())
    queries: list[QueryStarted]
    attempts: list[Attempt]
    batches: list[BatchProgress]
    savepoints: list[SavepointNote]
    recoveries: list[RecoveryTimes]
    leader: Leader | None
    counts: AttemptCounts = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def recoveries_ms(self) -> list[int]:
        """For each recovery: from the failure to the first commit, without waiting for input."""
        return [recovery.recovery_ms for recovery in self.recoveries]

    @property
    @in_json
    def late_rows(self) -> int:
        """Rows dropped as late in the batches that are kept."""
        return sum(batch.late_rows for batch in self.batches)

    @property
    @in_json
    def last_failure(self) -> Attempt | None:
        """The newest driver that failed, until a later one commits a batch of its query or ends well."""
        for attempt in reversed(self.attempts):
            failure = attempt.failure
            if failure is not None:
                committed = self.batches if failure.query is None else self.batches_of(failure.query)
                failed_ms = attempt.ended_ms or attempt.began_ms
                return None if any(batch.committed_ms > failed_ms for batch in committed) else attempt
            if attempt.ending not in (None, "lost"):
                return None
        return None

    @property
    def catalogs(self) -> list[str]:
        """The directories that the job's savepoints are in, the one used last first."""
        addresses = (note.uri for note in reversed(self.savepoints) if note.uri is not None)
        return list(dict.fromkeys(uri.rpartition("/savepoints/")[0] for uri in addresses))

    def known_catalogs(self, checkpoint: str) -> list[str]:
        """Return the directories in which savepoints of one of the job's checkpoints may be.

        Args:
            checkpoint: The checkpoint's URI.
        """
        configured, default = self.status.job.savepoint_catalog, beside(checkpoint, SAVEPOINTS_BESIDE)
        return list(dict.fromkeys(filter(None, [configured, *self.catalogs, default])))

    @property
    def savepoint_directory(self) -> str | None:
        """The directory of savepoints that are taken without one: as the job's settings say.

        Where they name none, it is that of the last savepoint, else the one next to the checkpoint. None if
        the checkpoint is a whole bucket, which has nothing beside it.
        """
        return next(iter(self.known_catalogs(self.status.job.checkpoint)), None)

    def require_savepoint_directory(self) -> str:
        """Return the directory of savepoints that are taken without one.

        Raises:
            Invalid: The place does not exist.
        """
        if self.savepoint_directory is None:
            raise Invalid(
                "a savepoint of this job needs a directory",
                code="HF-E2237",
                found=f"none, and the checkpoint {self.status.job.checkpoint} has nothing beside it",
                hint="name the directory",
            )
        return self.savepoint_directory

    def batches_of(self, query: str) -> list[BatchProgress]:
        """The newest batches of one query, oldest first."""
        return [batch for batch in self.batches if batch.query == query]

    def judged_ms(self, now_ms: int) -> int:
        """The time at which the job is judged: now while it is supervised, and else when it ended."""
        job = self.status.job
        return now_ms if self.status.supervised else job.ended_ms or job.updated_ms

    def newest(self) -> list[BatchProgress]:
        """The newest batch of each query."""
        found = {batch.query: batch for batch in self.batches}
        return [found[query.name] for query in self.queries if query.name in found]


class Control:
    """The jobs of one state home, from outside their supervisors."""

    def __init__(self, home: StateHome, clock: Callable[[], int]) -> None:
        self._home = home
        self._clock = clock
        self._registry = Registry(home.registry)

    def jobs(self) -> list[JobStatus]:
        """Every job, the most recently started first."""
        return [self._status(job) for job in self._registry.jobs()]

    def note_savepoint(self, job: str, query: str, taken: Taken, took_ms: int) -> None:
        """Remember a savepoint of a job that was taken from outside: its catalog may be used again.

        Raises:
            Unavailable: The registry cannot be written.
        """
        note = note_of(query, taken.uri, taken.manifest, at_ms=self._clock(), took_ms=took_ms)
        self._registry.add_savepoint(job, note)

    def note_taken(self, checkpoint: str, taken: Taken, took_ms: int) -> None:
        """Remember a savepoint that somebody took of a checkpoint, with the job whose query has it, if any.

        Raises:
            Unavailable: The registry cannot be written.
        """
        for job in self._registry.jobs():
            for query in self._registry.queries(job.name):
                if query.checkpoint == checkpoint:
                    self.note_savepoint(job.name, query.name, taken, took_ms)

    def details(self, name: str, batches: int = 1000) -> JobDetails:
        """One job with its newest batches.

        Raises:
            NotFound: The job does not exist.
        """
        job = self._registry.job(name)
        return JobDetails(
            self._status(job),
            self._registry.queries(job.name),
            self._registry.attempts(job.name),
            self._registry.batches(job.name, batches),
            self._registry.savepoints(job.name),
            self._registry.recoveries(job.name),
            self._registry.leader(job.name),
            self._registry.attempt_counts(job.name),
        )

    def job_with(self, checkpoint: str) -> JobDetails | None:
        """Return the job one of whose queries has a checkpoint; None if no job of this state home has it.

        Args:
            checkpoint: The checkpoint's URI.
        """
        for job in self._registry.jobs():
            details = self.details(job.name)
            if checkpoint in ([query.checkpoint for query in details.queries] or [job.checkpoint]):
                return details
        return None

    def prediction(self, details: JobDetails) -> Prediction | None:
        """Predict the job's next recovery; None without data.

        Cost: the checkpoints' folders are listed, and the drills of the catalogs that hold its savepoints.
        """
        from holdfast.jobs.recovery import drills_of, predict, size_of

        size = size_of(query.checkpoint for query in details.queries)
        rehearsed = drills_of(details.savepoints, {query.query_id for query in details.queries})
        return predict(details.recoveries, rehearsed, size)

    def stop(self, name: str, timeout_s: float) -> JobStatus:
        """Stop a job after the batch that runs, and wait for that."""
        return self._ask(name, "stop", timeout_s)

    def cancel(self, name: str, timeout_s: float) -> JobStatus:
        """End a job's driver at once, and wait for that."""
        return self._ask(name, "cancel", timeout_s)

    def running(self, name: str) -> JobStatus:
        """A job that can be asked for something.

        Raises:
            NotFound: The job does not exist.
            Conflict: It has ended, or its supervisor died.
        """
        status = self._status(self._registry.job(name))
        if status.job.state.terminal:
            raise Conflict(
                f"job {status.job.name!r} has already ended",
                code="HF-E4026",
                where=str(self._home.path),
                found=status.job.state.value,
                expected="a running job",
                hint=f"start it again with `holdfast run {status.job.target}`",
            )
        leader = self._registry.leader(status.job.name)
        if not status.supervised and leader is not None:
            raise Conflict(
                f"no supervisor of this state home leads job {status.job.name!r}",
                code="HF-E4027",
                where=str(self._home.path),
                found=f"{status.job.state.value}, led last by {leader.holder}",
                hint="ask on the machine that leads it, which its standbys have told; if none is left, start"
                f" it with `holdfast run {status.job.target} --ha {leader.address}`",
            )
        if not status.supervised:
            raise Conflict(
                f"nobody supervises job {status.job.name!r}",
                code="HF-E4028",
                where=str(self._home.path),
                found=f"{status.job.state.value}, but its supervisor, {status.job.supervisor_pid}, is gone",
                hint=f"its driver stops by itself; start it again with `holdfast run {status.job.target}`",
            )
        return status

    def _ask(self, name: str, verb: str, timeout_s: float) -> JobStatus:
        job = self.running(name).job
        self._registry.request(job.name, verb, self._clock())
        deadline = time.monotonic() + timeout_s
        while True:
            status = self._status(self._registry.job(job.name))
            if status.job.state.terminal or not status.supervised:
                return status
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"job {job.name!r} has not ended yet",
                    code="HF-E5027",
                    found=f"{status.job.state.value} after {timeout_s:.0f} s",
                    hint=f"its batch may be long: see `holdfast status {job.name}`,"
                    f" or end it with `holdfast cancel {job.name}`",
                )
            time.sleep(LOOK_S)

    def _status(self, job: JobRecord) -> JobStatus:
        leader = self._registry.leader(job.name)
        led = leader is not None and leader.lives(self._clock())
        supervised = led or SupervisorLock(self._home, job.name).is_held()
        if not supervised and not job.state.terminal:
            # A supervisor writes down how the job ended before it lets go of its lock: it may have done
            # both since the record was read.
            job = self._registry.job(job.name)
        return JobStatus(job, supervised)
