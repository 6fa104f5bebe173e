"""The process that runs one job's queries; a supervisor starts it and talks to it.

It loads the job file, reports the job to the supervisor, waits for the order to start, starts the queries and
reports each batch. When told to stop, or when the supervisor is gone, it lets every query finish its batch
and ends.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from holdfast.changes.reordering import find_by_name
from holdfast.clock import now_ms
from holdfast.config.checks import canonical_uri
from holdfast.config.database_stores import Cassandra, Redis
from holdfast.config.policies import Fallback
from holdfast.config.settings import open_file
from holdfast.config.spark_defaults import WITH_STANDBY
from holdfast.engine.queries.batch_facts import TableVersions
from holdfast.engine.queries.task_times import TaskClock
from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.external.databases import address_of_backend
from holdfast.external.named_addresses import name_database, named_databases
from holdfast.jobs import failures
from holdfast.jobs.background import GroupCommits
from holdfast.jobs.definition import Job, Periodic
from holdfast.jobs.loader import load_job
from holdfast.jobs.processes.protocol import (
    BatchCommitted,
    BatchesRepeated,
    Build,
    Built,
    Busy,
    Caution,
    Channel,
    CheckpointsRestored,
    ChildSpec,
    ClusterFound,
    DriverStopped,
    Finished,
    Go,
    JobDefined,
    JobFailed,
    Lead,
    Mended,
    Message,
    QueriesStarted,
    Refused,
    SessionStarted,
    Stop,
    Warm,
    Warmed,
    not_for,
)
from holdfast.jobs.processes.restore_on_start import repeat, restore_all, state_format_of
from holdfast.model import Failure, QueryStarted
from holdfast.ownership.watchdog import LeaseWatchdog
from holdfast.storage.successors import resume_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.config.checkpoint_settings import Checkpoint
    from holdfast.stream.sinks.query_sink import Sink

_LOOK_S = 0.1
_LAST_EVENTS_S = 10.0


@dataclass(frozen=True, slots=True)
class DriverSpec(ChildSpec):
    """A supervisor's instructions for a driver.

    Attributes:
        overrides: Settings and parameters of the job.
        conf: Spark settings that override the job's own.
        master: The Spark master.
        savepoints: The savepoint to restore each checkpoint from, by query; the name of a job's only query
            may be empty.
        fallback: The fallback for a damaged checkpoint; overrides the job's own setting.
        standby: True to keep a standby driver, whatever the job's own setting.
    """

    overrides: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    savepoints: Mapping[str, str] = field(default_factory=dict)
    fallback: Fallback | None = None
    standby: bool = False


class _Orders:
    """The supervisor's orders; a closed channel counts as an order to stop."""

    def __init__(self, channel: Channel) -> None:
        self.told = threading.Event()
        # Set by any order: a standby driver warms up before it is told to go.
        self.woken = threading.Event()
        self.warm: Warm | None = None
        self.build = threading.Event()
        self.stop = threading.Event()
        self.go = Go(log=None, restore=False, repeat={}, term=None, election="", machine="")
        self.error: HoldfastError | None = None
        # Whether a stop waits for the job; before that, there is nothing that it could lose.
        self._begun = False
        self._beginning = threading.Lock()
        self._watchdog = LeaseWatchdog()
        self._channel = channel
        threading.Thread(target=self._listen, name="holdfast-orders", daemon=True).start()

    def begin(self) -> bool:
        """Return True if the job may begin; from then on the job handles an order to stop."""
        with self._beginning:
            self._begun = not self.stop.is_set()
            return self._begun

    def _listen(self) -> None:
        try:
            for message in self._channel.messages():
                self._take(message)
        except HoldfastError as error:
            self.error = error
        self.stop.set()
        self.told.set()
        self.woken.set()
        self.build.set()

    def _take(self, message: Message) -> None:
        if isinstance(message, Go):
            self.go = message
            self.told.set()
            self.woken.set()
        elif isinstance(message, Warm):
            self.warm = message
            self.woken.set()
        elif isinstance(message, Build):
            self.build.set()
        elif isinstance(message, Lead):
            self._watchdog.hold(message.until_s)
        elif isinstance(message, Stop):
            with self._beginning:
                self.stop.set()
                if self.told.is_set() and not self._begun:
                    # Spark is starting, which cannot be broken off from within.
                    self._channel.send(DriverStopped())
                    os._exit(0)
        else:
            raise not_for("a driver", message)


