"""Keep one job running: start its driver, watch it, start it again by the job's strategy.

The supervisor has no Spark in it. What it learns it writes to the registry at once, so that it can be
killed at any moment: the next one finds the truth in the checkpoint and starts from there.
"""

from __future__ import annotations

import random
import selectors
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.config.job.restart import exponential
from holdfast.config.units import rounded_duration
from holdfast.errors import HoldfastError, Internal
from holdfast.jobs.failures import summary as failures
from holdfast.jobs.ha.candidacy import Candidacy, take_alone
from holdfast.jobs.ha.elections import Elections
from holdfast.jobs.ha.leader_record import places_of
from holdfast.jobs.machine import DriverIdentity, this_machine
from holdfast.jobs.operations.rescaler import VERB as RESCALE
from holdfast.jobs.operations.rescaler import Rescaler
from holdfast.jobs.processes import protocol
from holdfast.jobs.processes.checkpoint_claim import JVM_GRACE_S, ORPHAN_GRACE_S, CheckpointClaim
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.events import Event, EventHandler, Outcome, batch_line, logged
from holdfast.jobs.recovery.restart_policy import GiveUp, RestartPolicy
from holdfast.jobs.recovery.tracker import RecoveryTracker
from holdfast.jobs.registry.deferred_registry import DeferredRegistry
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.jobs.supervisor.attempt import DriverAttempt, JobDefinition
from holdfast.jobs.supervisor.sidecar import Sidecar
from holdfast.jobs.supervisor.standby import checkpoints_of, require_final, stand_by, take_over
from holdfast.jobs.supervisor.states import next_state
from holdfast.jobs.supervisor.stop_requests import LOOK_S, StopRequests
from holdfast.jobs.terms import CannotLead, LeadershipLost, Now
from holdfast.model import Failure, JobState


