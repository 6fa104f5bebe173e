"""Keep one job running: start its driver, and restart it by the job's strategy, until the job ends.

The supervisor runs no Spark. It writes everything to the registry at once, so that it can be killed at any
moment: the next one resumes from the checkpoint.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from holdfast.checkpoints.record import refuse_newer
from holdfast.clock import steady_s
from holdfast.config.policies import exponential
from holdfast.errors import HoldfastError
from holdfast.jobs import failures
from holdfast.jobs.events import EventHandler, JobOutcome
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import JobDefined
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.rescaler import Rescaler
from holdfast.jobs.restart_policy import GiveUp, RestartPolicy
from holdfast.jobs.rollback import unusable_fallback
from holdfast.jobs.run_record import note_run
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.driver_session import DriverSession
from holdfast.jobs.supervisor.leadership import Leadership
from holdfast.jobs.supervisor.standby import checkpoints_of, require_final, stand_by
from holdfast.jobs.supervisor.supervised_job import DriverAttempt, SupervisedJob
from holdfast.model import Failure, JobState
from holdfast.ownership.checkpoint_claim import ORPHAN_GRACE_S
from holdfast.ownership.election import CannotLead, LeadershipLost, Now
from holdfast.ownership.elections import Elections
from holdfast.ownership.lease import LEASE_S
from holdfast.quantities import rounded_duration
from holdfast.storage.successors import void_unpublished


class Supervisor:
    """Runs one job until it ends for good.

    With `elections` it is one of several for the job: it runs the job while it leads, and stands by while a
    different one leads.

    Args:
        spec: The job file and how to run it.
        home: The state home.
        tell: Called with each event, on this thread.
        clock: Returns epoch milliseconds.
        rng: The random numbers for the jitter of restart delays.
        launch: Starts a driver; tests pass one that needs no JVM.
        orphan_grace_s: The time limit for a driver that lost its supervisor to finish its batch.
        elections: The factory of elections; None for a job with a single supervisor.
        now: The monotonic clock of the elections and of the restart strategy.
        lease_s: The time after which the lease next to a checkpoint expires if it is not renewed; without
            elections.
        machine: The name of the machine that this process and its drivers run on.
    """

    def __init__(
        self,
        spec: DriverSpec,
        home: StateHome,
        tell: EventHandler,
        *,
        clock: Callable[[], int],
        rng: random.Random,
        launch: Callable[[DriverSpec], DriverProcess] = DriverProcess.start,
        orphan_grace_s: float = ORPHAN_GRACE_S,
        elections: Elections | None = None,
        now: Now = steady_s,
        lease_s: float = LEASE_S,
        machine: str | None = None,
    ) -> None:
        self._spec = spec
        self._rng = rng
        self._launch = launch
        self._now = now
        self._leadership = Leadership(elections, clock, now, lease_s)
        self._job = SupervisedJob(
            spec,
            home,
            tell,
            clock,
            self._leadership,
            # Until a driver has lived long enough to tell the job's own strategy.
            RestartPolicy(exponential(), rng),
            machine=machine,
            orphan_grace_s=orphan_grace_s,
            launch=launch,
            now=now,
        )
        self._requests = self._job.requests
        # When the job was begun that this supervisor takes over.
        self._since_ms: int | None = None
        self._rescaler: Rescaler | None = None

    def run(self) -> JobOutcome:
        """Run the job until it ends.

        The first SIGTERM or SIGINT stops the driver after the running batch; a second signal ends the driver
        at once, without loss of data. With several supervisors, the job does not end with such a signal: the
        next leader continues it.

        Raises:
            HoldfastError: The driver refused the job, for example because of a bad file or a checkpoint in
                use.
        """
        with self._requests.on_signals():
            try:
                return self._run()
            finally:
                self._job.close()

    def _run(self) -> JobOutcome:
        step = self._run_driver
        while True:
            try:
                outcome = step()
            except LeadershipLost as error:
                self._step_down(error)
                outcome = None
            if outcome is not None:
                return outcome
            step = self._run_driver if self._leadership.leads else self._stand_by

    def _run_driver(self) -> JobOutcome | None:
        self._job.require_lead()
        taken = self._job.standby.take()
        try:
            process = self._launch(self._spec) if taken is None else taken.process
        except OSError as error:  # processes or descriptors are used up; that may pass
            return self._before_restart(failures.not_begun(error))
        attempt = DriverSession(self._job, process, self._admit, taken).run()
        return self._after(attempt) if attempt.leads else None

    # Before a driver begins.

    def _admit(self, definition: JobDefined) -> bool:
        """Take over the job and its checkpoint, and check that the checkpoint is whole."""
        job, first = self._job, not self._job.begun
        if first:
            ready = self._begin(definition)
        else:
            job.require_same(definition)
            ready = job.take_checkpoint(definition)
        if not ready:
            return False
        settings = definition.recovery
        if self._spec.fallback is not None:
            settings = replace(settings, fallback=self._spec.fallback, verify=settings.verify or "1m")
        candidacy = self._leadership.candidacy
        started = job.notes.now(Registry.queries, definition.name)
        known = {query.name: query.checkpoint for query in started}
        record = None if candidacy is None else candidacy.record
        queries = checkpoints_of(record, known, definition.checkpoint)
        refuse_newer([definition.checkpoint, *queries.values()], job.home.path)
        warning = unusable_fallback(settings.fallback, [definition.checkpoint]) if first else None
        if warning is not None:
            job.say("caution", warning)
        periodic = None if definition.savepoints is None else definition.savepoints.catalog
        catalogs = tuple(filter(None, dict.fromkeys((definition.savepoint_catalog, periodic))))
        job.recovery.prepare(
            definition.checkpoint, queries, settings, catalogs, self._leadership.require_checkpoint
        )
        void_unpublished(definition.checkpoint)  # an earlier owner may be suspended before its publication
        with suppress(HoldfastError, OSError):  # only an upgrade needs it, and reports what is missing
            note_run(job.home, definition.name, self._spec)
        return True

    def _begin(self, definition: JobDefined) -> bool:
        """Take over the job; False if a different supervisor leads it, or it is to end."""
        job = self._job
        if job.definition is not None and job.definition.name != definition.name:
            job.require_same(definition)
        job.keeps_standby = definition.standby or self._spec.standby
        self._leadership.enter(definition.name, job.home, job.registry)
        if not self._leadership.alone:
            job.definition = job.definition or definition
            if not self._leadership.leads:
                if not self._leadership.required_candidacy.stand():
                    return False
                self._lead()
        target, on_cancel, now_ms = self._spec.target, definition.on_cancel, job.clock()
        record = JobRecord.begun(
            definition.name,
            target,
            definition.checkpoint,
            on_cancel,
            now_ms,
            self._since_ms,
            definition.savepoint_catalog,
        )
        job.definition = definition
        job.policy = RestartPolicy(definition.restart, self._rng, ran=job.restored)
        if not job.take_checkpoint(definition):
            return False
        rescaler = self._recover_rescales(definition)
        job.begin(definition, record)
        with suppress(HoldfastError):  # the file is busy; nothing of the job depends on it
            rescaler.refuse_what_waits()
        return True

    def _recover_rescales(self, definition: JobDefined) -> Rescaler:
        """Finish or undo the rescales of former supervisors; the checkpoint is this supervisor's."""
        job, candidacy = self._job, self._leadership.candidacy
        self._rescaler = rescaler = Rescaler(job.home, definition.name, self._spec, job.clock, candidacy)
        rescaler.recover()
        return rescaler

    # After a driver has ended.

    def _after(self, attempt: DriverAttempt) -> JobOutcome | None:
        """Return the outcome after a driver's end; None if a new driver follows."""
        if attempt.refusal is not None:
            self._require_final(attempt, attempt.refusal)
            if self._job.handover is not None:
                self._job.handover.fail(attempt.refusal)
            self._job.set_state(JobState.FAILED, attempt.refusal.fact)
            raise attempt.refusal
        if attempt.ending == "canceled":
            return self._canceled()
        if attempt.failure is not None:
            return self._before_restart(attempt.failure, attempt.failed_ms, committed=attempt.batches > 0)
        if attempt.ending == "stopped":
            if attempt.hands_over and not self._requests.any:
                self._job.set_state(JobState.RESTARTING, "a new driver takes over")
                return None
            return self._rescaled() if self._requests.rescale else self._stopped(attempt.ending)
        return self._end(JobState.FINISHED, attempt.ending)

    def _before_restart(
        self, failure: Failure, failed_ms: int | None = None, *, committed: bool = False
    ) -> JobOutcome | None:
        """Wait for the delay of the restart strategy; return the outcome if no new driver is to start."""
        job = self._job
        if self._requests.stops:
            return self._stopped(f"stopped; the last driver failed: {failure}")
        ended_ms = job.clock()
        failed_ms = ended_ms if failed_ms is None else failed_ms
        job.recovery.failed(f"{failure.cause}: {failure}", failed_ms, ended_ms)
        decision = job.policy.on_failure(
            failure.fingerprint,
            committed,
            int(self._now() * 1000),
            comes_again=failures.comes_again(failure),
            permanent=failures.is_permanent(failure),
        )
        if isinstance(decision, GiveUp):
            return self._end(JobState.FAILED, f"{failure}; gave up: {decision.reason}")
        job.set_state(JobState.RESTARTING, str(failure))
        # The delay protects against a driver that fails over and over. One that has committed has not, and
        # the next standby needs seconds to warm up.
        at_once = committed and job.standby.ready
        delay_ms = 0 if at_once else decision.delay_ms
        how = "its standby driver takes over" if at_once else f"restarting in {rounded_duration(delay_ms)}"
        job.say("restarting", f"{failure}; {how}")
        if job.wait(delay_ms / 1000):
            job.recovery.resumed()
            return None
        if self._requests.cancel:
            return self._canceled()
        return self._stopped("stopped while it waited for a restart")

    def _rescaled(self) -> JobOutcome | None:
        """Rescale the checkpoints between two drivers; return None if a new driver follows."""
        job = self._job
        self._requests.rescale = False
        if job.goes_on() and self._rescaler is not None:
            job.close_sidecar()
            job.set_state(JobState.RESTARTING, "its checkpoints are being rescaled")
            self._rescaler.carry_out(lambda: job.goes_on() and not self._leadership.lost, job.say)
            if job.sidecar is not None:
                job.sidecar.begin()
        if self._requests.cancel:
            return self._canceled()
        return self._stopped("stopped between two drivers") if self._requests.stops else None

    # Of several supervisors one leads.

    def _stand_by(self) -> JobOutcome | None:
        """Wait until no other supervisor leads; return the outcome if the job has ended."""
        job, candidacy = self._job, self._leadership.required_candidacy
        if not stand_by(candidacy, self._wait_beside_leader, job.say):
            return self._end(JobState.FINISHED, "stopped while standing by")
        ended, record = candidacy.ended_meanwhile, candidacy.record
        if ended is not None and ended.state is not None:
            job.write_as(candidacy.token)
            job.say("ended", f"the job has ended under its leader: {ended.state.value}")
            return job.outcome(ended.state, ended.reason)
        self._lead()
        self._since_ms, job.restored = (None, False) if record is None else (record.begun_ms, record.ran)
        if candidacy.former is not None:
            cause = f"resources: {candidacy.former.holder} does not lead any more"
            job.recovery.failed(cause, candidacy.former.heard_ms, job.clock())
            job.recovery.resumed()
        if record is None or record.request is None or job.definition is None:
            return None
        # Its leader was lost before it had done what it was asked for.
        taken = job.take_checkpoint(job.definition)
        if taken:
            self._recover_rescales(job.definition)
        elif record.pending is not None:
            return self._end(JobState.RESTARTING, "handed over to the next leader")
        if taken and record.request == "cancel":
            return self._canceled()
        return self._end(JobState.FINISHED, f"stopped, as requested from {record.holder}")

    def _wait_beside_leader(self, seconds: float) -> bool:
        if self._job.keeps_standby:
            self._job.standby.keep()
        return self._job.wait(seconds)

    def _lead(self) -> None:
        candidacy = self._leadership.required_candidacy
        self._job.write_as(candidacy.token)
        self._job.say("leading", f"leading, elected at {candidacy.address}", token=candidacy.token)

    def _step_down(self, error: LeadershipLost) -> None:
        """Leave the job to its new leader; the driver has been ended."""
        with suppress(HoldfastError):  # another leader has written to this registry, and knows better
            self._job.set_state(JobState.RESTARTING, "a different supervisor may lead it")
        self._job.begun = self._requests.rescale = False
        self._job.abandon_sidecar()
        self._leadership.step_down(resign=isinstance(error, CannotLead))
        self._job.say("deposed", f"lost the leadership: {error.found or error.fact}")

    def _require_final(self, attempt: DriverAttempt, refusal: HoldfastError) -> None:
        candidacy, definition = self._leadership.candidacy, self._job.definition
        if candidacy is not None and definition is not None:
            self._job.require_lead()
            # The lock is the last thing that is in a driver's way.
            begun = bool(attempt.number) and self._job.claim(definition).until_free(0)
            require_final(refusal, candidacy, begun=begun)

    # Endings.

    def _canceled(self) -> JobOutcome:
        definition = self._job.definition
        if definition is not None and definition.on_cancel == "delete":
            self._job.close_sidecar()
            if not self._job.claim(definition).delete():
                uri = definition.checkpoint
                self._job.say("kept", f"the checkpoint {uri} is not on this machine and was not deleted")
        return self._end(JobState.CANCELED, "canceled")

    def _stopped(self, reason: str | None) -> JobOutcome:
        """Return the outcome of a stopped job; with several supervisors a signal hands the job over."""
        if self._leadership.candidacy is None or not self._requests.signalled:
            return self._end(JobState.FINISHED, reason)
        return self._end(JobState.RESTARTING, "handed over to the next leader")

    def _end(self, state: JobState, reason: str | None) -> JobOutcome:
        job = self._job
        job.close_sidecar()
        job.set_state(state, reason)
        if self._leadership.candidacy is not None:
            self._leadership.candidacy.note_end(state, reason, job.say)
        # Why it failed is the error that the caller will tell.
        how = reason if reason and state is not JobState.FAILED else state.value.lower()
        job.say(state.value.lower(), f"{how} after {job.batches} batch{'' if job.batches == 1 else 'es'}")
        return job.outcome(state, reason)