@dataclass(slots=True)
class _Query:
    """A query of the job while it runs."""

    name: str
    sink: Sink
    checkpoint: str
    running: StreamingQuery
    committed: bool = False
    mended: bool = False
    busy: bool = False
    operators: tuple[str | None, ...] = ()


class Driver:
    """One job, from its file to the end of its queries."""

    def __init__(self, spec: DriverSpec, channel: Channel) -> None:
        self._spec = spec
        self._channel = channel
        self._orders = _Orders(channel)
        self._heard: queue.SimpleQueue[tuple[str, Mapping[str, Any]]] = queue.SimpleQueue()
        self._queries: dict[str, _Query] = {}
        self._ended: set[str] = set()
        self._clock = TaskClock()
        self._tables = TableVersions()
        self._groups: GroupCommits | None = None
        self._warm: SparkSession | None = None
        self._built: list[Sink] | None = None

    def run(self) -> int:
        """Run to the end and return the exit code; every ending is reported first."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            job = load_job(self._spec.target).with_overrides(self._spec.overrides)
            self._channel.send(job_defined(job))
        except HoldfastError as error:
            return self._refuse(error)
        self._orders.woken.wait()
        return self._obey_reported(job)

    def _obey(self, job: Job) -> int:
        """Warm up if this driver stands by, and run after the order to go."""
        if self._orders.warm is not None:
            self._stand_by(job, self._orders.warm)
        self._orders.told.wait()
        if self._orders.stop.is_set():
            return self._end()
        try:
            log_to(self._orders.go.log)
        except OSError as error:
            return self._fail(failures.not_begun(error))
        return self._run(job)

    def _stand_by(self, job: Job, order: Warm) -> None:
        """Warm up as a standby driver, and build the queries once the driver is to take over."""
        from holdfast.engine.queries.watch import java_pid
        from holdfast.engine.session.session import scratch_of
        from holdfast.jobs.processes.warm_up import memory_of_group, warm_up

        began = time.monotonic()
        log_to(order.log)
        self._warm = spark = self._session(job)
        batches, note = warm_up(lambda: sinks_of(job(spark)), spark, self._orders.build)
        took_ms = int((time.monotonic() - began) * 1000)
        told = Warmed(took_ms, memory_of_group(), batches, note, java_pid(spark), scratch_of(spark))
        self._channel.send(told)
        self._orders.build.wait()
        if self._orders.stop.is_set():
            return
        try:
            self._built = sinks_of(job(spark))
        except Exception as error:  # it is called again, and its error reported, when the job begins
            self._channel.send(Built(f"{type(error).__name__}: {error}"))
        else:
            self._channel.send(Built())

    def _session(self, job: Job) -> SparkSession:
        spec = self._spec
        if spec.standby or job.standby:
            job = replace(job, conf={**WITH_STANDBY, **job.conf})
        return session_of(job, spec.conf, spec.home, spec.master)

    def _obey_reported(self, job: Job) -> int:
        """Obey the orders, and report any failure to the supervisor."""
        try:
            return self._obey(job)
        except Unavailable as error:
            return self._fail(failures.from_exception(error, str(error), label=failures.START))
        except HoldfastError as error:
            return self._refuse(error)
        except Exception as error:  # a person's function may raise anything
            detail = traceback.format_exc()
            sys.stderr.write(detail)
            return self._fail(failures.from_exception(error, detail, label=failures.START))

    def _run(self, job: Job) -> int:
        from holdfast.engine.queries.watch import listen

        spark = self._start_spark(job)
        try:
            listen(spark, lambda kind, facts: self._heard.put((kind, facts)))
            if self._orders.begin():
                self._start_queries(job, spark)
            if job.consumer_group is not None:
                self._groups = GroupCommits(job.consumer_group)
            failed = self._watch(job)
        finally:
            for query in spark.streams.active:
                query.stop()
        self._drain()
        if self._groups is not None:
            self._groups.close()
            self._report_groups()
        if failed is not None:
            return self._fail_or_refuse(failed)
        code = self._end()
        spark.stop()
        return code

    def _end(self) -> int:
        """Report the end of a job that has not failed."""
        if self._orders.error is not None:
            return self._refuse(self._orders.error)
        self._channel.send(DriverStopped() if self._orders.stop.is_set() else Finished())
        return 0

    def _start_spark(self, job: Job) -> SparkSession:
        from holdfast.engine.cluster import fit_of
        from holdfast.engine.jvm_lock import hold
        from holdfast.engine.queries.watch import java_pid
        from holdfast.engine.session.session import scratch_of
        from holdfast.ownership.checkpoint_lock import Owner, lock_path

        spark = self._warm or self._session(job)
        home = Path(self._spec.home)
        go = self._orders.go
        owner = Owner(job.name, str(home), java_pid(spark), go.term or 0, go.election, go.machine)
        self._lock = hold(spark, lock_path(job.checkpoint.uri(Path.cwd()), home), owner)
        slots, scratch = spark.sparkContext.defaultParallelism, scratch_of(spark)
        if scratch and go.scratch:
            from holdfast.worker.state.local_copies import continue_copies

            continue_copies(Path(go.scratch[0]), Path(scratch[0]))
        self._channel.send(SessionStarted(spark.version, owner.pid, slots, scratch))
        found = fit_of(spark)
        if found is not None:
            self._channel.send(ClusterFound(found.text, found.as_dict()))
        return spark

    def _start_queries(self, job: Job, spark: SparkSession) -> None:
        sinks = self._built or sinks_of(job(spark))
        if job.strict:
            self._check_strictly(job, sinks, spark)
        base = job.checkpoint.uri(Path.cwd())
        places = {sink.name or job.name: base if len(sinks) == 1 else f"{base}/{sink.name}" for sink in sinks}
        if self._orders.go.restore:
            # All at once: a driver that dies before this leaves it to the next one to finish.
            made = list(restore_all(self._spec.savepoints, places))
            restored = tuple({"query": query, **checkpoint.as_dict()} for query, checkpoint in made)
            self._channel.send(CheckpointsRestored(restored))
        places = {name: resume_at(place) for name, place in places.items()}
        named = {sink.name or job.name: sink for sink in sinks}
        for moved, reordered in find_by_name(named, places):
            self._channel.send(Caution(moved, str(reordered)))
        given = {**job.conf, **self._spec.conf}
        started: list[QueryStarted] = []
        if not self._repeat(named, places, spark, given):
            return
        for sink in sinks:
            name = sink.name or job.name
            place = places[name]
            with self._cautions_of(name), state_format_of(place, spark, given):
                query = self._start(job, sink, name, place)
            self._queries[str(query.runId)] = _Query(name, sink, place, query)
            promise = f"{sink.promise.level.value}: {sink.promise.why}"
            started.append(QueryStarted(name, str(query.id), str(query.runId), place, promise))
        if isinstance(job.backend, (Redis, Cassandra)):
            name_database(address_of_backend(job.backend))
        self._channel.send(QueriesStarted(tuple(started), tuple(sorted(named_databases()))))

    def _check_strictly(self, job: Job, sinks: list[Sink], spark: SparkSession) -> None:
        from holdfast.jobs.processes.planned_lint import refuse_errors

        refuse_errors(job, self._spec.target, sinks, spark.sparkContext.defaultParallelism)

    def _start(self, job: Job, sink: Sink, name: str, place: str) -> StreamingQuery:
        from holdfast.engine.queries.boundary import keep_pause

        trigger, term = job.effective_trigger(), self._orders.go.term
        query = sink.start(checkpoint=place, trigger=trigger, query_name=name, term=term)
        if job.checkpoint.min_pause_ms:
            keep_pause(query, job.checkpoint.min_pause_ms, job.interval_ms)
        return query

    def _repeat(
        self,
        sinks: Mapping[str, Sink],
        places: Mapping[str, str],
        spark: SparkSession,
        given: Mapping[str, str],
    ) -> bool:
        """Repeat the batches lost with damaged checkpoints; False if asked to stop meanwhile."""
        for name, damaged in self._orders.go.repeat.items():
            sink, place, term = sinks[name], places[name], self._orders.go.term
            last: int | None = None
            with state_format_of(place, spark, given):
                for batch_id in repeat(sink, place, damaged, term):
                    last = batch_id
                    if self._orders.stop.is_set():
                        return False
            self._channel.send(BatchesRepeated(name, last, sink.promise.level.value))
        return True

    @contextmanager
    def _cautions_of(self, query: str) -> Iterator[None]:
        """Forward warnings raised while a query starts, except those that the job filters out."""
        from holdfast.stream.cautions import ForkWarning, ObjectStoreWarning, WatermarkWarning

        with warnings.catch_warnings(record=True) as heard:
            yield
        for warning in heard:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
            if issubclass(warning.category, (ForkWarning, ObjectStoreWarning, WatermarkWarning)):
                self._channel.send(Caution(query, str(warning.message)))

    def _watch(self, job: Job) -> Failure | None:
        """Report until every query has ended."""
        from holdfast.engine.queries.boundary import stop_between_batches

        stopping = False
        failed: Failure | None = None
        while True:
            self._report(timeout=_LOOK_S)
            # Looked at in this order: a query that ends in between is seen to have failed next time.
            looked_at = set(self._queries)
            over = not any(query.running.isActive for query in self._queries.values())
            failed = failed or self._failed(job)
            # A query that is being stopped calls itself ended while its last batch still runs.
            if over and not stopping and looked_at == set(self._queries):
                return failed
            stopping = stopping or self._orders.stop.is_set() or failed is not None
            if stopping:
                ended = [stop_between_batches(query.running) for query in self._queries.values()]
                if all(ended):
                    return failed or self._failed(job)
            else:
                self._report_busy()
                self._report_groups()

    def _failed(self, job: Job) -> Failure | None:
        """Return the first failure that a restart of the query in place cannot fix."""
        from holdfast.engine.queries.watch import failure_text

        for query in list(self._queries.values()):
            if query.running.isActive or (text := failure_text(query.running)) is None:
                continue
            if not self._mended(query, text, job):
                return failures.from_text(text, label="query", query=query.name)
        return None

    def _mended(self, query: _Query, text: str, job: Job) -> bool:
        """Restart a query whose sink already had its first batch, after finishing that batch."""
        from holdfast.engine.queries.watch import was_skipped

        if query.committed or query.mended or self._orders.stop.is_set() or not was_skipped(text):
            return False
        if not query.sink.finish_batch(query.checkpoint):
            return False
        again = self._start(job, query.sink, query.name, query.checkpoint)
        del self._queries[str(query.running.runId)]
        self._queries[str(again.runId)] = replace(query, running=again, mended=True)
        self._channel.send(Mended(query.name))
        return True

    def _report_groups(self) -> None:
        """Report why offsets could not be committed to the consumer group."""
        for heard in [] if self._groups is None else self._groups.heard():
            self._channel.send(Caution(None, heard.text))

    def _report_busy(self) -> None:
        """Report the begin and end of batches, so that the supervisor can time them."""
        from holdfast.engine.queries.watch import is_working

        for query in self._queries.values():
            busy = is_working(query.running)
            if busy != query.busy:
                query.busy = busy
                self._channel.send(Busy(query.name, busy))

    def _report(self, timeout: float) -> None:
        """Forward queued events; waits for the first one."""
        from holdfast.engine.queries.watch import committed_batch, keyed_order

        try:
            kind, facts = self._heard.get(timeout=timeout)
            while True:
                query = self._queries.get(str(facts["runId"]))
                if kind == "terminated":
                    self._ended.add(str(facts["runId"]))
                elif kind == "progress" and query is not None:
                    query.operators = query.operators or keyed_order(query.running, facts)
                    add = partial(self._tables.added, query=query.running)
                    batch = committed_batch(query.name, facts, now_ms(), query.operators, add=add)
                    if batch is not None:
                        query.committed = True
                        if self._groups is not None:
                            self._groups.committed(query.running, facts)
                        timed = self._clock.timed(batch, query.running, str(facts["runId"]))
                        self._channel.send(BatchCommitted(timed))
                kind, facts = self._heard.get_nowait()
        except queue.Empty:
            return

    def _drain(self) -> None:
        """Forward the events left in Spark's listener bus; a query's end is its last event."""
        deadline = time.monotonic() + _LAST_EVENTS_S
        while not set(self._queries) <= self._ended and time.monotonic() < deadline:
            self._report(timeout=_LOOK_S)

    def _fail_or_refuse(self, what: Failure) -> int:
        """Refuse with the sink's own error, if any, else fail; a restart does not help a stale owner."""
        error = next((query.sink.error for query in self._queries.values() if query.name == what.query), None)
        if isinstance(error, HoldfastError) and not isinstance(error, Unavailable):
            return self._refuse(error)
        return self._fail(what)

    def _refuse(self, error: HoldfastError) -> int:
        self._channel.send(Refused(error))
        return error.exit_code

    def _fail(self, what: Failure) -> int:
        self._channel.send(JobFailed(what, at_ms=now_ms()))
        return 1

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._orders.stop.set()


