"""Keep one job running: start its driver, watch it, start it again by the job's strategy.

The supervisor has no Spark in it. What it learns it writes to the registry at once, so that it can be
killed at any moment: the next one finds the truth in the checkpoint and starts from there.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.config import exponential
from holdfast.errors import BY_KIND, Conflict, HoldfastError, Internal
from holdfast.jobs import failure as failures
from holdfast.jobs.attempt import Attempt, Definition
from holdfast.jobs.beside import Beside
from holdfast.jobs.channel import Message
from holdfast.jobs.claim import JVM_GRACE_S, ORPHAN_GRACE_S, Claim
from holdfast.jobs.driver import DriverSpec
from holdfast.jobs.home import StateHome, SupervisorLock
from holdfast.jobs.process import DriverProcess
from holdfast.jobs.registry import JobRecord, Registry, job_id
from holdfast.jobs.rescaled import VERB as RESCALE
from holdfast.jobs.rescaled import Rescaling
from holdfast.jobs.restart import GiveUp, RestartPolicy
from holdfast.jobs.telling import Event, Outcome, Tell
from holdfast.model import BatchProgress, Failure, JobState, QueryStarted

LOOK_S = 0.2


class Supervisor:
    """Runs one job until it ends for good.

    Args:
        spec: The job file and how to run it.
        home: The state home.
        tell: Called with each event, on this thread.
        clock: Epoch milliseconds.
        rng: For the jitter of restart delays.
        launch: How to start a driver; tests pass one that needs no JVM.
        orphan_grace_s: How long a driver that lost its supervisor may take to end its batch.
    """

    def __init__(
        self,
        spec: DriverSpec,
        home: StateHome,
        tell: Tell,
        *,
        clock: Callable[[], int],
        rng: random.Random,
        launch: Callable[[DriverSpec], DriverProcess] = DriverProcess.start,
        orphan_grace_s: float = ORPHAN_GRACE_S,
    ) -> None:
        self._spec = spec
        self._home = home
        self._tell = tell
        self._clock = clock
        self._rng = rng
        self._launch = launch
        self._orphan_grace_s = orphan_grace_s
        self._registry = Registry(home.registry)
        self._definition: Definition | None = None
        # Until a driver has lived long enough to tell the job's own strategy.
        self._policy = RestartPolicy(exponential(), rng)
        self._lock: SupervisorLock | None = None
        self._beside: Beside | None = None
        self._rescaling: Rescaling | None = None
        self._rescale_asked = False
        self._restored = False
        self._stop_asked = 0
        self._cancel_asked = False
        self._failed_ms: int | None = None
        self._attempts = 0
        self._batches = 0
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)

    def run(self) -> Outcome:
        """Run the job to its end.

        SIGTERM and SIGINT stop it after the batch that runs; a second one ends the driver at once,
        which loses nothing but time.

        Raises:
            HoldfastError: The driver refused the job: a bad file, a checkpoint in use, no Java.
        """
        former = {each: signal.signal(each, self._on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._run()
        finally:
            self._close_asides()
            for number, handler in former.items():
                signal.signal(number, handler)
            self._wake_read.close()
            self._wake_write.close()
            if self._lock is not None:
                self._lock.release()

    def _run(self) -> Outcome:
        recovers = False
        while True:
            attempt = self._attempt(recovers=recovers)
            if attempt.refusal is not None:
                self._set_state(JobState.FAILED, attempt.refusal.fact)
                raise attempt.refusal
            if attempt.ending == "canceled":
                return self._canceled()
            if attempt.failure is None and self._rescaled(attempt):
                recovers = False
                continue
            if self._cancel_asked:
                return self._canceled()
            if attempt.failure is None:
                return self._end(JobState.FINISHED, attempt.ending)
            ended = self._before_restart(attempt, attempt.failure)
            if ended is not None:
                return ended
            recovers = True

    def _before_restart(self, attempt: Attempt, failure: Failure) -> Outcome | None:
        """Wait as the strategy says; the outcome, if there is to be no other driver."""
        if self._stop_asked:
            return self._end(JobState.FINISHED, f"stopped; the last driver failed: {failure}")
        self._failed_ms = self._clock()
        decision = self._policy.on_failure(failure.fingerprint, attempt.batches > 0, self._failed_ms)
        if isinstance(decision, GiveUp):
            return self._end(JobState.FAILED, f"{failure}; gave up: {decision.reason}")
        self._set_state(JobState.RESTARTING, str(failure))
        seconds = decision.delay_ms / 1000
        self._say("restarting", f"{failure}; starting again in {seconds:.1f} s")
        if self._wait(seconds):
            return None
        if self._cancel_asked:
            return self._canceled()
        return self._end(JobState.FINISHED, "stopped while it waited to start again")

    def _rescaled(self, attempt: Attempt) -> bool:
        """Rescale the checkpoints if somebody has asked for it; whether another driver is to follow."""
        definition, rescaling = self._definition, self._rescaling
        if not self._rescale_asked or attempt.ending != "stopped" or definition is None or rescaling is None:
            return False
        self._rescale_asked = False
        if self._stop_asked:
            return False
        self._close_asides()
        self._set_state(JobState.RESTARTING, "its checkpoints are being rescaled")
        self._say("rescaling", "bringing its state into other partitions")
        for each in rescaling.carry_out(self._goes_on):
            text = "rescaled" if each.error is None else f"not rescaled: {each.error['error']}"
            self._say("rescaled", text, **each.as_dict())
        self._beside = Beside(definition, self._home.path, self._clock)
        return self._goes_on()

    def _goes_on(self) -> bool:
        """Whether nobody has asked the job to end."""
        self._look_for_requests()
        return not self._stop_asked and not self._cancel_asked

    # One driver.

    def _attempt(self, *, recovers: bool) -> Attempt:
        attempt = Attempt(self._launch(self._spec), recovers=recovers)
        self._attempts += 1
        self._say("starting", f"driver {attempt.process.pid} is starting", pid=attempt.process.pid)
        try:
            self._follow(attempt)
        except BaseException:
            attempt.process.kill()
            attempt.process.reap()
            raise
        self._finish(attempt)
        return attempt

    def _follow(self, attempt: Attempt) -> None:
        """Listen to a driver, and pass on what people ask for, until it is silent for good."""
        told_to_stop = False
        with selectors.DefaultSelector() as selector:
            selector.register(attempt.process.channel, selectors.EVENT_READ, "driver")
            selector.register(self._wake_read, selectors.EVENT_READ, "wake")
            while True:
                ready = {key.data for key, _ in selector.select(LOOK_S)}
                self._look_for_requests()
                if self._cancel_asked or self._stop_asked > 1:
                    attempt.ending = "canceled" if self._cancel_asked else "stopped"
                    attempt.process.kill()
                    return
                if (self._stop_asked or self._rescale_asked) and not told_to_stop:
                    told_to_stop = True
                    why = "" if self._stop_asked else ", to be rescaled"
                    self._say("stopping", f"stopping after the batch that runs{why}")
                    attempt.process.channel.send("stop")
                if "driver" in ready and not self._hear(attempt):
                    return
                self._look_at_slow_batches(attempt)
                self._tell_of_asides()

    def _hear(self, attempt: Attempt) -> bool:
        """Act on what the driver said; False at the end of the line."""
        messages = attempt.process.channel.receive()
        if messages is None:
            return False
        for message in messages:
            self._act(attempt, message)
        return attempt.refusal is None

    def _act(self, attempt: Attempt, message: Message) -> None:
        kind = message["kind"]
        if kind == "defined":
            try:
                self._go(attempt, Definition.from_message(message))
            except HoldfastError as error:
                attempt.refusal = error
                attempt.process.kill()
        elif kind == "started":
            self._started(attempt, [QueryStarted(**each) for each in message["queries"]])
        elif kind == "batch":
            self._batch(attempt, BatchProgress.from_dict(message["batch"]))
        elif kind == "busy":
            attempt.busy(message["query"], busy=message["busy"])
        elif kind == "caution":
            self._say("caution", f"query {message['query']}: {message['text']}", query=message["query"])
        elif kind == "restored":
            self._was_restored(message["queries"])
        elif kind == "mended":
            self._say("mended", f"query {message['query']}: finished a batch that its sink held already")
        elif kind == "refused":
            attempt.refusal = _rebuilt(message["error"])
        elif kind == "failed":
            attempt.failure = Failure(**message["failure"])
        elif kind in ("finished", "stopped"):
            attempt.ending = kind

    def _was_restored(self, queries: list[dict[str, Any]]) -> None:
        self._restored = True
        for each in queries:
            text = f"query {each['query']} goes on from batch {each['batch']} of {each['savepoint']}"
            self._say("restored", text, **each)

    def _go(self, attempt: Attempt, definition: Definition) -> None:
        """Let the driver begin, once the job and its checkpoint are this supervisor's."""
        if self._definition is None:
            self._take(definition)
        elif (definition.name, definition.checkpoint) != (self._definition.name, self._definition.checkpoint):
            raise Conflict(
                "the job file changed its name or checkpoint while the job ran",
                where=self._spec.target,
                found=f"{definition.name} in {definition.checkpoint}",
                expected=f"{self._definition.name} in {self._definition.checkpoint}",
                hint="stop the job before changing either",
            )
        else:
            self._checkpoint(definition).wait(self._orphan_grace_s, self._say_waiting)
        now = self._clock()
        attempt.number = self._registry.start_attempt(
            definition.name, attempt.process.pid, now, recovers=attempt.recovers
        )
        log = self._home.start_log(definition.name, attempt.number)
        self._say("log", f"attempt {attempt.number}, log {log}", attempt=attempt.number, log=str(log))
        restore = bool(self._spec.savepoints) and not self._restored
        attempt.process.channel.send("go", log=str(log), restore=restore)

    def _take(self, definition: Definition) -> None:
        lock = SupervisorLock(self._home, definition.name)
        if not lock.take():
            raise Conflict(
                "this job is already running",
                where=str(self._home.path),
                found=f"a live supervisor of job {definition.name!r}",
                hint=f"see it with `holdfast status {definition.name}`, or stop it first",
            )
        self._lock = lock
        now = self._clock()
        record = JobRecord(
            name=definition.name,
            job_id=job_id(definition.name),
            target=self._spec.target,
            checkpoint=definition.checkpoint,
            on_cancel=definition.on_cancel,
            state=JobState.CREATED,
            reason=None,
            started_ms=now,
            updated_ms=now,
            ended_ms=None,
            supervisor_pid=os.getpid(),
        )
        self._definition = definition
        self._beside = Beside(definition, self._home.path, self._clock)
        self._policy = RestartPolicy(definition.restart, self._rng)
        self._checkpoint(definition).wait(self._orphan_grace_s, self._say_waiting)
        self._rescaling = Rescaling(
            self._home, definition.name, self._spec.target, self._clock, master=self._spec.master
        )
        self._rescaling.mend()
        self._registry.start_job(record)

    def _checkpoint(self, definition: Definition) -> Claim:
        return Claim(definition.checkpoint, definition.name, self._home.path)

    def _say_waiting(self, pid: int) -> None:
        self._say("waiting", f"a former driver (process {pid}) is ending its batch", pid=pid)

    def _started(self, attempt: Attempt, queries: list[QueryStarted]) -> None:
        now = self._clock()
        self._registry.queries_started(self._name, attempt.number, queries, now)
        if self._beside is not None:
            self._beside.started({query.name: query.checkpoint for query in queries})
        for query in queries:
            promise = query.promise.partition(":")[0]
            self._say("query", f"query {query.name}, {promise}", query=query.name, promise=query.promise)
        self._say("running", f"running, {len(queries)} {'query' if len(queries) == 1 else 'queries'}")

    def _batch(self, attempt: Attempt, batch: BatchProgress) -> None:
        first = batch.query not in attempt.committed
        attempt.has_committed(batch.query)
        self._batches += 1
        self._registry.add_batch(self._name, attempt.number, batch)
        if self._beside is not None:
            self._beside.committed(batch.query, batch.batch_id, first=first)
        if attempt.batches == 1 and attempt.recovers and self._failed_ms is not None:
            took = batch.committed_ms - self._failed_ms
            self._say("recovered", f"recovered in {took / 1000:.1f} s", recovery_ms=took)
        rows = f"{batch.input_rows:,} rows in {batch.duration_ms / 1000:.1f} s"
        state = f", state {batch.state_rows:,} rows" if batch.operators else ""
        late = f", {batch.late_rows:,} late" if batch.late_rows else ""
        text = f"{batch.query} batch {batch.batch_id}: {rows}{state}{late}"
        self._say("batch", text, **batch.as_dict())

    def _tell_of_asides(self) -> None:
        """Pass on what the work beside the job has done, and what it could not do."""
        if self._beside is None:
            return
        for each, savepoint in self._beside.heard():
            if savepoint is not None:
                self._registry.add_savepoint(self._name, savepoint)
            self._say(each.kind, each.text, **each.facts)

    def _close_asides(self) -> None:
        """End the work beside the job, and tell the last of it."""
        if self._beside is None:
            return
        self._beside.close()
        with suppress(HoldfastError):
            self._tell_of_asides()
        self._beside = None

    def _look_at_slow_batches(self, attempt: Attempt) -> None:
        """Count a batch that runs longer than the checkpoint's timeout as a failed checkpoint."""
        definition = self._definition
        if definition is None or definition.timeout_ms is None:
            return
        for query, late in attempt.newly_slow(definition.timeout_ms):
            self._say("slow", f"query {query}: a batch runs longer than the checkpoint timeout")
            if late > definition.tolerable_failures:
                line = f"a batch ran for {late} times {definition.timeout_ms} ms without a commit"
                attempt.failure = Failure("checkpoint", "timeout", line, query=query)
                attempt.process.kill()
                return

    def _finish(self, attempt: Attempt) -> None:
        """Collect a driver that has ended, with its JVM, and write down how."""
        if self._definition is not None and attempt.ending != "canceled":
            # Left alone, the JVM tidies its temporary files; it is gone when its lock is free.
            self._checkpoint(self._definition).until_free(JVM_GRACE_S)
        attempt.process.kill()
        number, code = attempt.process.reap()
        if self._beside is not None:
            self._beside.ended()
        if attempt.ending is None and attempt.failure is None and attempt.refusal is None:
            attempt.failure = failures.killed(number, code)
        if attempt.number:
            ending = "failed" if attempt.failure or attempt.refusal else attempt.ending or "failed"
            self._registry.end_attempt(self._name, attempt.number, ending, attempt.failure, self._clock())

    # Endings and waiting.

    def _canceled(self) -> Outcome:
        definition = self._definition
        if definition is not None and definition.on_cancel == "delete":
            self._close_asides()
            self._delete_checkpoint(self._checkpoint(definition))
        return self._end(JobState.CANCELED, "canceled")

    def _delete_checkpoint(self, claim: Claim) -> None:
        """As the job wishes; nobody writes to it any more."""
        if not claim.delete():
            uri = claim.checkpoint
            self._say("kept", f"the checkpoint {uri} is not on this machine and was not deleted")

    def _end(self, state: JobState, reason: str | None) -> Outcome:
        self._close_asides()
        self._set_state(state, reason)
        outcome = Outcome(state, reason, self._attempts, self._batches)
        # Why it failed is the error that the caller will tell.
        how = reason if reason and state is not JobState.FAILED else state.value.lower()
        self._say(state.value.lower(), f"{how} after {self._batches} batches")
        return outcome

    def _set_state(self, state: JobState, reason: str | None) -> None:
        if self._definition is not None and self._lock is not None:
            self._registry.set_state(self._name, state, self._clock(), reason)

    def _wait(self, seconds: float) -> bool:
        """Wait, unless somebody asks the job to end; False if so."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                selector.select(min(left, LOOK_S))
                self._look_for_requests()
                if self._stop_asked or self._cancel_asked:
                    return False
        return True

    def _look_for_requests(self) -> None:
        with suppress(BlockingIOError):
            self._wake_read.recv(64)
        if self._definition is None:
            return
        for verb in self._registry.take_requests(self._name, self._clock()):
            if verb == "stop":
                self._stop_asked += 1
            elif verb == RESCALE:
                self._rescale_asked = True
            elif verb == "cancel":
                self._cancel_asked = True
                self._set_state(JobState.CANCELLING, None)

    @property
    def _name(self) -> str:
        if self._definition is None:
            raise Internal("the supervisor does not know its job yet", where=self._spec.target)
        return self._definition.name

    def _say(self, kind: str, text: str, **facts: Any) -> None:
        name = self._definition.name if self._definition else Path(self._spec.target).stem
        self._tell(Event(kind, f"{name}: {text}", {"job": name, **facts}))

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_asked += 1
        with suppress(OSError):
            self._wake_write.send(b"!")


def _rebuilt(fields: Mapping[str, Any]) -> HoldfastError:
    """The error that the driver met, as an error of its own kind."""
    facts = {key: fields.get(key) for key in ("where", "found", "expected", "hint")}
    return BY_KIND.get(str(fields["kind"]), Internal)(str(fields["error"]), **facts)
