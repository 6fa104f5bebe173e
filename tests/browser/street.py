"""A street of shops for the browser: many jobs with a past, one with a real checkpoint and savepoints."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from golden import golden_on_disk
from holdfast.checkpoints.checkpoint import read
from holdfast.jobs.recovery import RecoveryTimes
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import BatchProgress, Failure, JobState, OperatorProgress, QueryStarted, SavepointNote
from holdfast.observe.alerting import Alert, AlertEvent, AlertStore
from holdfast.savepoints import take
from holdfast.server.process.listening import listen
from holdfast.server.process.serving import Serving
from holdfast.server.server_settings import ServerSettings
from holdfast.storage import open_storage

NAMES = (
    "coffee-shop", "orders-enriched", "clickstream", "fraud-scores", "sessions", "payments", "inventory",
    "loyalty",
)  # fmt: skip
STATES = {3: JobState.FAILED, 5: JobState.RESTARTING, 6: JobState.FINISHED}
ORPHAN = "sessions"
EVERY_MS = 2000
PHASES_MS = {
    "detect": 400,
    "pause": 1200,
    "verify": 300,
    "start": 4400,
    "load": 900,
    "replay": 2100,
    "commit": 100,
}
FAULT = 'Traceback (most recent call last):\n  File "shop.py", line 12\nZeroDivisionError: division by zero'


class Street:
    """A state home with many jobs.

    Args:
        folder: Where everything is put.
        jobs: How many.
        batches: How many batches each has committed.
    """

    def __init__(self, folder: Path, jobs: int, batches: int) -> None:
        self.folder = folder
        self.home = StateHome(folder / "home")
        self.home.path.mkdir(parents=True)
        self.registry = Registry(self.home.registry)
        self.now_ms = int(time.time() * 1000)
        self.batches = batches
        checkpoint = golden_on_disk("4.2/aggregate-changelog", folder / "checkpoints" / NAMES[0])
        found = read(open_storage(str(checkpoint)))
        self._chance = random.Random(5)
        # A few jobs have the same past: to write one down takes a second.
        self._pasts = [[(each, json.dumps(asdict(each))) for each in self._past()] for _ in range(5)]
        self.names = [
            f"{NAMES[number % len(NAMES)]}{f'-{number // len(NAMES) + 1}' if number >= len(NAMES) else ''}"
            for number in range(jobs)
        ]
        for number, name in enumerate(self.names):
            self._job(number, name, found.query_id)
        self._savepoints(checkpoint, found.committed)
        self._alerts()

    @contextmanager
    def open(self, token: str | None = None) -> Iterator[str]:
        """Serve it; its jobs have supervisors, but for one."""
        settings = ServerSettings(port=0, token=token, roots=(f"file://{self.folder}",))
        with ExitStack() as held:
            for each in self.registry.jobs():
                if not each.state.terminal and each.name != ORPHAN:
                    lock = SupervisorLock(self.home, each.name)
                    assert lock.take()
                    held.callback(lock.release)
            serving = Serving(self.home.path, settings, listen(settings))
            serving.start()
            held.callback(serving.close)
            yield serving.url

    def _job(self, number: int, name: str, query_id: str) -> None:
        state = STATES.get(number, JobState.RUNNING)
        began = self.now_ms - self.batches * EVERY_MS - 60_000
        uri = f"file://{self.folder / 'checkpoints' / name}"
        self.registry.start_job(
            JobRecord(
                name,
                job_id(name),
                f"jobs/{name}.py",
                uri,
                "retain",
                state,
                None,
                began,
                self.now_ms,
                None,
                42,
            )
        )
        started = QueryStarted("visits", query_id, "r", uri, "exactly once: a ledger in the same transaction")
        attempt = self.registry.start_attempt(name, 43, began, recovers=False)
        self.registry.queries_started(name, attempt, [started], began + 4000)
        if number % 4 == 0:
            failed = self.now_ms - self.batches * EVERY_MS // 2
            failure = Failure("query", "ZeroDivisionError", "division by zero", "visits", FAULT)
            self.registry.end_attempt(name, attempt, "failed", failure, failed - 9000)
            attempt = self.registry.start_attempt(name, 44, failed - 7800, recovers=True)
            self.registry.queries_started(name, attempt, [started], failed - 3100)
            cause = f"user code: {failure}"
            self.registry.add_recovery(name, RecoveryTimes(attempt, failed - 9400, cause, PHASES_MS))
        *past, newest = self._pasts[number % len(self._pasts)]
        rows = [(name, "visits", each.batch_id, attempt, written) for each, written in past]
        with closing(sqlite3.connect(self.home.registry)) as db, db:
            db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", rows)
        self.registry.add_batch(name, attempt, newest[0])
        self.registry.set_state(name, state, self.now_ms)
        if state is JobState.FAILED:
            gone = Failure("query", "FileNotFoundException", "s3a://shop/events/0007.json", "visits", "…")
            self.registry.end_attempt(name, attempt, "failed", gone, self.now_ms - 30_000)

    def _past(self) -> Iterator[BatchProgress]:
        usual = self._chance.randint(50, 900)
        for batch in range(self.batches):
            rows = int(1200 * (1.4 + math.sin(batch / 60))) + self._chance.randint(0, 300)
            slow = usual * 3 if self._chance.random() < 0.012 else 0
            took = int(usual * (1 + 0.35 * math.sin(batch / 25))) + self._chance.randint(0, usual // 2) + slow
            at_ms = self.now_ms - (self.batches - batch) * EVERY_MS
            mark = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at_ms / 1000 - 75))
            yield BatchProgress("visits", batch, at_ms, rows, took, mark, _operators(batch, rows))

    def _savepoints(self, checkpoint: Path, committed: tuple[int, ...]) -> None:
        for batch, label in zip(committed[-3:], ("nightly", "before the upgrade", None), strict=True):
            made = take(checkpoint, self.folder / "savepoints", batch=batch, label=label)
            size, new = made.manifest.size_bytes, made.manifest.new_bytes
            note = SavepointNote("visits", self.now_ms - 5000, 40, made.uri, batch, size, new, None)
            self.registry.add_savepoint(NAMES[0], note)

    def _alerts(self) -> None:
        began = self.now_ms - 240_000
        slow = Alert("checkpoint_duration", (NAMES[0], "visits"), "firing", began, None, 75.0, 60.0)
        away = Alert("job_failed", (NAMES[3],), "firing", self.now_ms - 30_000, None, 1.0, 0.0)
        stuck = Alert("watermark_stuck", (NAMES[0], "visits"), "firing", began - 900_000, None, 840.0, 600.0)
        told = [
            AlertEvent("firing", began - 900_000, stuck),
            AlertEvent("cleared", began - 300_000, stuck),
            AlertEvent("firing", began, slow),
        ]
        diary = AlertStore(self.home.path)
        for alert, events in ((slow, told), (away, [AlertEvent("firing", self.now_ms - 30_000, away)])):
            standing = {alert.key: alert}
            diary.save(alert.job, self.now_ms, samples=[], totals={}, standing=standing, events=events)


def _operators(batch: int, rows: int) -> tuple[OperatorProgress, ...]:
    counted = {
        "rocksdbSstFileSize": 9_000_000 + batch * 9500,
        "rocksdbGetCount": rows,
        "rocksdbPutCount": rows,
        "rocksdbGetLatency": rows // 20 + 1,
        "rocksdbPutLatency": 2,
        "rocksdbReadBlockCacheHitCount": rows * 9,
        "rocksdbReadBlockCacheMissCount": rows // 4,
    }
    kept = 20_000 + batch * 37
    seen = 3000 + int(200 * math.sin(batch / 15))
    return (
        OperatorProgress(
            "stateStoreSave", kept, rows // 3, rows // 5, batch % 40 // 39, 6_000_000, 40, 16, counted
        ),
        OperatorProgress("dedupeWithinWatermark", seen, rows // 6, rows // 6, 0, 1_200_000, 12, 16),
    )