def job_defined(job: Job) -> JobDefined:
    """Return the facts of a job that the supervisor needs."""
    return JobDefined(
        name=job.name,
        checkpoint=job.checkpoint.uri(Path.cwd()),
        on_cancel=job.checkpoint.on_cancel,
        timeout_ms=job.timeout_ms,
        tolerable_failures=job.checkpoint.tolerable_failures,
        record=job.checkpoint.record,
        savepoints=_savepoints(job.checkpoint),
        restart=job.restart,
        alerts=job.alerts,
        recovery=job.recovery,
        savepoint_catalog=_savepoint_catalog(job.checkpoint),
        standby=job.standby,
        autoscale=job.autoscale,
    )


def _savepoint_catalog(checkpoint: Checkpoint) -> str | None:
    directory = checkpoint.savepoints
    return None if directory is None else canonical_uri(str(directory), Path.cwd())


def _savepoints(checkpoint: Checkpoint) -> Periodic | None:
    catalog, every_ms = _savepoint_catalog(checkpoint), checkpoint.savepoint_every_ms
    if catalog is None or every_ms is None:
        return None
    return Periodic(
        catalog, every_ms, checkpoint.savepoints_retained, drop_expired=checkpoint.savepoints_drop_expired
    )


_QUERY: Final = "hf.sink(…), a DataStreamWriter that was not started, or a list of them"
_RETURN_QUERY: Final = "end the function with `return hf.sink(frame).delta(path)`"


