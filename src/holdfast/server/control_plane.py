"""The server's view of a state home: jobs and checkpoints, cached for all requests."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast.checkpoints.checkpoint import (
    CheckpointReport,
    CommittedBatch,
    Store,
    history,
    read,
    state_bytes,
)
from holdfast.errors import Corrupt, Internal, NotFound, Unsupported
from holdfast.external.named_addresses import name_databases_of
from holdfast.external.view import open_checkpoint
from holdfast.jobs.checkpoint_watch import measured_batches
from holdfast.jobs.registry.client import Control, JobDetails, JobStatus
from holdfast.jobs.registry.operation_log import Arguments, Operation, Operations
from holdfast.jobs.registry.plain_queries import PlainQueries
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.reports import QuerySizing, job_cost, job_lags, job_thresholds, sizings
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobKind, QueryStarted
from holdfast.observe.lag import Lag
from holdfast.savepoints.catalog import Listed
from holdfast.savepoints.savepoint_api import list as listed
from holdfast.server.server_settings import ServerSettings
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from holdfast.advice.cost_report import CostReport
    from holdfast.jobs.recovery import Prediction

Clock = Callable[[], int]
T = TypeVar("T")

# The maximum age of job data, which all viewers of a page share.
FRESH_S: Final = 0.5
# The maximum age of data about committed batches.
SETTLED_S: Final = 30.0
# The maximum age of predictions, which list the folders of checkpoints.
PREDICTED_S: Final = 10.0
# The maximum age of thresholds, which change only when a job is restarted.
THRESHOLDS_S: Final = 2.0
# The maximum age of lists of savepoints, for which every manifest is read.
LISTED_S: Final = 1.5
_ENTRIES_KEPT: Final = 512


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = 0.0
    value: Any = None
    version: Any = None
    known: bool = False


class TtlCache:
    """A thread-safe cache of values with a TTL.

    Failures are not cached: the next caller computes the value again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def get(
        self, key: Hashable, compute: Callable[[], T], fresh_s: float = FRESH_S, version: Any = None
    ) -> T:
        """Return the value of a key; compute it if it is older than `fresh_s` and its version differs."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > _ENTRIES_KEPT:
                self._entries.popitem(last=False)
        with entry.lock:
            age = time.monotonic() - entry.at
            same = version is not None and version == entry.version
            if not entry.known or not (same or age <= fresh_s):
                entry.value = compute()
                entry.at, entry.version, entry.known = time.monotonic(), version, True
            return cast("T", entry.value)


class _Version:
    """A cheap detector of changes in the registry.

    It uses SQLite's data version, which changes with the commits of other connections. The connection is
    closed when it is idle or when the file has been replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._opened = 0
        self._close: Callable[[], object] = lambda: None

    def now(self) -> tuple[int, int] | None:
        """Return a value that changes with the registry; None if it cannot be read."""
        with self._lock:
            try:
                found = self._path.stat()
                file = (found.st_dev, found.st_ino)
                if self._connection is None or file != self._file:
                    self._close()
                    self._connection = sqlite3.connect(self._path, timeout=1, check_same_thread=False)
                    self._close = weakref.finalize(self, self._connection.close)
                    self._file = file
                    self._opened += 1
                return self._opened, int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            except (OSError, sqlite3.Error):
                self._close()
                self._connection = None
                return None


