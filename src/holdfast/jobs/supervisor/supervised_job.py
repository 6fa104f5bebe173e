"""The job of a supervisor: the right to run it, its states, attempts and requests to stop."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from holdfast.errors import Conflict, HoldfastError, Internal
from holdfast.jobs import failures
from holdfast.jobs.autoscaling import Autoscaler
from holdfast.jobs.background import Recording
from holdfast.jobs.background_savepoints import NOT_TAKEN, TAKEN, Savepointing
from holdfast.jobs.events import EventHandler, JobEvent, JobOutcome, logged
from holdfast.jobs.metrics_loop import Observing
from holdfast.jobs.pending_rescale import VERB as RESCALE
from holdfast.jobs.processes import protocol
from holdfast.jobs.processes.class_training import ClassTraining
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess, remove_scratch
from holdfast.jobs.processes.protocol import DriverStopped, Finished, JobDefined, JobFailed, Refused, kind_of
from holdfast.jobs.recovery import RecoveryTracker
from holdfast.jobs.registry.deferred_registry import DeferredRegistry
from holdfast.jobs.registry.operation_log import RESTART
from holdfast.jobs.registry.registry import JobRecord, Registry, Standby
from holdfast.jobs.restart_policy import RestartPolicy
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.handover import Handover
from holdfast.jobs.supervisor.leadership import Leadership
from holdfast.jobs.supervisor.standby import take_over
from holdfast.jobs.supervisor.standby_driver import StandbyDriver
from holdfast.model import BatchProgress, Failure, JobState, SavepointNote
from holdfast.observe.sizing import batch_limit_ms
from holdfast.ownership.checkpoint_claim import CheckpointClaim
from holdfast.ownership.process_identity import this_machine
from holdfast.quantities import counted

_ENDS: Final = frozenset({JobState.FINISHED, JobState.FAILED})

TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = {
    # The supervisor has taken the job; no driver has started its queries yet.
    JobState.CREATED: _ENDS | {JobState.RUNNING, JobState.RESTARTING, JobState.CANCELLING},
    # All queries of a driver have started. A driver that ends between two batches may be followed by another.
    JobState.RUNNING: _ENDS | {JobState.RUNNING, JobState.RESTARTING, JobState.CANCELLING},
    # A driver has ended: the next one is waited for, here or under another supervisor.
    JobState.RESTARTING: _ENDS
    | {JobState.RUNNING, JobState.RESTARTING, JobState.CANCELLING, JobState.CANCELED},
    # Somebody has canceled the job: no driver starts its queries any more.
    JobState.CANCELLING: _ENDS | {JobState.RESTARTING, JobState.CANCELLING, JobState.CANCELED},
    # The supervisor ends.
    JobState.FINISHED: frozenset(),
    JobState.CANCELED: frozenset(),
    JobState.FAILED: frozenset(),
}


def next_state(state: JobState, following: JobState) -> JobState:
    """Return the following state if the transition is allowed.

    Raises:
        Internal: The transition is not allowed.
    """
    allowed = TRANSITIONS[state]
    if following not in allowed:
        expected = ", ".join(sorted(other.value for other in allowed)) or "no other state"
        raise Internal(
            f"a job cannot change from {state.value} to {following.value}",
            code="HF-E9026",
            expected=expected,
            hint="please report this",
        )
    return following


@dataclass(slots=True)
class _Lateness:
    """The lateness of one query's batches.

    Attributes:
        since: When the batch that runs has begun; None where none does.
        times: How many timeouts it has passed.
        late: Whether anything since the last commit has passed one.
        row: The late batches in a row that were committed before.
    """

    since: float | None = None
    times: int = 0
    late: bool = False
    row: int = 0


@dataclass(slots=True)
class DriverAttempt:
    """One driver while it runs."""

    process: DriverProcess
    number: int = 0
    recovers: bool = False
    ending: str | None = None
    failure: Failure | None = None
    refusal: HoldfastError | None = None
    failed_ms: int | None = None
    leads: bool = True
    hands_over: bool = False
    until_s: float = 0.0
    batches: int = 0
    committed: set[str] = field(default_factory=set)
    now: Callable[[], float] = time.monotonic
    _lateness: defaultdict[str, _Lateness] = field(default_factory=lambda: defaultdict(_Lateness))

    def ended(self, message: Finished | DriverStopped | JobFailed | Refused) -> None:
        """Record the last message of the driver."""
        if isinstance(message, Refused):
            self.refusal = message.error
        elif isinstance(message, JobFailed):
            self.failure, self.failed_ms = message.failure, message.at_ms
        else:
            self.ending = kind_of(message)

    def end_for(self, error: HoldfastError | OSError, *, may_pass: bool = False) -> None:
        """End the driver because of an error here: a refusal, or a file that could not be created.

        Args:
            error: The error.
            may_pass: True if the error is temporary, so that another attempt may succeed.
        """
        if isinstance(error, HoldfastError) and may_pass:
            self.failure = failures.from_exception(error, str(error), label=failures.START)
        elif isinstance(error, HoldfastError):
            self.refusal = error
        else:
            self.failure = failures.not_begun(error)
        self.process.kill()

    def busy(self, query: str, *, busy: bool) -> None:
        """Record that a query has begun or ended a batch."""
        batch = self._lateness[query]
        batch.since, batch.times = self.now() if busy else None, 0

    def has_committed(self, query: str) -> None:
        """Record a committed batch; a query that is still busy has begun the next one."""
        self.batches += 1
        self.committed.add(query)
        batch = self._lateness[query]
        batch.row = batch.row + 1 if batch.late else 0
        batch.late, batch.times = False, 0
        if batch.since is not None:
            batch.since = self.now()

    def too_slow(self, definition: JobDefined, say: Callable[..., None]) -> bool:
        """Return True if too many batches exceeded the timeout, which is a failure; `say` is called for each.

        Late batches in a row are counted; a batch that hangs counts again with each further timeout.
        """
        timeout_ms = definition.timeout_ms
        for query, batch in () if timeout_ms is None else self._newly_late(timeout_ms):
            say("slow", f"query {query}: a batch exceeds the checkpoint timeout")
            if batch.row + batch.times > definition.tolerable_failures:
                line = f"a batch did not commit within {batch.times} x {timeout_ms} ms"
                if batch.row:
                    line += f", after {counted(batch.row, 'late batch')}"
                self.failure = Failure("checkpoint", "timeout", line, query=query, cause="resources")
                return True
        return False

    def _newly_late(self, timeout_ms: int) -> Iterator[tuple[str, _Lateness]]:
        """Yield queries whose batch has exceeded one more timeout."""
        for query, batch in self._lateness.items():
            times = 0 if batch.since is None else int((self.now() - batch.since) * 1000 / timeout_ms)
            if times > batch.times:
                batch.times, batch.late = times, True
                yield query, batch


class Sidecar:
    """The background work of one job: records, savepoints, metrics. It cannot fail the job.

    Args:
        definition: The job's definition.
        home: The state home.
        registry: The registry of the state home.
        clock: Returns epoch milliseconds.
        may: Returns False once another supervisor owns the job; called before each piece of work.
    """

    def __init__(
        self,
        definition: JobDefined,
        home: Path,
        registry: Registry,
        clock: Callable[[], int],
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._definition = definition
        self._home = home
        self._clock = clock
        self._may = may
        self.begin()
        wanted = definition.savepoints
        self._observing = Observing(
            definition.name,
            definition.alerts,
            home,
            registry,
            catalog=None if wanted is None else wanted.catalog,
            clock=clock,
            may=may,
        )

    def begin(self) -> None:
        """Start recording and taking savepoints; called again after checkpoints were replaced."""
        wanted = self._definition.savepoints
        self._closed = False
        self._recording = Recording(self._home, self._may) if self._definition.record else None
        self._savepointing = None if wanted is None else Savepointing(wanted, self._clock, self._may)

    def started(self, checkpoints: Mapping[str, str], spark: str | None = None) -> None:
        """Handle the start of queries with these checkpoints, by name, under this version of Spark."""
        if self._recording is not None:
            self._recording.started(checkpoints, spark)
        for worker in (self._savepointing, self._observing):
            if worker is not None:
                worker.started(checkpoints)

    def committed(self, batch: BatchProgress, *, first: bool) -> None:
        """Handle a committed batch; `first` is True for the first one of a driver."""
        if self._recording is not None:
            self._recording.committed(batch.query, batch.batch_id, first=first)
        self._observing.committed(batch)

    def busy(self, query: str, *, busy: bool) -> None:
        """Handle that a query has begun a batch or is idle."""
        self._observing.busy(query, busy=busy)

    def ended(self) -> None:
        """Handle the end of the driver and its JVM."""
        for worker in (self._recording, self._savepointing, self._observing):
            if worker is not None:
                worker.ended()

    def heard(self) -> Iterator[JobEvent]:
        """Yield the events since the last call."""
        for worker in (self._recording, self._savepointing, self._observing):
            if worker is not None:
                yield from worker.heard()

    def abandon(self) -> None:
        """Stop at once and leave pending work to the next owner."""
        for worker in (self._savepointing, self._recording, self._observing):
            if worker is not None:
                worker.abandon()

    def close(self) -> None:
        """Stop all but metrics: record the last batch and finish a savepoint in progress."""
        if not self._closed:
            self._closed = True
            for worker in (self._savepointing, self._recording):
                if worker is not None:
                    worker.close()

    def close_observing(self) -> None:
        """Stop metrics, after the job's end was recorded."""
        self._observing.close()