def sinks_of(built: Any) -> list[Sink]:
    """Return the result of a job's function as sinks, without starting them.

    Raises:
        Invalid: The result cannot be run, or several sinks lack distinct names.
    """
    from holdfast.stream.sinks.query_sink import Sink
    from holdfast.stream.sinks.sinks import adopt

    several = list(built) if isinstance(built, (list, tuple)) else [built]
    sinks: list[Sink] = []
    for sink in several:
        if isinstance(sink, Sink):
            sinks.append(sink)
        elif hasattr(sink, "trigger") and hasattr(sink, "foreachBatch"):
            sinks.append(adopt(sink))
        else:
            raise Invalid(
                "the job's function did not return a query",
                code="HF-E2229",
                found=type(sink).__name__,
                expected=_QUERY,
                hint=_RETURN_QUERY,
            )
    if not sinks:
        raise Invalid(
            "the job's function did not return a query",
            code="HF-E2229",
            found=f"an empty {type(built).__name__}",
            expected=_QUERY,
            hint=_RETURN_QUERY,
        )
    names = [sink.name for sink in sinks]
    if len(sinks) > 1 and (None in names or len(set(names)) < len(names)):
        raise Invalid(
            "two sinks of the job have the same name or no name",
            code="HF-E2230",
            found=", ".join("no name" if name is None else repr(name) for name in names),
            expected="a different name for each sink",
            hint='name each sink, as in hf.sink(frame, name="orders"), and do not change the names later: the'
            " checkpoint of each query is in a directory of this name",
        )
    return sinks


