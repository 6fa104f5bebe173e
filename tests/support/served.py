"""A control plane to ask in tests: a state home with jobs of known past, over real checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastapi import FastAPI

from golden import golden_on_disk
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import BatchProgress, Failure, JobState, OperatorProgress, QueryStarted, SavepointNote
from holdfast.server.app import app
from holdfast.server.control_plane import ControlPlane
from holdfast.server.server_settings import ServerSettings

__all__ = ["AGGREGATE", "NOW_MS", "SHOP", "TILL", "Served", "TestClient", "batch"]

with warnings.catch_warnings():
    # It would rather have another client, which is not needed for anything that it does here.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

NOW_MS = 1_772_700_100_000
SHOP, TILL = job_id("shop"), job_id("till")
# RocksDB with changelogs: an aggregate over two partitions.
AGGREGATE = "4.2/aggregate-changelog"


def batch(number: int, query: str = "visits", *, rows: int = 10, took_ms: int = 50) -> BatchProgress:
    """A batch a second, the newest a second ago."""
    operator = OperatorProgress("stateStoreSave", 100 + number, 5, 1, 2, 10_000, 7, 2)
    ended = NOW_MS - 60_000 + number * 1000
    return BatchProgress(query, number, ended, rows, took_ms, None, (operator,))


@dataclass
class Served:
    """A state home, and the control plane over it.

    Attributes:
        folder: Where everything of the test is.
        settings: How the control plane is reached; by default requests may name what is beside checkpoints.
    """

    folder: Path
    settings: ServerSettings = field(default_factory=ServerSettings)
    _apps: dict[tuple[ServerSettings, int], FastAPI] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.settings.roots:
            self.settings = replace(self.settings, roots=(f"file://{self.folder / 'checkpoints'}",))
        self.home = StateHome(self.folder / "home")
        self.home.path.mkdir(parents=True, exist_ok=True)
        self.registry = Registry(self.home.registry)

    def client(self, *, now_ms: int = NOW_MS) -> TestClient:
        """Asks as somebody on this machine does."""
        made = self._app(now_ms)
        return TestClient(made, base_url="http://127.0.0.1:8081", raise_server_exceptions=False)

    def _app(self, now_ms: int) -> FastAPI:
        """A control plane that has looked at nothing yet.

        To make one takes longer than most requests, so it is made once, as long as nobody logs in there.
        """
        if self.settings.token is not None or self.settings.login_code is not None:
            return app(self.home.path, self.settings, lambda: now_ms)
        key = (self.settings, now_ms)
        if key not in self._apps:
            self._apps[key] = app(self.home.path, self.settings, lambda: now_ms)
        plane = self._apps[key].state.plane
        vars(plane).update(vars(ControlPlane(self.home, self.settings, lambda: now_ms)))
        return self._apps[key]

    def clients(self, *addresses: str) -> list[TestClient]:
        """Ask one server from several addresses."""
        made = app(self.home.path, self.settings, lambda: NOW_MS)
        return [TestClient(made, base_url="http://127.0.0.1:8081", client=(each, 4242)) for each in addresses]

    def checkpoint(self, name: str = AGGREGATE) -> Path:
        """A real checkpoint of a query that stands still."""
        return golden_on_disk(name, self.folder / "checkpoints" / name.rpartition("/")[2])

    def job(
        self,
        name: str = "shop",
        *,
        checkpoint: Path | None = None,
        state: JobState = JobState.RUNNING,
        queries: tuple[str, ...] = ("visits",),
        batches: int = 3,
    ) -> JobRecord:
        """A job with a failed driver in its past and a running one."""
        place = f"file://{checkpoint or self.folder / 'checkpoints' / name}"
        began = NOW_MS - 90_000
        ended = NOW_MS - 10_000 if state.terminal else None
        record = JobRecord(
            name, job_id(name), "shop.py", place, "retain", state, None, began, NOW_MS - 1000, ended, 4242
        )
        self.registry.start_job(record)
        first = self.registry.start_attempt(name, 4243, began + 1000, recovers=False)
        failure = Failure("query", "ZeroDivisionError", "division by zero", queries[0], "Traceback …")
        self.registry.end_attempt(name, first, "failed", failure, began + 5000)
        second = self.registry.start_attempt(name, 4244, began + 6000, recovers=True)
        started = [
            QueryStarted(
                query,
                f"0000000{index}-0000-4000-8000-000000000000",
                "run",
                place if len(queries) == 1 else f"{place}/{query}",
                "none: it is a test",
            )
            for index, query in enumerate(queries)
        ]
        self.registry.queries_started(name, second, started, began + 8000)
        for query in queries:
            for number in range(batches):
                self.registry.add_batch(name, second, batch(number, query))
        self.registry.set_state(name, state, NOW_MS - 1000)
        return record

    def savepoint(self, uri: str, batch_id: int, query: str = "visits", job: str = "shop") -> None:
        """A savepoint that the job's supervisor has taken."""
        note = SavepointNote(query, NOW_MS - 500, 40, uri, batch_id, 2000, 300, None)
        self.registry.add_savepoint(job, note)

    @contextmanager
    def supervised(self, job: str = "shop") -> Iterator[None]:
        """Hold the job's lock, as its supervisor does."""
        lock = SupervisorLock(self.home, job)
        assert lock.take()
        try:
            yield
        finally:
            lock.release()