# How often somebody who waits checks whether anything was asked for.
LOOK_S = 0.2


class StopRequests:
    """The requests to one supervisor over its life; a signal interrupts any wait.

    Attributes:
        stops: The number of requests to stop; the second means at once.
        cancel: True if the job is to be cancelled.
        signalled: True if a signal requested the stop.
        rescale: True if the checkpoints are to be rescaled between two drivers.
    """

    def __init__(self) -> None:
        self.stops = 0
        self.cancel = False
        self.signalled = False
        self.rescale = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT as requests to stop."""
        former = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            self._wake_read.close()
            self._wake_write.close()

    def fileno(self) -> int:
        """Return a file descriptor that is readable after a signal."""
        return self._wake_read.fileno()

    def drain_signals(self) -> None:
        """Discard the signals received so far; `fileno` is readable again after the next one."""
        with suppress(BlockingIOError):
            self._wake_read.recv(64)

    @property
    def any(self) -> bool:
        """True if the job is to end."""
        return bool(self.stops) or self.cancel

    @property
    def at_once(self) -> bool:
        """True if the job is to end without finishing its batch."""
        return self.cancel or self.stops > 1

    def wait(self, seconds: float, look: Callable[[], None]) -> bool:
        """Wait and return True, or False if the job is to end; `look` is called repeatedly meanwhile."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                selector.select(min(left, LOOK_S))
                self.drain_signals()
                look()
                if self.any:
                    return False
        return True

    def pause(self, seconds: float) -> bool:
        """Wait and return True, or return False if another signal arrives; ignores earlier requests."""
        before = self.stops
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            self.drain_signals()
            selector.select(seconds)
        return self.stops == before

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stops += 1
        self.signalled = True
        with suppress(OSError):
            self._wake_write.send(b"!")