def session_of(
    job: Job, conf: Mapping[str, str], home: str | Path | None, master: str | None = None
) -> SparkSession:
    """Return a job's Spark session; its functions are shipped to Spark's workers by value.

    Args:
        job: The job.
        conf: Spark settings that override the job's own.
        home: The state home.
        master: The Spark master; by default the job's own.
    """
    from holdfast.engine.session.session import session
    from holdfast.engine.session.workers import ship_by_value

    module = sys.modules[job.build.__module__]
    folder = Path(module.__file__ or "").resolve().parent
    spark = session(
        job.name,
        master=master or job.master,
        conf={**job.spark_conf(), **conf},
        extras=job.extras,
        home=home,
        backend=job.backend,
        py_files=[folder / path for path in job.py_files],
    )
    ship_by_value(module)
    return spark


def log_to(path: str | None) -> None:
    """Redirect standard error, including the JVM's, to a file."""
    if path is not None:
        sys.stderr.flush()
        log = open_file(Path(path), os.O_WRONLY | os.O_APPEND)
        os.dup2(log, sys.stderr.fileno())
        os.close(log)


def main() -> int:
    """Run as a supervisor's child."""
    return Driver(DriverSpec.inherited(), Channel.inherited()).run()


if __name__ == "__main__":
    sys.exit(main())
