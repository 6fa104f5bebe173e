"""Read jobs and send requests to their supervisors, from any process of the same state home."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.errors import Conflict, Invalid, Unavailable, Unsupported, error_from
from holdfast.jobs.recovery import RecoveryTimes
from holdfast.jobs.registry.operation_log import RESTART, Operation, Operations, Restart
from holdfast.jobs.registry.plain_queries import PlainQueries, PlainQuery
from holdfast.jobs.registry.registry import Attempt, AttemptCounts, JobRecord, Registry, Standby, note_of
from holdfast.jobs.registry.served_addresses import served_addresses
from holdfast.jobs.state_home import QueryLock, StateHome, SupervisorLock
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.model import BatchProgress, JobKind, QueryStarted, SavepointNote
from holdfast.ownership.election import Leader

if TYPE_CHECKING:
    from holdfast.jobs.recovery import Prediction
    from holdfast.savepoints.taking import Taken

LOOK_S = 0.1
_NAMED_S: Final = 0.5
# The operations that a running job of each kind accepts.
_ACCEPTED: Final[Mapping[JobKind, tuple[str, ...]]] = {
    JobKind.JOB: ("savepoint", "stop", "cancel", "restart", "rescale"),
    JobKind.CHECKPOINT: ("savepoint",),
    JobKind.WATCHED: ("savepoint", "stop"),
    JobKind.GUARDED: ("savepoint", "stop"),
}


@dataclass(frozen=True, slots=True)
class JobStatus(JsonShape):
    """A job and the liveness of its supervisor.

    For a job, `supervised` False with a state that is not terminal means that the supervisor died: nothing is
    lost, and `holdfast run` resumes the job. For a query under `hf.watch` or `hf.guard` its own process is
    the supervisor. A query that is known from its checkpoint alone has none.

    Attributes:
        job: The job's record in the registry.
        supervised: True if the process of its supervisor lives.

    Example:
        statuses: tuple[hf.jobs.JobStatus, ...] = hf.jobs.list()
        assert [(status.job.name, status.supervised) for status in statuses] == [("visits", True)]
    """

    job: JobRecord = field(metadata=json_spread())
    supervised: bool

    @property
    @in_json
    def accepts(self) -> tuple[str, ...]:
        """The operations that can be requested now: `savepoint`, `stop`, `cancel`, `restart`, `rescale`."""
        return _ACCEPTED[self.job.kind] if self.runs else ("savepoint",)

    @property
    def runs(self) -> bool:
        """True if the job has not ended, and the process of its supervisor lives."""
        return self.supervised and not self.job.state.terminal

    @property
    def lost(self) -> bool:
        """True if the supervisor of a job, or the process of a watched query, died before its end."""
        known = self.job.kind is not JobKind.CHECKPOINT
        return known and not self.supervised and not self.job.state.terminal

    @property
    def word(self) -> str:
        """The state's name, with a remark if the supervisor is gone or no sign of life is found."""
        state = self.job.state
        if self.job.kind is JobKind.CHECKPOINT:
            return state.value if not state.terminal else "FINISHED, or waiting for rows"
        gone = "its process has ended" if self.job.kind.is_recorded else "no supervisor"
        return f"{state.value} ({gone})" if self.lost else state.value


