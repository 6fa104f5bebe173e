"""`hf.guard`: a supervisor's services for a query in a process that a platform starts."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final

from holdfast.clock import now_ms, steady_s
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.extras import require_package
from holdfast.jobs import given_query
from holdfast.jobs.background_savepoints import Savepointing
from holdfast.jobs.given_query import GivenQuery, GuardSettings, require_whole
from holdfast.jobs.guard_ownership import CheckpointOwnership, Patience
from holdfast.jobs.query_watch import Watch, start_watch
from holdfast.jobs.state_home import home_or_none
from holdfast.storage.successors import first_address, resume_at, void_unpublished

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.config.alert_settings import Alerts
    from holdfast.config.policies import Trigger
    from holdfast.jobs.given_query import Guarded
    from holdfast.observe.alerting import AlertEvent


_LOG: Final = logging.getLogger("holdfast.guard")
_LOOK_S: Final = 0.1
# Until a batch that was broken off has ended; the process ends anyhow.
_BREAKING_OFF_S: Final = 5.0


def guard(
    query: Guarded,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    name: str | None = None,
    trigger: Trigger | None = None,
    verify: Duration | None = "1m",
    wait: Duration = "2m",
    lease: Duration | None = "30s",
    lease_at: str | os.PathLike[str] | None = None,
    grace: Duration = "25s",
    savepoints: str | os.PathLike[str] | None = None,
    savepoint_every: Duration | None = None,
    savepoints_retained: int = 5,
    savepoints_drop_expired: bool = False,
    alerts: Alerts | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    otlp: str | None = None,
    on_alert: Callable[[AlertEvent], None] | None = None,
    consumer_group: str | None = None,
    home: str | Path | None = None,
) -> Guard:
    """Guard a query of a process that a platform starts: Kubernetes, YARN, a scheduler, `spark-submit`.

    The call itself starts nothing: `sys.exit(hf.guard(writer).run())` starts the query, waits for its end and
    returns an exit code for the platform. As a context manager it starts the query and stops it between two
    batches.

    At the start it becomes the only owner of the checkpoint and verifies that the checkpoint is whole; then
    it takes savepoints on a schedule and serves metrics and alerts as `hf.watch` does. On SIGTERM or Ctrl-C,
    sent to this process or to Spark's JVM, it stops after the running batch has committed.

    Args:
        query: A `DataStreamWriter` that is not started, `hf.sink(…)`, or a running query. The checkpoint of a
            running query cannot be verified before its start.
        checkpoint: The query's checkpoint; by default the writer's own.
        name: The job's name in metrics, alerts and other commands; by default the query's name.
        trigger: The trigger, for `hf.sink(…)`.
        verify: The time limit for verifying the checkpoint; a damaged one is refused. None skips the check.
        wait: The maximum time to wait for the end of the previous owner.
        lease: The time for which an owner without a sign of life keeps the ownership of a checkpoint that
            is not on a local disk. None disables the lease; then two machines may use the checkpoint at once.
        lease_at: A different address for the lease: a directory, `s3://…`, `gs://…`, `abfss://…`,
            `webhdfs://…` or `zookeeper://…`. By default it is next to the checkpoint. For a local disk it
            adds a lease to the lock.
        grace: The time that a batch may take after the request to stop before it is interrupted. Set it
            shorter than the platform's own grace period, after which the process is killed.
        savepoints: The savepoint catalog's directory.
        savepoint_every: The interval between savepoints.
        savepoints_retained: The number of savepoints to keep.
        savepoints_drop_expired: True to omit expired rows of keyed state from the savepoints.
        alerts: Thresholds and routes.
        port: The port for Prometheus at `/metrics`.
        host: The address to listen on.
        otlp: The OpenTelemetry collector to push to.
        on_alert: Called with each event.
        consumer_group: The Kafka consumer group to which the query's offsets are committed, as in `hf.watch`.
        home: The state home. If none can be written, counters and alerts end with the process.

    Raises:
        Invalid: A setting is not valid.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        writer = events.writeStream.format("noop").queryName("drinks").trigger(availableNow=True)
        guard = hf.guard(writer, checkpoint=checkpoint, verify="30s", port=0)
        assert guard.run() == 0
    """
    settings = GuardSettings(
        checkpoint=checkpoint,
        name=name,
        trigger=trigger,
        verify=verify,
        wait=wait,
        lease=lease,
        lease_at=lease_at,
        grace=grace,
        savepoints=savepoints,
        savepoint_every=savepoint_every,
        savepoints_retained=savepoints_retained,
        savepoints_drop_expired=savepoints_drop_expired,
        alerts=alerts,
        port=port,
        host=host,
        otlp=otlp,
        on_alert=on_alert,
        consumer_group=consumer_group,
        home=home,
    )
    require_package("pyspark")
    if port is not None:
        require_package("prometheus_client")
    return Guard(query, settings)


class Guard:
    """A guarded query, created by `hf.guard`.

    Args:
        query: The query, or the writer that starts it.
        settings: The settings.

    Raises:
        Unsupported: The query is one of Spark Connect.
        Invalid: The argument is not a query.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        writer = events.writeStream.format("noop").queryName("drinks")
        with hf.guard(writer, checkpoint=checkpoint) as guard:
            guard.query.processAllAvailable()
        assert guard.exit_code == 0
        assert guard.error is None
    """

    def __init__(self, query: Guarded, settings: GuardSettings) -> None:
        self._given = GivenQuery.of(query, settings)
        self._settings = settings
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._stopped_by: int | None = None
        self._deadline_s: float | None = None
        self._breaking_off: threading.Thread | None = None
        self._ownership: CheckpointOwnership | None = None
        self._query: StreamingQuery | None = None
        self._watch: Watch | None = None
        self._savepoints: Savepointing | None = None
        self._java_pid = 0
        self._exit_code: int | None = None
        self._error: HoldfastError | None = None

    @property
    def query(self) -> StreamingQuery:
        """The query, once it has been started.

        Raises:
            Conflict: It has not been started.
        """
        if self._query is None:
            raise Conflict(
                "the query has not been started",
                code="HF-E4017",
                hint="call guard.start(), or use `with guard:`",
            )
        return self._query

    @property
    def watch(self) -> Watch:
        """The watch with metrics and alerts, once the query has been started.

        Raises:
            Conflict: The query has not been started.
        """
        if self._watch is None:
            raise Conflict(
                "the query has not been started",
                code="HF-E4017",
                hint="call guard.start(), or use `with guard:`",
            )
        return self._watch

    @property
    def exit_code(self) -> int | None:
        """The exit code for a platform; None while the query runs."""
        return self._exit_code

    @property
    def error(self) -> HoldfastError | None:
        """The cause of the query's failure; None if it has not failed."""
        return self._error

    def start(self) -> Guard:
        """Become the owner of the checkpoint, verify that it is whole, and start the query.

        Raises:
            Conflict: Another process owns the checkpoint, or this guard was started before.
            Corrupt: The checkpoint is damaged; nothing was started.
            Unavailable: The address of the lease does not answer.
            Unsupported: The storage supports no lease, or this Spark does not support the checkpoint.
        """
        if self._ownership is not None:
            raise Conflict(
                "the guard has already been started",
                code="HF-E4018",
                where=self._given.name,
                hint="create a new guard with hf.guard(…)",
            )
        try:
            self._begin(self._given)
        except BaseException:
            self._let_go()
            self._ended.set()
            raise
        threading.Thread(target=self._keep, name="holdfast-guard", daemon=True).start()
        return self

    def stop(self) -> bool:
        """Stop the query after the running batch has committed; False if the batch was interrupted.

        A batch is interrupted if it takes longer than `grace`.
        """
        self._stop.set()
        self.wait()
        return self._breaking_off is None

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait for the end of the query; return False on a timeout."""
        return self._ended.wait(None if timeout is None else parse_duration(timeout) / 1000)

    def run(self) -> int:
        """Start the query, wait for its end, and return the exit code for this process.

        SIGTERM and Ctrl-C stop the query between two batches; a second signal interrupts the batch. Errors
        are logged to `holdfast.guard` and not raised.

        Returns:
            0 if the query ended or was stopped; 5 if the next start may succeed; 4 if a different process
            owns the checkpoint; 6 if the checkpoint is damaged; 143 or 130 if a signal interrupted a batch;
            otherwise the code of an error that has to be fixed by hand.
        """
        try:
            with self._answered_signals():
                self.start()
                self.wait()
        except Exception as error:  # a person's sink may raise anything
            if self._stop.is_set():
                return given_query.DONE
            self._failed(given_query.of_error(error))
        return given_query.FAILED if self._exit_code is None else self._exit_code

    def __enter__(self) -> Guard:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _begin(self, given: GivenQuery) -> None:
        from holdfast.engine.queries.watch import java_pid

        settings, home = self._settings, home_or_none(self._settings.home, self._without_home)
        self._java_pid = java_pid(given.spark)
        first = first_address(given.checkpoint)
        leading = settings.leading(first)
        self._ownership = owned = CheckpointOwnership(first, given.name, home, leading)
        patience = Patience(steady_s() + settings.wait_s, self._stop.wait)
        owned.take(given.spark, self._java_pid, patience)
        if leading is not None and given.running is None:
            void_unpublished(first)  # an earlier owner may be suspended before its publication
            # The program names the first address, also after a change has replaced the checkpoint.
            self._given = given = replace(given, checkpoint=resume_at(first))
        if settings.verify_ms is not None and given.running is None:
            require_whole(given, home, settings.verify_ms)
        if self._stop.is_set():
            raise Conflict(
                "the guard was stopped before it started the query",
                code="HF-E4019",
                hint="create a new guard with hf.guard(…)",
                where=given.name,
            )
        self._query = given.start(owned.term)
        self._watch = start_watch(
            self._query,
            name=given.name,
            alerts=settings.alerts,
            port=settings.port,
            host=settings.host,
            otlp=settings.otlp,
            on_alert=settings.on_alert,
            consumer_group=settings.consumer_group,
            home=home,
            on_stop=self._stop.set,
        )
        if settings.periodic is not None:
            self._savepoints = Savepointing(settings.periodic, now_ms, lambda: owned.lost is None)
            self._savepoints.started({given.name: given.checkpoint})
        _LOG.info("%s: started on %s", given.name, given.checkpoint)

    def _keep(self) -> None:
        """Supervise the query on a thread of its own until it has ended."""
        try:
            while not self._has_ended():
                self._ended.wait(_LOOK_S)
            self._judge()
        except Exception as error:  # whatever Py4J makes of a JVM that has ended
            said = f"{type(error).__name__}: {error}"
            self._failed(
                Unavailable(
                    "the connection to the query was lost",
                    code="HF-E5024",
                    found=said,
                    hint="find in Spark's log why its JVM ended, then start the program again",
                )
            )
        finally:
            self._let_go()
            self._ended.set()

    def _has_ended(self) -> bool:
        from holdfast.engine.queries.boundary import stop_between_batches

        self._tell()
        self._require_owned()
        if self._stop.is_set():
            self._hurry()
            return stop_between_batches(self.query) or self._given_up()
        # A query that has failed calls itself ended while its thread still has something to do.
        return not self.query.isActive and stop_between_batches(self.query)

    def _hurry(self) -> None:
        """Interrupt the batch once it has exceeded the grace period."""
        now_s = time.monotonic()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._settings.grace_s
        if now_s >= self._deadline_s and self._breaking_off is None:
            _LOG.warning("%s: the batch exceeded the grace period and is interrupted", self._given.name)
            self._breaking_off = threading.Thread(
                target=self.query.stop, name="holdfast-guard-stop", daemon=True
            )
            self._breaking_off.start()

    def _given_up(self) -> bool:
        """Return True if an interrupted batch does not end."""
        begun_s = self._deadline_s if self._breaking_off is not None else None
        return begun_s is not None and time.monotonic() > begun_s + _BREAKING_OFF_S

    def _require_owned(self) -> None:
        """End this process if it no longer owns the checkpoint, so that nothing is written."""
        why = None if self._ownership is None else self._ownership.lost
        if why is not None:
            _LOG.error("%s: the lease is lost, so this process ends: %s", self._given.name, why)
            logging.shutdown()
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._java_pid, signal.SIGKILL)
            os._exit(given_query.OWNED)

    def _judge(self) -> None:
        """Set the exit code and log how the query has ended."""
        from holdfast.engine.queries.watch import failure_text

        text = failure_text(self.query) if self._breaking_off is None else None
        if self._breaking_off is not None:
            self._exit_code = given_query.of_signal(self._stopped_by or signal.SIGTERM)
        elif text is None:
            self._exit_code = given_query.DONE
            _LOG.info("%s: %s", self._given.name, "stopped" if self._stop.is_set() else "ended")
        else:
            self._failed(self._given.failure(text))

    def _failed(self, error: HoldfastError) -> None:
        self._error, self._exit_code = error, error.exit_code
        _LOG.error("%s: %s", self._given.name, error)

    def _without_home(self, _error: Invalid) -> None:
        """Ignore a missing state home, which the watch reports."""

    def _tell(self) -> None:
        for event in () if self._savepoints is None else self._savepoints.heard():
            level = logging.WARNING if event.kind.startswith("no-") else logging.INFO
            _LOG.log(level, "%s: %s", self._given.name, event.text)

    def _let_go(self) -> None:
        """Release all resources; a savepoint in progress is abandoned."""
        if self._savepoints is not None:
            self._savepoints.abandon()
        if self._watch is not None:
            self._watch.stop()
        if self._ownership is not None:
            self._ownership.release()

    @contextmanager
    def _answered_signals(self) -> Iterator[None]:
        """Stop the query on SIGTERM and Ctrl-C within the block, in this process and in the JVM."""
        from holdfast.engine.session.java import answered_sigterm

        def on_signal(number: int, _frame: FrameType | None = None) -> None:
            if self._stop.is_set():
                self._deadline_s = 0.0
            self._stopped_by = number
            self._stop.set()

        with ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    stack.callback(signal.signal, number, signal.signal(number, on_signal))
            told_in_jvm = partial(on_signal, signal.SIGTERM)
            stack.enter_context(answered_sigterm(self._given.spark, told_in_jvm))
            yield
