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
from holdfast.jobs.state_home import StateHome, SupervisorLock, home_or_none
from holdfast.model import BatchProgress
from holdfast.observe.alerting import FIRING, Alert, AlertEvent, AlertStore
from holdfast.observe.files import look
from holdfast.observe.job_metrics import JobFacts
from holdfast.observe.metrics import Sample
from holdfast.observe.open_telemetry import Push, configured
from holdfast.observe.prometheus import MetricsServer
from holdfast.observe.watcher import Watcher
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_LAST_LOOK_S: Final = 10.0
_FAILURES_KEPT: Final = 200

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
    """Measure a running query, and tell what goes wrong with it; the query need know nothing of Holdfast.

    It listens to what Spark reports and works on threads of its own that give way: the query waits for
    nothing, and no failure in here reaches it. What is told goes to the log `holdfast.watch`. A query that is
    started again from the same checkpoint in the same session is watched on. A second call for a query takes
    the place of the first.

    A query of Spark Connect runs in a server. What it reports comes from there over the connection, and the
    files of its checkpoint are looked at from here, where that is an address which this process reaches.

    Cost: one JSON document from the JVM a batch; now and then a listing of the checkpoint's folders.

    Args:
        query: The query, of a classic session or of Spark Connect.
        name: What the job is called in numbers and alerts; by default the query's name.
        alerts: Thresholds, webhook and Alertmanager; by default those of `hf.Alerts()`.
        port: Serves Prometheus at `/metrics` on this port; 0 takes one that is free, see `url`.
        host: The address to serve at; anything but this machine's own lets others read.
        otlp: Pushes to this OpenTelemetry collector; by default to the one that
            `OTEL_EXPORTER_OTLP_ENDPOINT` names, if it does.
        record: Notes the hashes of what good batches leave, for `holdfast checkpoint verify`.
        on_alert: Called with each event, on a thread of the watch.
        consumer_group: Commits where the query has read its topics of Kafka to this group, for Kafka's own
            tools. The group must have no consumers; no query continues from what is committed.
        home: The state home, in which counters and alerts outlive the process. By default the one that holds
            here; where that cannot be written, they do not.
        checkpoint: Where the query keeps its checkpoint. Spark tells, but not over Connect: without it the
            numbers of files, such as the checkpoint's size, are missing there.

    Raises:
        Invalid: The state home that was named cannot be written.
        Conflict: A supervisor watches a job of this name already.
        Unavailable: Somebody else listens on the port.
        Unsupported: The query runs in continuous processing, or OpenTelemetry is not installed.
    """
    require_package("pyspark")
    from holdfast.engine.connect import refuse_connect
    from holdfast.engine.queries.watch import refuse_continuous, trigger_of

    refuse_continuous(trigger_of(query), "hf.watch(…)")
    if consumer_group is not None:
        group_name(consumer_group, "consumer_group")
        refuse_connect(
            query,
            "commits to a consumer group",
            where="hf.watch: consumer_group",
            hint="leave consumer_group=… out, or start the query in a classic session",
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
    )
    try:
        made.serve(port, host, otlp or configured())
    except HoldfastError:
        made.stop()
        raise
    _WATCHES[str(query.id)] = made
    return made