@dataclass(frozen=True, slots=True)
class JobDetails(JsonShape):
    """All data of one job in the registry.

    Attributes:
        status: The job.
        queries: Its queries, as its newest driver started them.
        attempts: Its newest attempts, oldest first.
        batches: Its newest batches, oldest first.
        savepoints: The savepoints that its supervisor took or failed to take.
        recoveries: Its recoveries, with the duration of each phase.
        leader: The leader, if the job has several supervisors.
        standby: The driver that is ready to take over, if the job has one.
        counts: Counts of all its attempts.
    """

    status: JobStatus = field(metadata=json_spread())
    queries: list[QueryStarted]
    attempts: list[Attempt]
    batches: list[BatchProgress]
    savepoints: list[SavepointNote]
    recoveries: list[RecoveryTimes]
    leader: Leader | None
    standby: Standby | None
    counts: AttemptCounts = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def recoveries_ms(self) -> list[int]:
        """The duration of each recovery, from the failure to the first commit, without waiting for input."""
        return [recovery.recovery_ms for recovery in self.recoveries]

    @property
    @in_json
    def late_rows(self) -> int:
        """The number of rows dropped as late in the stored batches."""
        return sum(batch.late_rows for batch in self.batches)

    @property
    @in_json
    def last_failure(self) -> Attempt | None:
        """The newest failed attempt; None once a later one commits a batch of its query or ends well."""
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
        """The directories of the job's savepoints, most recently used first."""
        addresses = (note.uri for note in reversed(self.savepoints) if note.uri is not None)
        return list(dict.fromkeys(uri.rpartition("/savepoints/")[0] for uri in addresses))

    def known_catalogs(self, checkpoint: str) -> list[str]:
        """Return the directories that may have savepoints of one of the job's checkpoints.

        Args:
            checkpoint: The checkpoint's URI.
        """
        configured, default = self.status.job.savepoint_catalog, beside(checkpoint, SAVEPOINTS_BESIDE)
        return list(dict.fromkeys(filter(None, [configured, *self.catalogs, default])))

    @property
    def savepoint_directory(self) -> str | None:
        """The default directory for savepoints: the one in the job's settings.

        Without a setting it is that of the last savepoint, else the one next to the checkpoint. None if the
        checkpoint is the root of a bucket. For a query that is known from its checkpoint alone it is that of
        the last savepoint, else None.
        """
        if self.status.job.kind is JobKind.CHECKPOINT:
            return next(iter(self.catalogs), None)
        return next(iter(self.known_catalogs(self.status.job.checkpoint)), None)

    def require_savepoint_directory(self) -> str:
        """Return the default directory for savepoints.

        Raises:
            Invalid: There is no default directory.
        """
        if self.savepoint_directory is None:
            raise Invalid(
                "no default savepoint directory for this job",
                code="HF-E2237",
                found=f"the checkpoint {self.status.job.checkpoint}, which is the root of a bucket",
                hint="give a directory for the savepoint",
            )
        return self.savepoint_directory

    def batches_of(self, query: str) -> list[BatchProgress]:
        """Return the newest batches of one query, oldest first."""
        return [batch for batch in self.batches if batch.query == query]

    def measured_of(self, query: str) -> list[BatchProgress]:
        """Return the newest batches of one query that its driver reported, oldest first."""
        return [batch for batch in self.batches_of(query) if batch.measured]

    def judged_ms(self, now_ms: int) -> int:
        """Return the reference time of reports: now for a job that runs, else its end."""
        job = self.status.job
        runs = self.status.supervised or (job.kind is JobKind.CHECKPOINT and not job.state.terminal)
        return now_ms if runs else job.ended_ms or job.updated_ms

    def newest(self) -> list[BatchProgress]:
        """Return the newest batch of each query."""
        found = {batch.query: batch for batch in self.batches}
        return [found[query.name] for query in self.queries if query.name in found]


