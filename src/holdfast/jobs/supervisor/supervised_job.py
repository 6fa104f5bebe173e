"""The job that a supervisor has: its right to run it, what it was asked, what is told and written of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.checkpoints.guard.machine import this_machine
from holdfast.errors import Conflict, HoldfastError, Internal
from holdfast.jobs.background.savepoint_schedule import NOT_TAKEN, TAKEN
from holdfast.jobs.events import Event, EventHandler, Outcome, logged
from holdfast.jobs.operations.rescaler import VERB as RESCALE
from holdfast.jobs.processes import protocol
from holdfast.jobs.processes.checkpoint_claim import CheckpointClaim
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.protocol import JobDefined
from holdfast.jobs.recovery.restart_policy import RestartPolicy
from holdfast.jobs.recovery.tracker import RecoveryTracker
from holdfast.jobs.registry.deferred_registry import DeferredRegistry
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.attempt import DriverAttempt
from holdfast.jobs.supervisor.leadership import Leadership
from holdfast.jobs.supervisor.sidecar import Sidecar
from holdfast.jobs.supervisor.standby import take_over
from holdfast.jobs.supervisor.states import next_state
from holdfast.jobs.supervisor.stop_requests import StopRequests
from holdfast.model import JobState, SavepointNote


class SupervisedJob:
    """One job, as its supervisor and the sessions of its drivers share it.

    Args:
        spec: The job file and how to run it.
        home: The state home.
        tell: Called with each event.
        clock: Epoch milliseconds.
        leadership: The supervisor's right to run the job.
        policy: When to start another driver, until the job's own strategy is known.
        machine: Names the machine that this process and its drivers run on.
        orphan_grace_s: How long a driver that lost its supervisor may take to end its batch.

    Attributes:
        begun: Whether the job is this supervisor's, and the registry knows it.
        definition: What the first driver said of the job.
        restored: Whether its checkpoints were made of savepoints.
        driver: The driver that runs, or ran last.
        attempts: How many drivers were started.
        batches: How many batches they have committed.
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
        self.begun = self.restored = False
        self.attempts = self.batches = 0
        self._state = JobState.CREATED
        self._tell = logged(tell)
        self._orphan_grace_s = orphan_grace_s
        self.write_as(None)

    @property
    def name(self) -> str:
        """The job's name."""
        if self.definition is None:
            raise Internal("the supervisor does not know its job yet", where=self.spec.target)
        return self.definition.name

    def say(self, kind: str, text: str, **facts: Any) -> None:
        """Tell an event: its kind, a line of text, and the same as values."""
        name = self.definition.name if self.definition else Path(self.spec.target).stem
        self._tell(Event(kind, f"{name}: {text}", {"job": name, **facts}))

    def require_same(self, definition: JobDefined) -> None:
        """Refuse another job than the one that runs.

        Raises:
            Conflict: The job file says another name or checkpoint than it did.
        """
        former = self.definition
        if former is None or (definition.name, definition.checkpoint) == (former.name, former.checkpoint):
            return
        raise Conflict(
            "the job file changed its name or checkpoint while the job ran",
            where=self.spec.target,
            found=f"{definition.name} in {definition.checkpoint}",
            expected=f"{former.name} in {former.checkpoint}",
            hint="stop the job before changing either",
        )

    # What the registry knows of it.

    def write_as(self, token: int | None) -> None:
        """Write to the registry with the token of a term, or with none."""
        self.registry = Registry(self.home.registry, token)
        self.notes = DeferredRegistry(self.home.registry, token, self.say, self.wait)

    def begin(self, definition: JobDefined, record: JobRecord) -> None:
        """Make it this supervisor's in the registry, and begin the work beside it."""
        self.notes.start_job(record)
        self.sidecar = Sidecar(definition, self.home.path, self.registry, self.clock, self._may_work_beside)
        self.begun, self._state = True, JobState.CREATED
        if self.leadership.candidacy is not None:
            self.leadership.candidacy.begin(definition.checkpoint, record.started_ms, ran=self.restored)

    def set_state(self, state: JobState, reason: str | None) -> None:
        """Write its state down, once it is begun.

        Raises:
            Internal: The state may not follow the present one.
        """
        if self.begun:
            self._state = next_state(self._state, state)
            self.notes.later(Registry.set_state, self.name, state, self.clock(), reason)

    def is_running(self) -> None:
        """Note that all queries have started; the registry hears it with the queries."""
        self._state = next_state(self._state, JobState.RUNNING)

    def outcome(self, state: JobState, reason: str | None) -> Outcome:
        """How it ended."""
        return Outcome(state, reason, self.attempts, self.batches)

    # Whether to go on.

    def require_lead(self) -> None:
        """Go on only as the leader, where the job is begun.

        Raises:
            LeadershipLost: Another supervisor leads it, or may lead it.
        """
        if self.begun:
            self.leadership.require()

    def keep_leading(self) -> None:
        """Go on only as the leader, and let the driver know until when it may count on that.

        One that may not begin yet has no number and hears nothing: its watchdog would not outlast a long
        look at the checkpoint.
        """
        self.require_lead()
        until_s, driver = self.leadership.until_s, self.driver
        if not self.begun or until_s is None or driver is None or not driver.number:
            return
        if driver.until_s != until_s:
            driver.until_s = until_s
            driver.process.channel.send(protocol.Lead(until_s))

    def look_for_requests(self) -> None:
        """See what was asked of the job; while another supervisor leads it, that one answers."""
        if not self.begun:
            return
        for verb in self.notes.take_requests(self.name, self.clock()):
            if verb in ("stop", "cancel"):
                self.leadership.note(request=verb)
            if verb == "stop":
                self.requests.stops += 1
            elif verb == RESCALE and self.leadership.alone:  # a server refuses it elsewhere
                self.requests.rescale = True
            elif verb == "cancel":
                self.requests.cancel = True
                self.set_state(JobState.CANCELLING, None)

    def goes_on(self) -> bool:
        """Whether nobody has asked it to end."""
        self.require_lead()
        self.look_for_requests()
        return not self.requests.any

    def wait(self, seconds: float) -> bool:
        """Wait, unless somebody asks the job to end; False if so."""

        def look() -> None:
            self.keep_leading()
            self.look_for_requests()

        return self.requests.wait(seconds, look)

    # Its checkpoint.

    def claim(self, definition: JobDefined) -> CheckpointClaim:
        """Its claim on the checkpoint."""
        return CheckpointClaim(definition.checkpoint, definition.name, self.home.path, self.machine)

    def take_checkpoint(self, definition: JobDefined) -> bool:
        """Own it, and wait until no former driver of it has it; False if told to end meanwhile.

        Raises:
            Conflict: Somebody else owns it.
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
        """Pass on what the sidecar has done, and what it could not do."""
        if self.sidecar is None:
            return
        for event in self.sidecar.heard():
            if event.kind in (TAKEN, NOT_TAKEN):
                self.notes.later(Registry.add_savepoint, self.name, SavepointNote(**event.facts))
            self.say(event.kind, event.text, **event.facts)

    def close_sidecar(self) -> None:
        """End recording and savepoints, and tell the last of them."""
        if self.sidecar is not None:
            self.sidecar.close()
            with suppress(HoldfastError):
                self.tell_of_sidecar()

    def abandon_sidecar(self) -> None:
        """End the sidecar at once: the job is somebody else's."""
        if self.sidecar is not None:
            self.sidecar.abandon()
            self.sidecar = None

    def close(self) -> None:
        """End what is left, once it is written down how the job has ended."""
        self.close_sidecar()
        if self.sidecar is not None:
            self.sidecar.close_observing()  # what stood wrong is over
            with suppress(HoldfastError):
                self.tell_of_sidecar()
            self.sidecar = None
        self.notes.settle(self.requests.pause)
        self.leadership.close()

    def _may_work_beside(self) -> bool:
        return not self.begun or not self.leadership.lost