class Watch:
    """A query that is watched; made by `hf.watch`. Also a context manager that ends with `stop`."""

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
            self._say("the files of the checkpoint are not looked at: name it with hf.watch(…, checkpoint=…)")
        self._groups = None if group is None else GroupCommits(group)
        self._recording = self._record(home) if record and home is not None else None
        self._worker = BackgroundWorker("holdfast-watch", self._turn)
        self._unlisten = listen_to_query(query, self._hear)
        # What was committed before is taken in first, however soon the next batch is heard.
        self._former = recent_progress(query)
        self._worker.start()
        self._delivery.start()
        self._worker.wake()

    @property
    def url(self) -> str | None:
        """The address of the metrics for Prometheus, if a port was requested."""
        return None if self._server is None else self._server.url

    def metrics(self) -> tuple[Sample, ...]:
        """The numbers of this moment.

        Spark reports a batch a moment after its commit, so the newest one may be missing.
        """
        with self._lock:
            if not self._stopped:
                self._take_in()
            return self._watcher.measure(self._story.facts(up=not self._stopped), now_ms())

    def alerts(self) -> tuple[Alert, ...]:
        """The open alerts, firing or pending, as of the last look; there is one at least every 5 s."""
        return self._watcher.alerts

    def batches(self) -> tuple[BatchProgress, ...]:
        """The last batches, oldest first."""
        return self._watcher.batches

    def stop(self) -> None:
        """Stop watching: what stood wrong is over, and the port is closed. The query runs on."""
        if self._stopping:
            return
        self._stopping = True
        if _WATCHES.get(str(self._query.id)) is self:
            del _WATCHES[str(self._query.id)]
        with suppress(Exception):  # the session may be gone, and nobody is heard any more
            self._unlisten()
        self._worker.close(_LAST_LOOK_S)
        self._delivery.close()
        for helper in (self._server, self._push, self._recording, self._groups):
            if helper is not None:
                helper.close()
        self._tables.close()
        self._say_heard()

    def serve(self, port: int | None, host: str, otlp: str | None) -> None:
        """Open the port, and begin to push, as far as they are asked for."""
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
        """On a thread of PySpark's: only noted, so that Spark's bus continues."""
        if facts.get("id") == str(self._query.id):
            self._heard.put((kind, facts, now_ms()))
            self._worker.wake()

    def _record(self, home: Path) -> Recording | None:
        if self._checkpoint is None:
            self._say("the query is not recorded: its checkpoint is not known")
            return None
        recording = Recording(home)
        recording.started({self._label: self._checkpoint})
        return recording

    def _turn(self) -> float | None:
        wait = self._due - time.monotonic()
        if wait > 0 and not self._stopping:
            return wait
        self._due = time.monotonic() + SHORTEST_S
        try:
            with self._lock:
                self._look()
        except Exception as error:  # whatever it is, the query must not learn of it
            self._say(f"the query is not watched: {one_line(error_of(error))}")
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
        """Work off what was heard since the last time."""
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
                    self._story.started(self._run, at_ms)
                    self._newest = None
                elif kind == "terminated":
                    self._watcher.busy(self._label, None)
                    self._story.terminated(at_ms, facts.get("exception"))

    def _take_in_unsent(self) -> None:
        """The last batches, of which Spark had not told its listeners when they were taken away."""
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
        if self._recording is not None:
            self._recording.committed(self._label, batch.batch_id, first=first)

    def _ask(self) -> None:
        """Ask the query whether it works on a batch, and now and then look at its files."""
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
            self._say(f"the files of the checkpoint are not looked at: {one_line(error)}")
        else:
            if facts.batch_id is None:
                return
            self._watcher.looked(self._label, facts)
        self._files_pace.took(time.monotonic() - began)

    def _ask_server(self) -> None:
        """Take in what the server has and did not send: PySpark drops its listeners with the connection."""
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

    def started(self, run_id: str, at_ms: int) -> None:
        if run_id in self._runs:
            return
        self._runs.add(run_id)
        self._running_ms = at_ms
        self._restarts += self._since_ms is not None

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
    """The state home, in which nobody watches a job of this name; None where there is none."""

    def unwritable(error: Invalid) -> None:
        _LOG.warning("%s: counters and alerts end with this process: %s", name, one_line(error))

    place = home_or_none(home, unwritable, needed=needed)
    if place is None:
        return None
    if SupervisorLock(StateHome(place), name).is_held():
        raise Conflict(
            "a supervisor watches a job of this name already",
            code="HF-E4016",
            where=str(place),
            found=name,
            hint="give the watch another name: hf.watch(query, name=…)",
        )
    return place


def _address(checkpoint: str | os.PathLike[str]) -> str:
    return canonical_uri(parse_storage(os.fspath(checkpoint), "checkpoint"), Path.cwd())


def _line(name: str, event: AlertEvent) -> str:
    return f"{name}: {spoken(event)[1]}"