class Control:
    """Access to the jobs of one state home from outside their supervisors.

    Args:
        home: The state home.
        clock: Returns epoch milliseconds.
        plain: The queries that are known from their checkpoints alone; by default those that the running
            servers of the state home serve.
    """

    def __init__(self, home: StateHome, clock: Callable[[], int], plain: PlainQueries | None = None) -> None:
        self._home = home
        self._clock = clock
        self._registry = Registry(home.registry)
        self._plain = plain or PlainQueries(partial(served_addresses, home.path), home.path, clock)
        self._named: tuple[float, dict[str, PlainQuery]] | None = None

    def jobs(self) -> list[JobStatus]:
        """Return every job, the most recently started first, then the queries of served checkpoints."""
        plain = self._plain_queries()
        self._plain.look(plain.values())
        found = [JobStatus(query.record(name), supervised=False) for name, query in plain.items()]
        return [*(self._status(job) for job in self._registry.jobs()), *found]

    def plain(self, name: str) -> tuple[str, PlainQuery] | None:
        """Return the name and the query that has a name or id and is known from its checkpoint alone."""
        for known, query in self._plain_queries().items():
            if name in (known, query.job_id):
                return known, query
        return None

    def _plain_queries(self) -> dict[str, PlainQuery]:
        """Return the queries known from their checkpoints by name, computed at most twice a second."""
        known = self._named
        if known is not None and time.monotonic() - known[0] < _NAMED_S:
            return known[1]
        named = {}
        if self._plain.addresses():
            names = [job.name for job in self._registry.jobs()]
            named = self._plain.named(names, self._registry.checkpoints())
        self._named = time.monotonic(), named
        return named

    def note_savepoint(self, job: str, query: str, taken: Taken, took_ms: int) -> None:
        """Record a savepoint of a job that was taken outside its supervisor.

        Raises:
            Unavailable: The registry cannot be written.
        """
        note = note_of(query, taken.uri, taken.manifest, at_ms=self._clock(), took_ms=took_ms)
        self._registry.add_savepoint(job, note)

    def note_taken(self, checkpoint: str, taken: Taken, took_ms: int) -> None:
        """Record a savepoint of a checkpoint with the job that has the checkpoint, if any.

        Raises:
            Unavailable: The registry cannot be written.
        """
        for job in self._registry.jobs():
            for query in self._registry.queries(job.name):
                if query.checkpoint == checkpoint:
                    self.note_savepoint(job.name, query.name, taken, took_ms)
        for name, plain in self._plain_queries().items():
            if plain.uri == checkpoint:
                self.note_savepoint(name, name, taken, took_ms)

    def details(self, name: str, batches: int = 1000) -> JobDetails:
        """Return a job with its newest batches.

        Raises:
            NotFound: The job does not exist.
        """
        found = self.plain(name)
        if found is not None:
            return self._plain_details(*found, batches)
        job = self._registry.job(name)
        return JobDetails(
            self._status(job),
            self._registry.queries(job.name),
            self._registry.attempts(job.name),
            self._registry.batches(job.name, batches),
            self._registry.savepoints(job.name),
            self._registry.recoveries(job.name),
            self._registry.leader(job.name),
            self._registry.standby(job.name),
            self._registry.attempt_counts(job.name),
        )

    def _plain_details(self, name: str, query: PlainQuery, batches: int) -> JobDetails:
        return JobDetails(
            JobStatus(query.record(name), supervised=False),
            [query.started(name)],
            [],
            query.batches(name, batches),
            self._registry.savepoints(name),
            [],
            None,
            None,
            AttemptCounts(),
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

        Cost: the checkpoints' directories and the drills in the savepoints' catalogs are listed.
        """
        from holdfast.jobs.recovery import drills_of, predict, size_of

        size = size_of(query.checkpoint for query in details.queries)
        rehearsed = drills_of(details.savepoints, {query.query_id for query in details.queries})
        return predict(details.recoveries, rehearsed, size)

    def stop(self, name: str, timeout_s: float, *, at_once: bool = False) -> JobStatus:
        """Stop a job after the running batch, or at once, and wait for its end.

        A batch that is interrupted runs again when the job is run again.
        """
        # The second request means at once, as a second signal does.
        return self._ask(name, *["stop"] * (2 if at_once else 1), timeout_s=timeout_s)

    def cancel(self, name: str, timeout_s: float) -> JobStatus:
        """End a job's driver at once, and wait for its end."""
        return self._ask(name, "cancel", timeout_s=timeout_s)

    def restart(self, name: str, operation_id: str, timeout_s: float) -> Operation:
        """Let a new driver take over from the running one, and wait until it has started the queries.

        Raises:
            HoldfastError: The new driver could not start, and the former one continues.
            Conflict: The job has ended.
            Unavailable: The new driver has not taken over in time.
        """
        job = self.running(name, RESTART).job.name
        operations = Operations(self._home)
        asked = operations.ask(operation_id, RESTART, job, Restart(), self._clock())
        self._registry.request(job, RESTART, self._clock())
        deadline = time.monotonic() + timeout_s
        while not (asked := operations.get(asked.operation_id)).state.ended:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"no new driver has taken over from the one of job {job!r} yet",
                    code="HF-E5042",
                    found=f"{asked.state.value} after {timeout_s:.0f} s",
                    hint=f"check the job with `holdfast status {job}`; the restart is still under way",
                )
            time.sleep(LOOK_S)
            self.running(job)
        if asked.error is not None:
            raise error_from(asked.error)
        return asked

    def running(self, name: str, verb: str | None = None) -> JobStatus:
        """Return a job that accepts requests.

        Args:
            name: The job's name or id.
            verb: The request, such as `stop`; None for one that every running job accepts.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job has ended, or its supervisor died.
            Unsupported: The query is known from its checkpoint alone, or its process does not accept the
                request.
        """
        found = self.plain(name)
        if found is not None:
            raise _without_process(*found)
        status = self._status(self._registry.job(name))
        if verb is not None and status.job.kind.is_recorded and verb not in _ACCEPTED[status.job.kind]:
            raise Unsupported(
                f"query {status.job.name!r} runs in a process of its own program, which does not accept this",
                code="HF-E7129",
                where=status.job.target,
                found=verb,
                expected=", ".join(_ACCEPTED[status.job.kind]),
                hint=f"stop it after its batch with `holdfast stop {status.job.name}`, and change it where it"
                " is started; a job of `holdfast run` accepts every operation",
            )
        if status.job.state.terminal:
            again = f"`holdfast run {status.job.target}`"
            raise Conflict(
                f"job {status.job.name!r} has already ended",
                code="HF-E4026",
                where=str(self._home.path),
                found=status.job.state.value,
                hint=f"start its program {status.job.target} again"
                if status.job.kind.is_recorded
                else f"start the job again with {again}",
            )
        leader = self._registry.leader(status.job.name)
        if not status.supervised and leader is not None:
            raise Conflict(
                f"no supervisor of this state home leads job {status.job.name!r}",
                code="HF-E4027",
                where=str(self._home.path),
                found=f"{status.job.state.value}, led last by {leader.holder}",
                hint="repeat the command on the machine of the leader; if the job has no leader, start it"
                f" with `holdfast run {status.job.target} --ha {leader.address}`",
            )
        if not status.supervised and status.job.kind.is_recorded:
            raise Conflict(
                f"the process of query {status.job.name!r} has ended",
                code="HF-E4077",
                where=str(self._home.path),
                found=f"{status.job.state.value}; process {status.job.supervisor_pid} of {status.job.target}",
                hint="start its program again; it resumes from its checkpoint",
            )
        if not status.supervised:
            raise Conflict(
                f"job {status.job.name!r} has no supervisor",
                code="HF-E4028",
                where=str(self._home.path),
                found=f"{status.job.state.value}; supervisor process {status.job.supervisor_pid} has ended",
                hint=(
                    "wait until its driver has stopped by itself, then restart the job with `holdfast run"
                    f" {status.job.target}`"
                ),
            )
        return status

    def _ask(self, name: str, *verbs: str, timeout_s: float) -> JobStatus:
        job = self.running(name, verbs[0]).job
        for verb in verbs:
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
                    hint=f"check the running batch with `holdfast status {job.name}`,"
                    f" or end the job with `holdfast cancel {job.name}`",
                )
            time.sleep(LOOK_S)

    def _status(self, job: JobRecord) -> JobStatus:
        leader = self._registry.leader(job.name)
        led = leader is not None and leader.lives(self._clock())
        lock = QueryLock if job.kind.is_recorded else SupervisorLock
        supervised = led or lock(self._home, job.name).is_held()
        if not supervised and not job.state.terminal:
            # A supervisor writes down how the job ended before it lets go of its lock: it may have done
            # both since the record was read.
            job = self._registry.job(job.name)
        return JobStatus(job, supervised)


def _without_process(name: str, query: PlainQuery) -> Unsupported:
    """Return the error for a request that only the process of a query can fulfil."""
    return Unsupported(
        f"query {name!r} is known from its checkpoint alone and cannot be stopped or changed from here",
        code="HF-E7130",
        where=query.uri,
        found="a query that a program without Holdfast runs",
        expected="a query that Holdfast can reach",
        hint="stop it where it was started; as a job of `holdfast run` it could be stopped, restarted and"
        " rescaled from here, and with `hf.guard(writer).run()` SIGTERM stops it after its batch",
    )