class ControlPlane:
    """The jobs of one state home, with caches for a server.

    Args:
        home: The state home.
        settings: The server's settings.
        clock: The function that returns epoch milliseconds.
    """

    def __init__(self, home: StateHome, settings: ServerSettings, clock: Clock) -> None:
        self.home = home
        self.settings = settings
        self.clock = clock
        self.plain = PlainQueries(lambda: settings.checkpoints, home.path, clock)
        self.control = Control(home, clock, self.plain if settings.checkpoints else None)
        self.registry = Registry(home.registry)
        name_databases_of(str(home.path), self.registry.databases)
        self.operations = Operations(home)
        # The executor of operations also polls for requests; this only shortens the wait.
        self.told: set[str] = set()
        self.wake: Callable[[], None] = lambda: None
        self.cache = TtlCache()
        self._version = _Version(home.registry)
        self.started_ms = clock()

    def ask(
        self, verb: str, job: str | None, arguments: Arguments, operation_id: str | None = None
    ) -> Operation:
        """Record a request for an operation, which any server of the state home can execute.

        Args:
            verb: The verb of the operation.
            job: The job that the operation concerns; None for none.
            arguments: The arguments of the verb.
            operation_id: The id of the operation; a repeated request with the same id returns the same
                operation.

        Raises:
            Conflict: A different operation has this id.
        """
        operation_id = operation_id or os.urandom(16).hex()
        operation = self.operations.ask(operation_id, verb, job, arguments, self.clock())
        self.wake()
        return operation

    def operation(self, operation_id: str) -> Operation:
        """Return an operation; if it has ended, record that its result was read.

        Raises:
            NotFound: The operation is unknown.
        """
        operation = self.operations.get(operation_id)
        if operation.state.ended:
            self.told.add(operation_id)
        return operation

    def jobs(self) -> list[JobStatus]:
        """Return every job, the most recently started first."""
        return self.cache.get("jobs", self.control.jobs)

    def status(self, job: str) -> JobStatus:
        """Return a job by name or id.

        Raises:
            NotFound: The job does not exist.
        """
        for statuses in (self.jobs, self.control.jobs):  # it may just have been created
            for status in statuses():
                if job in (status.job.name, status.job.job_id):
                    return status
        self.registry.job(job)  # lists the existing jobs
        raise Internal(
            "a job appeared while the list of jobs was read",
            code="HF-E9039",
            hint="repeat the request",
            where=job,
        )

    def details(self, job: str, batches: int = 1000) -> JobDetails:
        """Return a job with its newest batches, by name or id.

        Raises:
            NotFound: The job does not exist.
        """
        return self._load_details(job, batches, lambda name: self.control.details(name, batches))

    def brief(self, job: str) -> JobDetails:
        """Return a job with the newest batch of each of its queries.

        Raises:
            NotFound: The job does not exist.
        """

        def look(name: str) -> JobDetails:
            plain = self.control.plain(name)
            newest = self.registry.newest_batches(name) if plain is None else plain[1].newest(plain[0])
            return replace(self.control.details(name, 0), batches=newest)

        return self._load_details(job, None, look)

    def reported(self, job: str, batches: int = 1000) -> JobDetails:
        """Return a job with the newest batches that its driver reported.

        Without a driver of Holdfast it has only the newest batch, for which no state is read.

        Raises:
            NotFound: The job does not exist.
        """
        of_job = self.status(job).job.kind is not JobKind.CHECKPOINT
        return self.details(job, batches) if of_job else self.brief(job)

    def _load_details(self, job: str, batches: int | None, look: Callable[[str], JobDetails]) -> JobDetails:
        """Return the details of a job, read again if the registry changed; its state is always current."""
        status = self.status(job)
        key = ("details", status.job.name, batches)
        # The registry does not change with the checkpoint of a query that is known from it alone.
        version = self._version.now() if status.job.kind is not JobKind.CHECKPOINT else None
        return replace(self.cache.get(key, lambda: look(status.job.name), version=version), status=status)

    def name(self, job: str | None) -> str | None:
        """Return the name of a job, by name or id; None for None.

        Raises:
            NotFound: The job does not exist.
        """
        return None if job is None else self.status(job).job.name

    def prediction(self, details: JobDetails) -> Prediction | None:
        """Predict the duration of the next recovery of a job from the files of its checkpoints.

        Raises:
            HoldfastError: The checkpoints cannot be read.
        """
        key = ("prediction", details.status.job.name)
        return self.cache.get(key, lambda: self.control.prediction(details), PREDICTED_S)

    def sizings(self, details: JobDetails) -> tuple[QuerySizing, ...]:
        """Return the sizing of a job's queries, from the batches in these details."""
        return sizings(details, self.home, self.clock())

    def lags(self, details: JobDetails) -> tuple[Lag, ...]:
        """Return the lag of a job's queries, from the batches in these details."""
        return job_lags(details, self.clock())

    def thresholds(self, details: JobDetails) -> Mapping[str, float]:
        """Return the alert thresholds of a job by rule, in the unit of the rule's metric."""
        name = details.status.job.name
        return self.cache.get(
            ("thresholds", name), lambda: job_thresholds(self.home, name, self.clock()), THRESHOLDS_S
        )

    def savepoints(self, catalog: str) -> tuple[Listed, ...]:
        """Return the savepoints of a catalog, oldest first.

        Raises:
            HoldfastError: The catalog cannot be read.
        """
        return self.cache.get(("savepoints", catalog), lambda: listed(catalog), LISTED_S)

    def query(self, details: JobDetails, name: str | None = None) -> QueryStarted:
        """Return a query of a job; the name may be None if the job has only one.

        Raises:
            NotFound: The query does not exist, or the job has several and no name was given.
        """
        names = ", ".join(query.name for query in details.queries) or "no started query"
        for query in details.queries:
            if query.name == name or (name is None and len(details.queries) == 1):
                return query
        job = details.status.job.name
        fact = (
            f"job {job!r} has no query {name!r}"
            if name
            else f"job {job!r} has several queries, and the request names none of them"
            if details.queries
            else f"job {job!r} has not started a query yet"
        )
        raise NotFound(
            fact,
            code="HF-E3056",
            where=job,
            found=names,
            hint="give the name of one of these queries"
            if details.queries
            else "repeat the request when the job runs a query",
        )

    def checkpoint(self, uri: str) -> CheckpointReport:
        """Read a query's checkpoint at its newest committed batch.

        Raises:
            NotFound: The checkpoint does not exist yet.
            Corrupt: The checkpoint is damaged.
        """
        return self.cache.get(("checkpoint", uri), lambda: read(open_checkpoint(uri)))

    def cost(self, details: JobDetails, uri: str) -> CostReport:
        """Return the cost of the state of one of a job's queries, by the default prices.

        Raises:
            NotFound: The checkpoint does not exist yet.
            Corrupt: The checkpoint is damaged.
            Unsupported: The state is in a database.
        """
        return self.cache.get(("cost", uri), lambda: job_cost(details, uri), SETTLED_S)

    def readable(self, uri: str) -> CheckpointReport | None:
        """Return a checkpoint; None if it does not exist yet or cannot be read."""
        try:
            return self.checkpoint(uri)
        except (NotFound, Corrupt, Unsupported):
            return None

    def stores(self, uri: str) -> list[Store]:
        """Return the stores of all operators of a checkpoint; empty if it cannot be read."""
        checkpoint = self.readable(uri)
        operators = () if checkpoint is None else checkpoint.operators
        return [store for operator in operators for store in operator.stores]

    def measured(
        self, details: JobDetails, query: QueryStarted, last: int
    ) -> list[tuple[CommittedBatch, int]]:
        """Return a query's newest batches with durations and failures, and the state size after each.

        Raises:
            NotFound: The checkpoint does not exist yet.
            Corrupt: The checkpoint is damaged.
        """
        heard = details.measured_of(query.name)
        told = measured_batches(self.batches(query.checkpoint, last), heard, details.attempts, query.name)
        sizes = self.sizes(query.checkpoint, tuple(batch.batch_id for batch in told))
        return [(batch, sum(sizes.get(batch.batch_id, {}).values())) for batch in told]

    def batches(self, uri: str, last: int) -> tuple[CommittedBatch, ...]:
        """Return the newest committed batches of a checkpoint with the files they added, oldest first.

        Raises:
            NotFound: The checkpoint does not exist yet.
            Corrupt: The checkpoint is damaged.
        """
        return self.cache.get(("batches", uri, last), lambda: history(open_checkpoint(uri), last))

    def sizes(self, uri: str, batches: tuple[int, ...]) -> dict[int, dict[int, int]]:
        """Return the size of the state in bytes after each of these batches, by batch and operator."""
        return self.cache.get(
            ("sizes", uri, batches), lambda: state_bytes(open_storage(uri), batches), SETTLED_S
        )