class SupervisedJob:
    """One job, shared by its supervisor and its driver sessions.

    Args:
        spec: The job file and how to run it.
        home: The state home.
        tell: Called with each event.
        clock: Returns epoch milliseconds.
        leadership: The supervisor's right to run the job.
        policy: The restart strategy until the job's own is known.
        machine: The name of the machine that this process and its drivers run on.
        orphan_grace_s: The time limit for a driver that lost its supervisor to finish its batch.
        launch: Starts a driver.
        now: A monotonic clock.

    Attributes:
        begun: True if this supervisor owns the job and the registry has it.
        definition: The job's definition, reported by the first driver.
        restored: True if its checkpoints were restored from savepoints.
        driver: The driver that runs, or ran last.
        standby: The driver that waits to take over, if there is one.
        keeps_standby: True if there is always to be one.
        handover: The planned handovers; None until the job is begun.
        scratch: The directories of temporary files of the driver's JVM, which stay when it is killed.
        training: The process that makes the archive of Spark's classes.
        attempts: The number of drivers started.
        batches: The number of batches that they have committed.
    """

    def __init__(
        self,
        spec: DriverSpec,
        home: StateHome,
        tell: EventHandler,
        clock: Callable[[], int],
        leadership: Leadership,
        policy: RestartPolicy,
        *,
        machine: str | None,
        orphan_grace_s: float,
        launch: Callable[[DriverSpec], DriverProcess],
        now: Callable[[], float],
    ) -> None:
        self.spec = spec
        self.home = home
        self.clock = clock
        self.leadership = leadership
        self.policy = policy
        self.machine = machine or this_machine()
        self.requests = StopRequests()
        self.recovery = RecoveryTracker(home.path, spec.target, clock, self.say)
        self.definition: JobDefined | None = None
        self.driver: DriverAttempt | None = None
        self.sidecar: Sidecar | None = None
        self.standby = StandbyDriver(spec, home, launch, self.say, self._record_standby, now)
        self.keeps_standby = False
        self.handover: Handover | None = None
        self.autoscaler: Autoscaler | None = None
        self.training = ClassTraining(home)
        self.scratch: tuple[str, ...] = ()
        self.begun = self.restored = False
        self.attempts = self.batches = 0
        self._state = JobState.CREATED
        self._now = now
        self._tell = logged(tell)
        self._orphan_grace_s = orphan_grace_s
        self.write_as(None)

    @property
    def name(self) -> str:
        """The job's name."""
        if self.definition is None:
            raise Internal(
                "the supervisor has not loaded the job yet",
                code="HF-E9027",
                where=self.spec.target,
                hint="please report this",
            )
        return self.definition.name

    def say(self, kind: str, text: str, **facts: Any) -> None:
        """Report an event: its kind, a line of text, and the same as values."""
        name = self.definition.name if self.definition else Path(self.spec.target).stem
        self._tell(JobEvent(kind, f"{name}: {text}", {"job": name, **facts}))

    def require_same(self, definition: JobDefined) -> None:
        """Raise if the job file now defines a different job.

        Raises:
            Conflict: The job's name or checkpoint has changed in the job file.
        """
        former = self.definition
        if former is None or (definition.name, definition.checkpoint) == (former.name, former.checkpoint):
            return
        raise Conflict(
            "the job's name or checkpoint was changed in the job file while the job ran",
            code="HF-E4036",
            where=self.spec.target,
            found=f"{definition.name} in {definition.checkpoint}",
            expected=f"{former.name} in {former.checkpoint}",
            hint="stop the job before you change its name or checkpoint",
        )

    # What the registry knows of it.

    def write_as(self, token: int | None) -> None:
        """Write to the registry with the token of a term, or with none."""
        self.registry = Registry(self.home.registry, token)
        self.notes = DeferredRegistry(self.home.registry, token, self.say, self.wait)

    def begin(self, definition: JobDefined, record: JobRecord) -> None:
        """Register the job as this supervisor's and start its background work."""
        self.notes.start_job(record)
        self.sidecar = Sidecar(definition, self.home.path, self.registry, self.clock, self._may_work_beside)
        self.handover = Handover(self.home, definition.name, self.standby, self.clock, self._now, self.say)
        if definition.autoscale is not None:
            limit_ms = batch_limit_ms(definition.alerts.thresholds)
            self.autoscaler = Autoscaler(
                self.home, definition.name, definition.autoscale, limit_ms, self.clock, self.say
            )
        with suppress(HoldfastError):  # the file is busy; nothing of the job depends on it
            self.handover.recover()
        self.begun, self._state = True, JobState.CREATED
        if self.leadership.candidacy is not None:
            self.leadership.candidacy.begin(definition.checkpoint, record.started_ms, ran=self.restored)

    def _record_standby(self, job: str, pid: int, memory_bytes: int | None) -> None:
        """Record a standby driver that is ready; None for its memory ends the record."""
        if memory_bytes is None:
            self.notes.later(Registry.end_standby, job, pid)
        else:
            self.notes.later(Registry.set_standby, job, Standby(pid, self.clock(), memory_bytes))

    def set_state(self, state: JobState, reason: str | None) -> None:
        """Record the job's state, once the job is begun.

        Raises:
            Internal: The transition is not allowed.
        """
        if self.begun:
            self._state = next_state(self._state, state)
            self.notes.later(Registry.set_state, self.name, state, self.clock(), reason)

    def is_running(self) -> None:
        """Record that all queries have started; the registry is updated together with the queries."""
        self._state = next_state(self._state, JobState.RUNNING)

    def outcome(self, state: JobState, reason: str | None) -> JobOutcome:
        """Return the outcome."""
        return JobOutcome(state, reason, self.attempts, self.batches)

    # Whether to continue.

    def look_at_size(self, batch: BatchProgress) -> None:
        """Let a batch decide on the number of partitions, unless the driver is to stop anyway."""
        idle = self.handover is None or not self.handover.under_way
        if self.autoscaler is not None and idle and not self.requests.any and not self.requests.rescale:
            self.requests.rescale = self.autoscaler.committed(batch)

    def require_lead(self) -> None:
        """Raise unless this supervisor still leads the begun job.

        Raises:
            LeadershipLost: Another supervisor leads the job, or may lead it.
        """
        if self.begun:
            self.leadership.require()

    def keep_leading(self) -> None:
        """Raise unless this supervisor leads, and send the end of the lease to the driver.

        A driver that has no number yet gets no lease: its watchdog would expire during a long check of the
        checkpoint.
        """
        self.require_lead()
        until_s, driver = self.leadership.until_s, self.driver
        if not self.begun or until_s is None or driver is None or not driver.number:
            return
        if driver.until_s != until_s:
            driver.until_s = until_s
            driver.process.channel.send(protocol.Lead(until_s))

    def look_for_requests(self) -> None:
        """Handle requests for the job; while another supervisor leads, that one answers."""
        if not self.begun:
            return
        for verb in self.notes.take_requests(self.name, self.clock()):
            if verb in ("stop", "cancel"):
                self.leadership.note(request=verb)
            if verb == "stop":
                self.requests.stops += 1
            elif verb == RESCALE:
                self.requests.rescale = True
            elif verb == RESTART and self.handover is not None:
                self.handover.begin()
            elif verb == "cancel":
                self.requests.cancel = True
                self.set_state(JobState.CANCELLING, None)

    def goes_on(self) -> bool:
        """Return True if no stop was requested."""
        self.require_lead()
        self.look_for_requests()
        return not self.requests.any

    def wait(self, seconds: float) -> bool:
        """Wait and return True, or return False if the job is asked to end."""

        def look() -> None:
            self.keep_leading()
            self.look_for_requests()

        return self.requests.wait(seconds, look)

    # Its checkpoint.

    def claim(self, definition: JobDefined) -> CheckpointClaim:
        """Return the job's claim on the checkpoint."""
        return CheckpointClaim(definition.checkpoint, definition.name, self.home.path, self.machine)

    def take_checkpoint(self, definition: JobDefined) -> bool:
        """Own the checkpoint and wait until no former driver uses it; False if asked to end meanwhile.

        Raises:
            Conflict: The checkpoint has a different owner.
            Unavailable: The storage does not answer.
        """
        claim = self.claim(definition)
        candidacy = self.leadership.candidacy
        if candidacy is not None and not take_over(claim, candidacy, self.say, self.goes_on):
            return False
        if not self.leadership.take_lease(definition.checkpoint, definition.name, self.wait, self.say):
            return False
        if candidacy is None:
            claim.wait(self._orphan_grace_s, self.say)
        return True

    # The work beside it.

    def tell_of_sidecar(self) -> None:
        """Report what the sidecar did or failed to do."""
        if self.sidecar is None:
            return
        for event in self.sidecar.heard():
            if event.kind in (TAKEN, NOT_TAKEN):
                self.notes.later(Registry.add_savepoint, self.name, SavepointNote(**event.facts))
            self.say(event.kind, event.text, **event.facts)

    def close_sidecar(self) -> None:
        """Stop recording and savepoints, and report their last events."""
        if self.sidecar is not None:
            self.sidecar.close()
            with suppress(HoldfastError):
                self.tell_of_sidecar()

    def abandon_sidecar(self) -> None:
        """Stop the sidecar at once, because the job has a different owner."""
        if self.sidecar is not None:
            self.sidecar.abandon()
            self.sidecar = None

    def close(self) -> None:
        """Close everything, after the job's end was recorded."""
        self.standby.close()
        if self.handover is not None:
            ended = Conflict(
                f"job {self.name!r} ended before a new driver took over",
                code="HF-E4075",
            )
            with suppress(HoldfastError):  # a later supervisor answers it
                self.handover.fail(ended)
        self.training.close()
        remove_scratch(self.scratch)
        self.close_sidecar()
        self.notes.settle(self.requests.pause)
        if self.sidecar is not None:
            self.sidecar.close_observing()  # what stood wrong is over, and the registry has how the job ended
            with suppress(HoldfastError):
                self.tell_of_sidecar()
            self.sidecar = None
        self.leadership.close()

    def _may_work_beside(self) -> bool:
        return not self.begun or not self.leadership.lost