class Supervisor:
    """Runs one job until it ends for good.

    With `elections` it is one of several for the job: it runs the job while it leads, and stands by while
    another one does.

    Args:
        spec: The job file and how to run it.
        home: The state home.
        tell: Called with each event, on this thread.
        clock: Epoch milliseconds.
        rng: For the jitter of restart delays.
        launch: How to start a driver; tests pass one that needs no JVM.
        orphan_grace_s: How long a driver that lost its supervisor may take to end its batch.
        elections: How to take part in elections; None where it has the job to itself.
        now: The clock of the elections.
        machine: Names the machine that this process and its drivers run on.
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
        now: Now = time.monotonic,
        machine: str | None = None,
    ) -> None:
        self._spec = spec
        self._home = home
        self._tell = logged(tell)
        self._clock = clock
        self._rng = rng
        self._launch = launch
        self._orphan_grace_s = orphan_grace_s
        self._definition: JobDefinition | None = None
        self._write_as(None)
        # Until a driver has lived long enough to tell the job's own strategy.
        self._policy = RestartPolicy(exponential(), rng)
        self._lock: SupervisorLock | None = None
        self._elections = elections
        self._now = now
        self._machine = machine or this_machine()
        self._candidacy: Candidacy | None = None
        # Whether the job is this supervisor's, and the registry knows it.
        self._begun, self._state = False, JobState.CREATED
        self._recovery = RecoveryTracker(home.path, spec.target, clock, self._say)
        self._handlers = self._message_handlers()
        self._sidecar: Sidecar | None = None
        self._restored = False
        # When the job was begun that this supervisor takes over.
        self._since_ms: int | None = None
        self._rescaler: Rescaler | None = None
        self._rescale_asked = False
        self._requests = StopRequests()
        self._driver: DriverAttempt | None = None
        self._attempts = 0
        self._batches = 0

    def run(self) -> Outcome:
        """Run the job to its end.

        SIGTERM and SIGINT stop it after the batch that runs; a second one ends the driver at once,
        which loses nothing but time. Of several supervisors the leader then hands the job over.

        Raises:
            HoldfastError: The driver refused the job: a bad file, a checkpoint in use, no Java.
        """
        with self._requests.on_signals():
            try:
                return self._run()
            finally:
                self._close_sidecar()
                self._close_observing()
                self._notes.settle(self._requests.pause)
                if self._lock is not None:
                    self._lock.release()
                if self._candidacy is not None:
                    self._candidacy.close()

    def _run(self) -> Outcome:
        stands_by = False
        while True:
            try:
                ended = self._stand_by() if stands_by else self._run_driver()
                stands_by = self._candidacy is not None and not self._candidacy.leads
            except LeadershipLost as error:
                self._step_down(error)
                ended, stands_by = None, True
            if ended is not None:
                return ended

    def _run_driver(self) -> Outcome | None:
        attempt = self._attempt()
        return self._after(attempt) if attempt.leads else None

    def _after(self, attempt: DriverAttempt) -> Outcome | None:
        """What follows a driver's end; None if it is another driver."""
        if attempt.refusal is not None:
            self._require_final(attempt, attempt.refusal)
            self._set_state(JobState.FAILED, attempt.refusal.fact)
            raise attempt.refusal
        if attempt.ending == "canceled":
            return self._canceled()
        if attempt.failure is not None:
            return self._before_restart(attempt, attempt.failure)
        if attempt.ending == "stopped":
            return self._rescaled() if self._rescale_asked else self._stopped(attempt.ending)
        return self._end(JobState.FINISHED, attempt.ending)

    def _before_restart(self, attempt: DriverAttempt, failure: Failure) -> Outcome | None:
        """Wait as the strategy says; the outcome, if there is to be no other driver."""
        if self._requests.stops:
            return self._stopped(f"stopped; the last driver failed: {failure}")
        ended_ms = self._clock()
        failed_ms = ended_ms if attempt.failed_ms is None else attempt.failed_ms
        self._recovery.failed(f"{failure.cause}: {failure}", failed_ms, ended_ms)
        decision = self._policy.after(failure, attempt.batches > 0, ended_ms)
        if isinstance(decision, GiveUp):
            return self._end(JobState.FAILED, f"{failure}; gave up: {decision.reason}")
        self._set_state(JobState.RESTARTING, str(failure))
        self._say("restarting", f"{failure}; starting again in {rounded_duration(decision.delay_ms)}")
        if self._wait(decision.delay_ms / 1000):
            self._recovery.resumed()
            return None
        if self._requests.cancel:
            return self._canceled()
        return self._stopped("stopped while it waited to start again")

    def _rescaled(self) -> Outcome | None:
        """Rescale the checkpoints between two drivers; None if another driver is to follow."""
        self._rescale_asked = False
        if self._goes_on() and self._rescaler is not None:
            self._close_sidecar()
            self._set_state(JobState.RESTARTING, "its checkpoints are being rescaled")
            self._rescaler.carry_out(self._goes_on, self._say)
            if self._sidecar is not None:
                self._sidecar.begin()
        if self._requests.cancel:
            return self._canceled()
        return self._stopped("stopped between two drivers") if self._requests.stops else None

    # Of several supervisors one leads.

    def _stand_by(self) -> Outcome | None:
        """Wait until nobody else leads; the outcome, if there is nothing to lead any more."""
        candidacy = self._required_candidacy()
        if not stand_by(candidacy, self._wait, self._say):
            return self._end(JobState.FINISHED, "stopped while it stood by")
        return self._elected(candidacy)

    def _elected(self, candidacy: Candidacy) -> Outcome | None:
        self._write_as(candidacy.token)
        job, record = candidacy.ended_meanwhile, candidacy.record
        if job is not None and job.state is not None:
            self._say("ended", f"the job has ended under its leader: {job.state.value}")
            return Outcome(job.state, job.reason, self._attempts, self._batches)
        self._say("leading", f"leading, elected at {candidacy.address}", token=candidacy.token)
        self._since_ms, self._restored = (None, False) if record is None else (record.begun_ms, record.ran)
        if candidacy.former is not None:
            cause = f"resources: {candidacy.former.holder} leads no longer"
            self._recovery.failed(cause, candidacy.former.heard_ms, self._clock())
            self._recovery.resumed()
        if record is None or record.request is None or self._definition is None:
            return None
        # Its leader was lost before it had done what it was asked for.
        if self._claim_checkpoint(self._definition) and record.request == "cancel":
            return self._canceled()
        return self._end(JobState.FINISHED, f"stopped, which {record.holder} was asked for")

    def _step_down(self, error: LeadershipLost) -> None:
        """Leave the job to whoever leads it now; the driver has been ended."""
        with suppress(HoldfastError):  # another leader has written to this registry, and knows better
            self._set_state(JobState.RESTARTING, "another supervisor may lead it")
        self._begun = False
        if self._sidecar is not None:
            self._sidecar.abandon()
            self._sidecar = None
        self._required_candidacy().step_down(resign=isinstance(error, CannotLead))
        self._say("deposed", f"leading no longer: {error.found or error.fact}")

    def _require_final(self, attempt: DriverAttempt, refusal: HoldfastError) -> None:
        if self._candidacy is not None and self._definition is not None:
            self._require_lead()
            # The lock is the last thing that stands in a driver's way.
            begun = bool(attempt.number) and self._checkpoint(self._definition).until_free(0)
            require_final(refusal, self._candidacy, begun=begun)

    def _required_candidacy(self) -> Candidacy:
        if self._candidacy is None:
            raise Internal("a supervisor that has the job to itself cannot lose the lead")
        return self._candidacy

    def _require_lead(self) -> None:
        if self._candidacy is not None and self._begun:
            self._candidacy.require()

    def _leads(self) -> bool:
        return self._candidacy is None or not self._begun or self._candidacy.lost is None

    # One driver.

    def _attempt(self) -> DriverAttempt:
        self._require_lead()
        attempt = DriverAttempt(self._launch(self._spec), recovers=self._recovery.under_way)
        self._attempts += 1
        self._driver = attempt
        self._say("starting", f"driver {attempt.process.pid} is starting", pid=attempt.process.pid)
        try:
            self._follow(attempt)
        except BaseException:
            attempt.process.kill()
            attempt.process.reap()
            raise
        self._finish(attempt)
        return attempt

    def _follow(self, attempt: DriverAttempt) -> None:
        """Listen to a driver, and pass on what people ask for, until it is silent for good."""
        told_to_stop = False
        with selectors.DefaultSelector() as selector:
            selector.register(attempt.process.channel, selectors.EVENT_READ, "driver")
            selector.register(self._requests, selectors.EVENT_READ, "wake")
            while True:
                ready = {key.data for key, _ in selector.select(LOOK_S)}
                self._requests.seen()
                self._lead(attempt)
                self._notes.write_what_waits()
                self._look_for_requests()
                if self._requests.cancel or self._requests.stops > 1:
                    attempt.ending = "canceled" if self._requests.cancel else "stopped"
                    attempt.process.kill()
                    return
                if (self._requests.stops or self._rescale_asked) and not told_to_stop:
                    told_to_stop = True
                    self._say("stopping", "stopping after the batch that runs")
                    attempt.process.channel.send(protocol.Stop())
                if "driver" in ready and not self._hear(attempt):
                    attempt.failed_ms = self._clock() if attempt.failed_ms is None else attempt.failed_ms
                    return
                self._look_at_slow_batches(attempt)
                self._tell_of_sidecar()

    def _hear(self, attempt: DriverAttempt) -> bool:
        """Act on what the driver said; False at the end of the line."""
        try:
            messages = attempt.process.channel.receive()
        except Internal as error:
            attempt.end_for(error)
            return False
        for message in messages or ():
            self._act(attempt, message)
        return messages is not None and attempt.refusal is None

    def _act(self, attempt: DriverAttempt, message: protocol.Message) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            attempt.end_for(protocol.not_for("a supervisor", message))
        else:
            handler(attempt, message)

    def _message_handlers(self) -> dict[type[protocol.Message], Callable[[DriverAttempt, Any], None]]:
        """What to do with each type of message of a driver."""
        recovery, say = self._recovery, self._say
        return {
            protocol.JobDefined: self._defined,
            protocol.SessionStarted: lambda _, said: recovery.session(said.slots),
            protocol.CheckpointsRestored: self._was_restored,
            protocol.BatchesRepeated: lambda _, said: recovery.repeated(said.query, said.last, said.promise),
            protocol.QueriesStarted: self._started,
            protocol.Caution: lambda _, said: say(
                "caution", f"query {said.query}: {said.text}", query=said.query
            ),
            protocol.Busy: self._busy,
            protocol.BatchCommitted: self._batch,
            protocol.Mended: lambda _, said: say(
                "mended", f"query {said.query}: finished a batch that its sink held already"
            ),
            **dict.fromkeys(protocol.LAST_MESSAGES, DriverAttempt.ended),
        }

    def _defined(self, attempt: DriverAttempt, message: protocol.JobDefined) -> None:
        try:
            self._go(attempt, JobDefinition.from_message(message))
        except LeadershipLost:
            raise
        except (HoldfastError, OSError) as error:
            attempt.end_for(error)

    def _was_restored(self, _: DriverAttempt, message: protocol.CheckpointsRestored) -> None:
        self._restored = True
        for query in message.queries:
            text = f"query {query['query']} goes on from batch {query['batch']} of {query['savepoint']}"
            self._say("restored", text, **query)

    def _busy(self, attempt: DriverAttempt, message: protocol.Busy) -> None:
        attempt.busy(message.query, busy=message.busy)
        if self._sidecar is not None:
            self._sidecar.busy(message.query, busy=message.busy)

    def _go(self, attempt: DriverAttempt, definition: JobDefinition) -> None:
        """Let the driver begin, once the job and its checkpoint are this supervisor's."""
        if not self._begun:
            ready = self._take(definition)
        else:
            definition.require_same(self._definition or definition, self._spec.target)
            ready = self._claim_checkpoint(definition)
        if not ready:
            attempt.leads = self._candidacy is None or self._candidacy.leads
            if self._requests.any:
                attempt.ending = "canceled" if self._requests.cancel else "stopped"
            attempt.process.kill()
            return
        self._prepare(definition)
        now, candidacy = self._clock(), self._candidacy
        attempt.number = self._notes.start_attempt(
            definition.name, attempt.process.pid, now, recovers=attempt.recovers
        )
        log = self._home.start_log(definition.name, attempt.number)
        self._say("log", f"attempt {attempt.number}, log {log}", attempt=attempt.number, log=str(log))
        restore = bool(self._spec.savepoints) and not self._restored
        if candidacy is not None:
            candidacy.note(driver=DriverIdentity.of(attempt.process.pid, self._machine))
        self._lead(attempt)
        term, election = (None, "") if candidacy is None else (candidacy.token, candidacy.place_id)
        go = protocol.Go(str(log), restore, self._recovery.to_repeat(), term, election, self._machine)
        attempt.process.channel.send(go)

    def _lead(self, attempt: DriverAttempt) -> None:
        """Go on only as the leader, and let the driver know until when it may count on that."""
        candidacy = self._candidacy
        if candidacy is None or not self._begun:
            return
        candidacy.require()
        if attempt.until_s != candidacy.until_s:
            attempt.until_s = candidacy.until_s
            attempt.process.channel.send(protocol.Lead(attempt.until_s))

    def _claim_checkpoint(self, definition: JobDefinition) -> bool:
        """Wait until no former driver of this job has the checkpoint; False if told to end meanwhile."""
        claim = self._checkpoint(definition)
        if self._candidacy is not None:
            return take_over(claim, self._candidacy, self._say, self._goes_on)
        claim.wait(self._orphan_grace_s, self._say)
        return True

    def _goes_on(self) -> bool:
        self._require_lead()
        self._look_for_requests()
        return not self._requests.any

    def _prepare(self, definition: JobDefinition) -> None:
        """See that there is something whole to start from."""
        settings = definition.recovery
        if self._spec.fallback is not None:
            settings = replace(settings, fallback=self._spec.fallback, verify=settings.verify or "1m")
        queries = {query.name: query.checkpoint for query in self._notes.queries(definition.name)}
        record = None if self._candidacy is None else self._candidacy.record
        catalogs = () if definition.savepoints is None else (definition.savepoints.catalog,)
        self._recovery.prepare(definition.checkpoint, checkpoints_of(record, queries), settings, catalogs)

    def _take(self, definition: JobDefinition) -> bool:
        """Make the job this supervisor's own; False if another one leads it."""
        if self._definition is not None and self._definition.name != definition.name:
            definition.require_same(self._definition, self._spec.target)
        if self._elections is None:
            self._lock = self._lock or take_alone(self._registry, self._home, definition.name, self._clock())
        elif not self._stand(self._elections, definition):
            return False
        record = definition.job_record(self._spec.target, self._clock(), self._since_ms)
        self._definition = definition
        self._policy = RestartPolicy(definition.restart, self._rng, ran=self._restored)
        if not self._claim_checkpoint(definition):
            return False
        if self._lock is not None:  # one that may lose the lead does not exchange checkpoints
            self._rescaler = Rescaler.begun(self._home, definition.name, self._spec, self._clock)
        self._notes.start_job(record)
        self._sidecar = Sidecar(definition, self._home.path, self._registry, self._clock, self._leads)
        self._begun, self._state = True, JobState.CREATED
        if self._candidacy is not None:
            self._candidacy.begin(definition.checkpoint, record.started_ms, ran=self._restored)
        return True

    def _stand(self, elections: Elections, definition: JobDefinition) -> bool:
        """Whether this supervisor leads the job, already or from now on."""
        candidacy = self._candidacy
        if candidacy is None:
            candidacy = Candidacy(elections, definition.name, self._registry, self._clock, self._now)
            self._candidacy, self._definition = candidacy, definition
        if not candidacy.leads:
            if not candidacy.stand():
                return False
            self._write_as(candidacy.token)
            self._say("leading", f"leading, elected at {candidacy.address}", token=candidacy.token)
        return True

    def _checkpoint(self, definition: JobDefinition) -> CheckpointClaim:
        return CheckpointClaim(definition.checkpoint, definition.name, self._home.path, self._machine)

    def _started(self, attempt: DriverAttempt, message: protocol.QueriesStarted) -> None:
        queries = message.queries
        self._state = next_state(self._state, JobState.RUNNING)
        self._notes.queries_started(self._name, attempt.number, queries, self._clock())
        self._recovery.running()
        if self._candidacy is not None:
            self._candidacy.note(ran=True, queries=places_of(queries))
        self._policy.on_running()
        if self._sidecar is not None:
            self._sidecar.started({query.name: query.checkpoint for query in queries})
        for query in queries:
            promise = query.promise.partition(":")[0]
            self._say("query", f"query {query.name}, {promise}", query=query.name, promise=query.promise)
        self._say("running", f"running, {len(queries)} {'query' if len(queries) == 1 else 'queries'}")

    def _batch(self, attempt: DriverAttempt, message: protocol.BatchCommitted) -> None:
        batch = message.batch
        first = batch.query not in attempt.committed
        attempt.has_committed(batch.query)
        self._batches += 1
        self._notes.add_batch(self._name, attempt.number, batch)
        if self._sidecar is not None:
            self._sidecar.committed(batch, first=first)
        recovery = self._recovery.first_commit(attempt.number, batch)
        if recovery is not None:
            self._notes.add_recovery(self._name, recovery)
            text = f"recovered in {rounded_duration(recovery.recovery_ms)}"
            self._say("recovered", text, **recovery.as_dict())
        self._say("batch", batch_line(batch), **batch.as_dict())

    def _tell_of_sidecar(self) -> None:
        """Pass on what the sidecar has done, and what it could not do."""
        if self._sidecar is None:
            return
        for notice, savepoint in self._sidecar.heard():
            if savepoint is not None:
                self._notes.add_savepoint(self._name, savepoint)
            self._say(notice.kind, notice.text, **notice.facts)

    def _close_sidecar(self) -> None:
        """End the sidecar, and tell the last of it."""
        if self._sidecar is not None:
            self._sidecar.close()
            with suppress(HoldfastError):
                self._tell_of_sidecar()

    def _close_observing(self) -> None:
        """Once the job has ended, and how is written down: what stood wrong is over."""
        if self._sidecar is not None:
            self._sidecar.close_observing()
            with suppress(HoldfastError):
                self._tell_of_sidecar()
            self._sidecar = None

    def _look_at_slow_batches(self, attempt: DriverAttempt) -> None:
        """Count a batch that runs longer than the checkpoint's timeout as a failed checkpoint."""
        definition = self._definition
        if definition is not None and attempt.too_slow(definition, self._say):
            attempt.failed_ms = self._clock()
            attempt.process.kill()

    def _finish(self, attempt: DriverAttempt) -> None:
        """Collect a driver that has ended, with its JVM, and write down how."""
        if self._definition is not None and attempt.ending != "canceled":
            # Left alone, the JVM tidies its temporary files; it is gone when its lock is free.
            self._checkpoint(self._definition).until_free(JVM_GRACE_S)
        attempt.process.kill()
        number, code = attempt.process.reap()
        if self._sidecar is not None:
            self._sidecar.ended()
        if attempt.ending is None and attempt.failure is None and attempt.refusal is None:
            attempt.failure = failures.killed(number, code)
        if attempt.number:
            ending = "failed" if attempt.failure or attempt.refusal else attempt.ending or "failed"
            self._notes.end_attempt(self._name, attempt.number, ending, attempt.failure, self._clock())

    # Endings and waiting.

    def _canceled(self) -> Outcome:
        definition = self._definition
        if definition is not None and definition.on_cancel == "delete":
            self._close_sidecar()
            if not self._checkpoint(definition).delete():
                uri = definition.checkpoint
                self._say("kept", f"the checkpoint {uri} is not on this machine and was not deleted")
        return self._end(JobState.CANCELED, "canceled")

    def _end(self, state: JobState, reason: str | None) -> Outcome:
        self._close_sidecar()
        self._set_state(state, reason)
        if self._candidacy is not None:
            self._candidacy.note_end(state, reason, self._say)
        outcome = Outcome(state, reason, self._attempts, self._batches)
        # Why it failed is the error that the caller will tell.
        how = reason if reason and state is not JobState.FAILED else state.value.lower()
        self._say(state.value.lower(), f"{how} after {self._batches} batches")
        return outcome

    def _stopped(self, reason: str | None) -> Outcome:
        """The end of a job that was told to stop; one of several supervisors that was, hands it over."""
        if self._candidacy is None or not self._requests.signalled:
            return self._end(JobState.FINISHED, reason)
        return self._end(JobState.RESTARTING, "handed over to the next leader")

    def _set_state(self, state: JobState, reason: str | None) -> None:
        if self._begun:
            self._state = next_state(self._state, state)
            self._notes.set_state(self._name, state, self._clock(), reason)

    def _wait(self, seconds: float) -> bool:
        """Wait, unless somebody asks the job to end; False if so."""

        def look() -> None:
            self._require_lead()
            if self._driver is not None:
                self._lead(self._driver)
            self._look_for_requests()

        return self._requests.wait(seconds, look)

    def _look_for_requests(self) -> None:
        """See what was asked of the job; while another supervisor leads it, that is his to answer."""
        if not self._begun:
            return
        for verb in self._notes.take_requests(self._name, self._clock()):
            if verb in ("stop", "cancel") and self._candidacy is not None:
                self._candidacy.note(request=verb)
            if verb == "stop":
                self._requests.stops += 1
            elif verb == RESCALE:
                self._rescale_asked = True
            elif verb == "cancel":
                self._requests.cancel = True
                self._set_state(JobState.CANCELLING, None)

    def _write_as(self, token: int | None) -> None:
        """Write to the registry with the token of a term, or with none."""
        self._registry = Registry(self._home.registry, token)
        self._notes = DeferredRegistry(self._home.registry, token, self._say, self._wait)

    @property
    def _name(self) -> str:
        if self._definition is None:
            raise Internal("the supervisor does not know its job yet", where=self._spec.target)
        return self._definition.name

    def _say(self, kind: str, text: str, **facts: Any) -> None:
        name = self._definition.name if self._definition else Path(self._spec.target).stem
        self._tell(Event(kind, f"{name}: {text}", {"job": name, **facts}))
