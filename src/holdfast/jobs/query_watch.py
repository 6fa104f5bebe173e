"""Watch a query that runs in this process, with one line: `hf.watch(query)`."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import now_ms
from holdfast.config.alert_settings import Alerts
from holdfast.config.checks import canonical_uri, group_name, parse_storage
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound
from holdfast.extras import require_package
from holdfast.jobs.background import BackgroundWorker, GroupCommits, Recording, Throttle, error_of, one_line
from holdfast.jobs.failures import from_text
from holdfast.jobs.metrics_loop import (
    EVERY_S,
    FILES_LONGEST_S,
    FILES_SHARE,
    FILES_SHORTEST_S,
    SHORTEST_S,
    AlertDelivery,
    spoken,
)
from holdfast.jobs.query_record import PROMISE, QueryRecord
from holdfast.jobs.state_home import StateHome, SupervisorLock, home_or_none
from holdfast.model import BatchProgress, JobKind, QueryStarted
from holdfast.observe.alerting import FIRING, Alert, AlertEvent, AlertStore
from holdfast.observe.files import look
from holdfast.observe.job_metrics import JobFacts
from holdfast.observe.metrics import MetricSample
from holdfast.observe.open_telemetry import Push, configured
from holdfast.observe.prometheus import MetricsServer
from holdfast.observe.watcher import Watcher
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_LAST_LOOK_S: Final = 10.0
_FAILURES_KEPT: Final = 200
_STOP_LOOK_S: Final = 0.1

_LOG = logging.getLogger("holdfast.watch")
# Who watches which query of this process, by the query's id.
_WATCHES: dict[str, Watch] = {}


def watch(
    query: StreamingQuery,
    *,
    name: str | None = None,
    alerts: Alerts | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    otlp: str | None = None,
    record: bool = False,
    on_alert: Callable[[AlertEvent], None] | None = None,
    consumer_group: str | None = None,
    home: str | Path | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Watch:
    """Monitor a running query and report problems; the query needs no change.

    It listens to Spark's reports on low-priority threads of its own: the query never waits for it, and its
    failures do not reach the query. Messages go to the log `holdfast.watch`. A query that is started again
    from the same checkpoint in the same session stays watched. A second call for a query replaces the first.

    A query of Spark Connect runs in a server. Its reports come over the connection; the files of its
    checkpoint are checked if this process can reach their address.

    Cost: one JSON document from the JVM per batch, and an occasional listing of the checkpoint's directories.

    Args:
        query: The query, of a classic session or of Spark Connect.
        name: The job's name in metrics and alerts; by default the query's name.
        alerts: Thresholds, webhook and Alertmanager; by default those of `hf.Alerts()`.
        port: The port for Prometheus at `/metrics`; 0 picks a free one, see `url`.
        host: The address to listen on; an address other than loopback opens the metrics to other machines.
        otlp: The OpenTelemetry collector to push to; by default `OTEL_EXPORTER_OTLP_ENDPOINT`, if set.
        record: True to record the hashes of committed batches, for `holdfast checkpoint verify`.
        on_alert: Called with each event, on a thread of the watch.
        consumer_group: The Kafka consumer group to which the query's offsets are committed, for Kafka's own
            tools. The group must have no consumers; no query continues from these offsets.
        home: The state home, where counters and alerts outlive the process, and where `holdfast list`,
            `status` and `stop` find the query. By default the one of this directory; if it cannot be written,
            they end with the process.
        checkpoint: The query's checkpoint. Needed with Spark Connect, which does not report it: without it
            metrics of files, such as the checkpoint's size, are missing.

    Raises:
        Invalid: The given state home cannot be written.
        Conflict: A supervisor already watches a job of this name.
        Unavailable: The port is in use.
        Unsupported: The query runs in continuous processing, its Spark is older than 3.5, or OpenTelemetry is
            not installed.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        query = events.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        with hf.watch(query, name="drinks", alerts=hf.Alerts(lag="5m"), port=0) as watch:
            assert watch.url.startswith("http://127.0.0.1:")
            query.processAllAvailable()
        query.stop()
    """
    return start_watch(
        query,
        name=name,
        alerts=alerts,
        port=port,
        host=host,
        otlp=otlp,
        record=record,
        on_alert=on_alert,
        consumer_group=consumer_group,
        home=home,
        checkpoint=checkpoint,
    )


def start_watch(
    query: StreamingQuery,
    *,
    name: str | None,
    alerts: Alerts | None,
    port: int | None,
    host: str,
    otlp: str | None,
    record: bool = False,
    on_alert: Callable[[AlertEvent], None] | None,
    consumer_group: str | None,
    home: str | Path | None,
    checkpoint: str | os.PathLike[str] | None = None,
    on_stop: Callable[[], object] | None = None,
) -> Watch:
    """Monitor a query as `watch` does.

    Args:
        query: As in `watch`, like all arguments that are not listed.
        on_stop: Stops the query between two batches, for `hf.guard`; None if the watch does.
    """
    require_package("pyspark")
    from holdfast.engine.connect import refuse_connect
    from holdfast.engine.queries.watch import refuse_continuous, require_session, trigger_of

    require_session(query, "hf.watch(…)")
    refuse_continuous(trigger_of(query), "hf.watch(…)")
    if consumer_group is not None:
        group_name(consumer_group, "consumer_group")
        refuse_connect(
            query,
            "commits to a consumer group",
            where="hf.watch: consumer_group",
            hint="omit consumer_group=…, or start the query in a classic session",
        )
    former = _WATCHES.pop(str(query.id), None)
    if former is not None:
        former.stop()
    called = name or query.name or f"query-{str(query.id)[:8]}"
    place = _place(home, called, needed=record or home is not None)
    files = None if checkpoint is None else _address(checkpoint)
    made = Watch(
        query,
        called,
        alerts or Alerts(),
        place,
        record=record,
        on_alert=on_alert,
        checkpoint=files,
        group=consumer_group,
        on_stop=on_stop,
    )
    try:
        made.serve(port, host, otlp or configured())
    except HoldfastError:
        made.stop()
        raise
    _WATCHES[str(query.id)] = made
    return made


class Watch:
    """A watched query, created by `hf.watch`; as a context manager it calls `stop` at the end.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        query = events.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        watch = hf.watch(query, name="drinks")
        query.processAllAvailable()
        query.stop()
        watch.stop()
        assert watch.batches()[-1].input_rows == 1
    """

    def __init__(
        self,
        query: StreamingQuery,
        name: str,
        alerts: Alerts,
        home: Path | None,
        *,
        record: bool = False,
        on_alert: Callable[[AlertEvent], None] | None = None,
        checkpoint: str | None = None,
        group: str | None = None,
        on_stop: Callable[[], object] | None = None,
    ) -> None:
        from holdfast.engine.connect import is_connect
        from holdfast.engine.queries.batch_facts import TableVersions
        from holdfast.engine.queries.task_times import TaskClock
        from holdfast.engine.queries.watch import checkpoint_of, listen_to_query, recent_progress

        self.name = name
        self._query = query
        self._label = query.name or name
        self._on_alert = on_alert
        self._told: set[str] = set()
        diary = None if home is None else AlertStore(home)
        self._watcher = Watcher(name, alerts, diary)
        self._delivery = AlertDelivery(name, alerts, diary, now_ms)
        self._story = _Story(name, str(query.runId))
        self._heard: queue.SimpleQueue[tuple[str, Mapping[str, Any], int]] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._newest: int | None = None
        self._run = str(query.runId)
        self._operators: tuple[str | None, ...] = ()
        self._clock = TaskClock()
        self._tables = TableVersions()
        self._due = 0.0
        self._files_pace = Throttle(FILES_SHARE, FILES_LONGEST_S, FILES_SHORTEST_S)
        self._stopping = self._stopped = self._gone = False
        self._server: MetricsServer | None = None
        self._push: Push | None = None
        self._is_remote = is_connect(query)
        self._checkpoint = checkpoint or checkpoint_of(query)
        if self._checkpoint is None:
            self._say("the checkpoint's files are not checked; give its address: hf.watch(…, checkpoint=…)")
        self._groups = None if group is None else GroupCommits(group)
        self._recording = self._record(home) if record and home is not None else None
        self._book = self._booked(home, on_stop)
        self._worker = BackgroundWorker("holdfast-watch", self._turn)
        self._unlisten = listen_to_query(query, self._hear)
        # What was committed before is taken in first, however soon the next batch is heard.
        self._former = recent_progress(query)
        if self._book is not None:
            self._book.start()
        self._worker.start()
        self._delivery.start()
        self._worker.wake()

    @property
    def url(self) -> str | None:
        """The address of the metrics for Prometheus, if a port was requested."""
        return None if self._server is None else self._server.url

    def metrics(self) -> tuple[MetricSample, ...]:
        """Return the current metrics.

        Spark reports a batch a moment after its commit, so the newest one may be missing.
        """
        with self._lock:
            if not self._stopped:
                self._take_in()
            return self._watcher.measure(self._story.facts(up=not self._stopped), now_ms())

    def alerts(self) -> tuple[Alert, ...]:
        """Return the open alerts, firing or pending, as of the last check, at most 5 s ago."""
        return self._watcher.alerts

    def batches(self) -> tuple[BatchProgress, ...]:
        """Return the last batches, oldest first."""
        return self._watcher.batches

    def stop(self) -> None:
        """Stop watching, resolve open alerts and close the port. The query continues."""
        if self._stopping:
            return
        self._stopping = True
        if _WATCHES.get(str(self._query.id)) is self:
            del _WATCHES[str(self._query.id)]
        with suppress(Exception):  # the session may be gone, and nobody is heard any more
            self._unlisten()
        self._worker.close(_LAST_LOOK_S)
        self._close_book()
        self._delivery.close()
        for helper in (self._server, self._push, self._recording, self._groups):
            if helper is not None:
                helper.close()
        self._tables.close()
        self._say_heard()

    def serve(self, port: int | None, host: str, otlp: str | None) -> None:
        """Open the port and start pushing, as configured."""
        if port is not None:
            self._server = MetricsServer(self.metrics, port, host)
        if otlp is not None:
            self._push = Push(lambda: self._watcher.samples, otlp)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _hear(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Queue an event on PySpark's thread, without delaying Spark's listener bus."""
        if facts.get("id") == str(self._query.id):
            self._heard.put((kind, facts, now_ms()))
            self._worker.wake()

    def _record(self, home: Path) -> Recording | None:
        if self._checkpoint is None:
            self._say("no integrity record is written: the query's checkpoint is unknown")
            return None
        recording = Recording(home)
        recording.started({self._label: self._checkpoint})
        return recording

    def _booked(self, home: Path | None, on_stop: Callable[[], object] | None) -> QueryRecord | None:
        """Return the query's record in the state home; None without one, and for Spark Connect.

        A query of Spark Connect cannot be stopped between two batches from here.
        """
        if home is None or self._checkpoint is None or self._is_remote:
            return None
        query = self._query
        started = QueryStarted(self._label, str(query.id), self._run, self._checkpoint, PROMISE)
        kind = JobKind.WATCHED if on_stop is None else JobKind.GUARDED
        return QueryRecord(home, self.name, kind, started, on_stop or self._stop_query, self._say)

    def _stop_query(self) -> None:
        """Stop the query between two batches, on a thread of its own."""
        threading.Thread(target=self._await_boundary, name="holdfast-watch-stop", daemon=True).start()

    def _await_boundary(self) -> None:
        from holdfast.engine.queries.boundary import stop_between_batches

        _LOG.info("%s: asked to stop after the running batch", self.name)
        try:
            while not stop_between_batches(self._query):
                time.sleep(_STOP_LOOK_S)
        except Exception as error:  # whatever Py4J makes of a session that has ended
            self._say(f"the query could not be stopped: {one_line(error_of(error))}")

    def _close_book(self) -> None:
        """End the query's record with what is known of its end."""
        if self._book is None:
            return
        active, failure = False, None
        with suppress(Exception):  # the session may be gone
            active, error = bool(self._query.isActive), self._query.exception()
            failure = None if error is None else from_text(str(error), label="query")
        self._book.close(active=active, failure=failure)

    def _turn(self) -> float | None:
        wait = self._due - time.monotonic()
        if wait > 0 and not self._stopping:
            return wait
        self._due = time.monotonic() + SHORTEST_S
        try:
            with self._lock:
                self._look()
        except Exception as error:  # whatever it is, the query must not learn of it
            self._say(f"a check of the query failed: {one_line(error_of(error))}")
        return EVERY_S

    def _look(self) -> None:
        if self._stopped:
            return
        self._take_in()
        if self._stopping:
            self._stopped = True
            self._take_in_unsent()
            events = self._watcher.end(self._story.facts(up=False), now_ms())
        else:
            self._ask()
            events = self._watcher.evaluate(self._story.facts(up=True), now_ms())
        for event in events:
            _LOG.log(logging.WARNING if event.kind == FIRING else logging.INFO, "%s", _line(self.name, event))
            self._call(event)
        self._delivery.now(self._watcher.alerts, events)
        self._say_heard()

    def _call(self, event: AlertEvent) -> None:
        if self._on_alert is None:
            return
        try:
            self._on_alert(event)
        except Exception as error:  # a person's function may raise anything
            self._say(f"on_alert failed: {type(error).__name__}: {error}")

    def _take_in(self) -> None:
        """Process the events queued since the last call."""
        former, self._former = self._former, []
        for progress, at_ms in former:
            self._committed(self._batch(progress, at_ms))
        with suppress(queue.Empty):
            while True:
                kind, facts, at_ms = self._heard.get_nowait()
                if kind == "progress":
                    self._committed(self._batch(facts, at_ms, partial(self._tables.added, query=self._query)))
                elif kind == "started":
                    self._run = str(facts["runId"])
                    if self._story.started(self._run, at_ms) and self._book is not None:
                        self._book.restarted(self._run, recovers=self._story.recovering)
                    self._newest = None
                elif kind == "terminated":
                    self._watcher.busy(self._label, None)
                    self._story.terminated(at_ms, facts.get("exception"))
                    if self._book is not None:
                        error = facts.get("exception")
                        self._book.terminated(None if error is None else from_text(error, label="query"))

    def _take_in_unsent(self) -> None:
        """Process the last batches that Spark had not yet reported to its listeners."""
        from holdfast.engine.queries.watch import recent_progress

        try:
            unsent = recent_progress(self._query, self._newest)
        except Exception:  # whatever Py4J makes of a session that has ended
            return
        for progress, at_ms in unsent:
            if str(progress["runId"]) == self._run:
                self._committed(self._batch(progress, at_ms))

    def _batch(
        self,
        progress: Mapping[str, Any],
        at_ms: int,
        add: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> BatchProgress | None:
        from holdfast.engine.queries.watch import committed_batch, keyed_order

        self._operators = self._operators or keyed_order(self._query, progress)
        batch = committed_batch(self._label, progress, at_ms, self._operators, add=add)
        if batch is not None and self._groups is not None:
            self._groups.committed(self._query, progress)
        return None if batch is None else self._clock.timed(batch, self._query, str(progress["runId"]))

    def _committed(self, batch: BatchProgress | None) -> None:
        # What was recent when watching began is reported once more where it was on its way just then.
        if batch is None or (self._newest is not None and batch.batch_id <= self._newest):
            return
        first = self._newest is None
        self._newest = batch.batch_id
        self._watcher.committed(batch)
        self._story.committed(batch.committed_ms)
        if self._book is not None:
            self._book.committed(batch)
        if self._recording is not None:
            self._recording.committed(self._label, batch.batch_id, first=first)

    def _ask(self) -> None:
        """Check whether the query works on a batch and, from time to time, its files."""
        from holdfast.engine.queries.watch import is_working

        if not self._gone:
            try:
                working = self._query.isActive and is_working(self._query)
                self._ask_server()
            except Exception as error:  # whatever Py4J makes of a session that has ended
                # Asking again would tell the same each time, in Py4J's own log.
                self._gone = True
                working = False
                self._say(f"the session has ended: {type(error).__name__}")
            self._watcher.busy(self._label, now_ms() if working else None)
        if self._checkpoint is None or self._files_pace.wait_s():
            return
        began = time.monotonic()
        try:
            facts = look(open_storage(self._checkpoint), now_ms())
        except NotFound:
            return  # before its first batch there is none
        except HoldfastError as error:
            self._say(f"the checkpoint's files cannot be checked: {one_line(error)}")
        else:
            if facts.batch_id is None:
                return
            self._watcher.looked(self._label, facts)
        self._files_pace.took(time.monotonic() - began)

    def _ask_server(self) -> None:
        """Fetch events that the server did not send; PySpark drops its listeners with the connection."""
        if not self._is_remote:
            return
        from holdfast.engine.connect import progress_after

        for progress in progress_after(self._query, self._newest):
            if str(progress["runId"]) == str(self._query.runId):
                self._committed(self._batch(progress, now_ms()))

    def _say_heard(self) -> None:
        for helper in (self._recording, self._delivery, self._groups):
            for heard in () if helper is None else helper.heard():
                self._say(heard.text)

    def _say(self, text: str) -> None:
        """Print a failure once."""
        if text not in self._told:
            self._told.add(text)
            _LOG.warning("%s: %s", self.name, text)


class _Story:
    """The history of a query while it was watched."""

    def __init__(self, name: str, run_id: str) -> None:
        self._name = name
        self._runs = {run_id}
        self._started_ms = self._running_ms = now_ms()
        self._restarts = 0
        self._failures: Counter[str] = Counter()
        self._failed_ms: deque[int] = deque(maxlen=_FAILURES_KEPT)
        self._recovery_ms: int | None = None
        self._recovered_ms: int | None = None
        self._since_ms: int | None = None

    @property
    def recovering(self) -> bool:
        return self._since_ms is not None

    def started(self, run_id: str, at_ms: int) -> bool:
        """Note a start; return False for a run that is known already."""
        if run_id in self._runs:
            return False
        self._runs.add(run_id)
        self._running_ms = at_ms
        self._restarts += self._since_ms is not None
        return True

    def terminated(self, at_ms: int, error: str | None) -> None:
        if error is not None:
            self._failures[from_text(error, label="query").cause] += 1
            self._failed_ms.append(at_ms)
            if self._since_ms is None:
                self._since_ms = at_ms

    def committed(self, at_ms: int) -> None:
        if self._since_ms is not None:
            self._recovery_ms, self._since_ms = at_ms - self._since_ms, None
            self._recovered_ms = at_ms

    def facts(self, *, up: bool) -> JobFacts:
        return JobFacts(
            name=self._name,
            up=up,
            started_ms=self._started_ms,
            running_ms=self._running_ms,
            restarts=self._restarts,
            failures=dict(self._failures),
            failed_ms=tuple(self._failed_ms),
            recovery_ms=self._recovery_ms,
            recovered_ms=self._recovered_ms,
            recovering_since_ms=self._since_ms,
        )


def _place(home: str | Path | None, name: str, *, needed: bool) -> Path | None:
    """Return the state home, checked for no other watch of this job, or None."""

    def unwritable(error: Invalid) -> None:
        _LOG.warning("%s: counters and alerts end with this process: %s", name, one_line(error))

    place = home_or_none(home, unwritable, needed=needed)
    if place is None:
        return None
    if SupervisorLock(StateHome(place), name).is_held():
        raise Conflict(
            "the job name is in use by a job with a live supervisor",
            code="HF-E4016",
            where=str(place),
            found=name,
            hint="give the watch a different name: hf.watch(query, name=…)",
        )
    return place


def _address(checkpoint: str | os.PathLike[str]) -> str:
    return canonical_uri(parse_storage(os.fspath(checkpoint), "checkpoint"), Path.cwd())


def _line(name: str, event: AlertEvent) -> str:
    return f"{name}: {spoken(event)[1]}"
