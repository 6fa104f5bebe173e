"""Follow one driver from its start to its end and act on its messages."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, Unavailable
from holdfast.external.named_addresses import name_database
from holdfast.jobs import failures
from holdfast.jobs.candidacy import places_of
from holdfast.jobs.events import batch_line
from holdfast.jobs.processes import protocol
from holdfast.jobs.processes.driver_process import DriverProcess, libraries_of, remove_scratch
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import cut_log
from holdfast.jobs.supervisor.standby_driver import TakenStandby
from holdfast.jobs.supervisor.supervised_job import LOOK_S, DriverAttempt, SupervisedJob
from holdfast.model import Failure
from holdfast.ownership.checkpoint_claim import JVM_GRACE_S
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.process_identity import ProcessIdentity
from holdfast.quantities import counted, rounded_duration

# Makes the job and its checkpoint this supervisor's, so that a driver may begin; False if it may not.
Admit = Callable[[protocol.JobDefined], bool]


class DriverSession:
    """A started driver of a job.

    Args:
        job: The job.
        process: The driver, just started.
        admit: Called when the driver has reported the job; False refuses it.
        standby: The driver as it stood by; None for one that was just started.
    """

    def __init__(
        self, job: SupervisedJob, process: DriverProcess, admit: Admit, standby: TakenStandby | None = None
    ) -> None:
        self._job = job
        self._admit = admit
        self._standby = standby
        self._java_pid: int | None = None
        self._spark: str | None = None
        self._log: Path | None = None
        self._stopping = False
        self._attempt = DriverAttempt(process, recovers=job.recovery.under_way)
        self._restarts = job.handover is not None and job.handover.takes_over()
        job.attempts += 1
        job.driver = self._attempt
        recovery = job.recovery
        self._handlers: dict[type[protocol.Message], Callable[[Any], None]] = {
            protocol.JobDefined: self._defined,
            protocol.SessionStarted: self._session,
            # A standby that took over while it warmed up.
            protocol.Warmed: lambda _: None,
            protocol.Built: lambda _: None,
            protocol.ClusterFound: self._cluster,
            protocol.CheckpointsRestored: self._restored,
            protocol.BatchesRepeated: lambda said: recovery.repeated(said.query, said.last, said.promise),
            protocol.QueriesStarted: self._started,
            protocol.Caution: self._caution,
            protocol.Busy: self._busy,
            protocol.BatchCommitted: self._batch,
            protocol.Mended: self._mended,
            **dict.fromkeys(protocol.LAST_MESSAGES, self._attempt.ended),
        }

    def run(self) -> DriverAttempt:
        """Follow the driver until it and its JVM have ended.

        Raises:
            LeadershipLost: A different supervisor leads the job. The driver has been ended.
        """
        attempt = self._attempt
        what = "is starting" if self._standby is None else "takes over"
        self._job.say("starting", f"driver {attempt.process.pid} {what}", pid=attempt.process.pid)
        try:
            self._follow()
        except BaseException:
            attempt.process.kill()
            attempt.process.reap()
            raise
        self._finish()
        return attempt

    def _follow(self) -> None:
        """Handle the driver's messages and forward requests until its channel is closed."""
        job, attempt, requests = self._job, self._attempt, self._job.requests
        if self._standby is not None:
            self._defined(self._standby.defined)
            if attempt.refusal is not None or attempt.failure is not None:
                return
        with selectors.DefaultSelector() as selector:
            selector.register(attempt.process.channel, selectors.EVENT_READ, "driver")
            selector.register(requests, selectors.EVENT_READ, "wake")
            while True:
                ready = {key.data for key, _ in selector.select(LOOK_S)}
                requests.drain_signals()
                job.keep_leading()
                job.notes.write_what_waits()
                job.look_for_requests()
                if requests.at_once:
                    self._end_as_asked()
                    return
                if self._has_lost_lease():
                    return
                self._stop_if_requested()
                if "driver" in ready and not self._hear():
                    attempt.failed_ms = job.clock() if attempt.failed_ms is None else attempt.failed_ms
                    return
                if attempt.hands_over and attempt.ending is not None:
                    return  # all is committed and reported; only its session remains to end
                if attempt.batches and not self._stopping:
                    job.training.keep()
                    if job.keeps_standby:
                        job.standby.keep()
                self._look_at_slow_batches()
                if self._log is not None:
                    with suppress(OSError):  # it is not there yet, or the disk is away
                        cut_log(self._log)
                job.tell_of_sidecar()

    def _stop_if_requested(self) -> None:
        """Tell the driver to stop after its batch, if the job is to end, or something waits for that."""
        job = self._job
        if self._stopping:
            return
        if job.requests.stops or job.requests.rescale:
            job.say("stopping", "stopping after the running batch")
        elif job.handover is not None and job.handover.may_stop(job.require_same):
            self._attempt.hands_over = True
        else:
            return
        self._stopping = True
        self._attempt.process.channel.send(protocol.Stop())

    def _has_lost_lease(self) -> bool:
        """End the driver as failed if the lease of the checkpoint is lost."""
        why = self._job.leadership.lease_lost if self._job.begun else None
        if why is None:
            return False
        line = f"the lease of the checkpoint is lost: {why}"
        self._attempt.failure = Failure("checkpoint", "lease", line, cause="resources")
        self._attempt.failed_ms = self._job.clock()
        self._attempt.process.kill()
        return True

    def _end_as_asked(self) -> None:
        self._attempt.ending = "canceled" if self._job.requests.cancel else "stopped"
        self._attempt.process.kill()

    def _hear(self) -> bool:
        """Handle the driver's messages; False at the end of the channel."""
        try:
            messages = self._attempt.process.channel.receive()
        except HoldfastError as error:
            self._attempt.end_for(error)
            return False
        for message in messages or ():
            handler = self._handlers.get(type(message))
            if handler is None:
                self._attempt.end_for(protocol.not_for("a supervisor", message))
            else:
                handler(message)
        return messages is not None and self._attempt.refusal is None

    def _defined(self, message: protocol.JobDefined) -> None:
        try:
            if self._admit(message):
                self._go(message)
            else:
                self._do_not_go()
        except LeadershipLost:
            raise
        except Unavailable as error:
            # One that has run before tries again, by the job's strategy.
            self._attempt.end_for(error, may_pass=self._job.begun and self._job.leadership.alone)
        except (HoldfastError, OSError) as error:
            self._attempt.end_for(error)

    def _go(self, definition: protocol.JobDefined) -> None:
        """Let the driver start its queries."""
        job, attempt = self._job, self._attempt
        candidacy = job.leadership.candidacy
        attempt.number = job.notes.now(
            Registry.start_attempt,
            definition.name,
            attempt.process.pid,
            job.clock(),
            recovers=attempt.recovers,
        )
        self._log = log = job.home.start_log(definition.name, attempt.number)
        if self._standby is not None:
            with suppress(OSError):  # without it, the log begins now
                self._standby.log.replace(log)
        job.say("log", f"attempt {attempt.number}, log {log}", attempt=attempt.number, log=str(log))
        if candidacy is not None:
            candidacy.note(driver=ProcessIdentity.of(attempt.process.pid, job.machine))
        job.keep_leading()
        go = protocol.Go(
            log=str(log),
            restore=bool(job.spec.savepoints) and not job.restored,
            repeat=job.recovery.to_repeat(),
            term=None if candidacy is None else candidacy.token,
            election="" if candidacy is None else candidacy.election_id,
            machine=job.machine,
            scratch=job.scratch,
        )
        attempt.process.channel.send(go)

    def _do_not_go(self) -> None:
        self._attempt.leads = self._job.leadership.leads
        if self._job.requests.any:
            self._end_as_asked()
        self._attempt.process.kill()

    def _session(self, message: protocol.SessionStarted) -> None:
        self._spark, self._java_pid = message.spark, message.java_pid
        former, self._job.scratch = self._job.scratch, message.scratch
        threading.Thread(target=remove_scratch, args=(former,), name="holdfast-scratch", daemon=True).start()
        self._job.recovery.session(message.slots)

    def _cluster(self, message: protocol.ClusterFound) -> None:
        self._job.say("cluster", message.text, **message.facts)
        for caution in message.facts["cautions"]:
            self._job.say("caution", caution)

    def _restored(self, message: protocol.CheckpointsRestored) -> None:
        self._job.restored = True
        for query in message.queries:
            text = f"query {query['query']} resumes from batch {query['batch_id']} of {query['savepoint']}"
            self._job.say("restored", text, **query)

    def _started(self, message: protocol.QueriesStarted) -> None:
        job, queries = self._job, message.queries
        job.is_running()
        if job.handover is not None and self._restarts:
            job.handover.complete()
        for address in message.databases:
            name_database(address)
        job.notes.later(
            Registry.queries_started,
            job.name,
            self._attempt.number,
            queries,
            job.clock(),
            message.databases,
        )
        job.recovery.running()
        job.leadership.note(ran=True, queries=places_of(queries))
        job.policy.on_running()
        checkpoints = {query.name: query.checkpoint for query in queries}
        if job.sidecar is not None:
            job.sidecar.started(checkpoints, self._spark)
        if job.autoscaler is not None:
            job.autoscaler.started(checkpoints)
        for query in queries:
            promise = query.promise.partition(":")[0]
            job.say(
                "query", f"query {query.name}, delivery: {promise}", query=query.name, promise=query.promise
            )
        job.say("running", f"running, {counted(len(queries), 'query')}")

    def _caution(self, message: protocol.Caution) -> None:
        text = message.text if message.query is None else f"query {message.query}: {message.text}"
        self._job.say("caution", text, query=message.query)

    def _busy(self, message: protocol.Busy) -> None:
        self._attempt.busy(message.query, busy=message.busy)
        if self._job.sidecar is not None:
            self._job.sidecar.busy(message.query, busy=message.busy)

    def _batch(self, message: protocol.BatchCommitted) -> None:
        job, attempt, batch = self._job, self._attempt, message.batch
        first = batch.query not in attempt.committed
        attempt.has_committed(batch.query)
        job.batches += 1
        job.notes.later(Registry.add_batch, job.name, attempt.number, batch)
        if job.sidecar is not None:
            job.sidecar.committed(batch, first=first)
        recovery = job.recovery.first_commit(attempt.number, batch)
        if recovery is not None:
            job.notes.later(Registry.add_recovery, job.name, recovery)
            text = f"recovered in {rounded_duration(recovery.recovery_ms)}"
            job.say("recovered", text, **recovery.as_dict())
        job.say("batch", batch_line(batch), **batch.as_dict())
        job.look_at_size(batch)

    def _mended(self, message: protocol.Mended) -> None:
        self._job.say("mended", f"query {message.query}: finished a batch that its sink already had")

    def _look_at_slow_batches(self) -> None:
        """Count a batch that runs longer than the checkpoint's timeout as a failed checkpoint."""
        definition = self._job.definition
        if definition is not None and self._attempt.too_slow(definition, self._job.say):
            self._attempt.failed_ms = self._job.clock()
            self._attempt.process.kill()

    def _finish(self) -> None:
        """Collect the ended driver with its JVM, and record how it ended."""
        job, attempt = self._job, self._attempt
        # After a failure the JVM is killed, and the next driver continues the working copies among its
        # temporary files. After a stop it deletes them, and is gone when its lock is free.
        orderly = not job.scratch or (attempt.ending is not None and not attempt.hands_over)
        if orderly and job.definition is not None and attempt.ending != "canceled":
            job.claim(job.definition).until_free(JVM_GRACE_S)
        job.scratch += libraries_of(self._java_pid)
        attempt.process.kill()
        number, code = attempt.process.reap()
        if job.sidecar is not None:
            job.sidecar.ended()
        if attempt.ending is None and attempt.failure is None and attempt.refusal is None:
            attempt.failure = failures.killed(number, code)
        if attempt.number:
            ending = "failed" if attempt.failure or attempt.refusal else attempt.ending or "failed"
            job.notes.later(
                Registry.end_attempt, job.name, attempt.number, ending, attempt.failure, job.clock()
            )
