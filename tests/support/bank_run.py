"""The bank as a running job with two queries and two sinks: its transfers, its supervisor and its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bank_audit import Town, files_read, newest_commit
from bank_auditor import Auditor, EventLog
from command import PROGRAM
from loopback import free_ports
from process_table import in_group, working_in
from running_job import JOBS, RunningJob

QUERIES: Final = ("accounts", "volume")
# The number of files that the feeder keeps ahead of the slower query.
AHEAD: Final = 5
CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
}
_VERB_S: Final = 600
# About twice what was measured. A leak crosses them within hours; the small disk bounds the files.
LIMITS: Final = {
    "supervisor MB": 150,
    "supervisor descriptors": 40,
    "driver MB": 2000,
    "driver descriptors": 1500,
}


class BankRun:
    """The job, what it reads and writes, and who looks at it.

    Args:
        folder: A new directory.
        seed: The seed of the transfers and of the auditor.
        log: Takes a line for all that happens.
        disk: The directory of checkpoints, sinks and savepoints; it may be a small disk.
    """

    def __init__(self, folder: Path, seed: int, log: EventLog, disk: Path) -> None:
        self.folder, self.seed, self.log, self.disk = folder, seed, log, disk
        self.town = Town(seed)
        self.written = 0
        self.out, self.home = disk / "out", folder / "home"
        self.catalog = disk / "savepoints"
        self.program = folder / "bank.py"
        self.program.write_text((JOBS / "bank.py").read_text())
        self.out.mkdir()
        # How often the code was changed by an upgrade.
        self.version = 1
        self.port = 0
        self.job: RunningJob | None = None
        self.samples: list[dict[str, float]] = []
        self.auditor = Auditor(self.town, self.accounts, self.out, seed, log, self.keep_evidence)
        self._fed = threading.Event()
        self._pause = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    # The job.

    def running(self) -> RunningJob:
        """The job, which runs."""
        assert self.job is not None
        return self.job

    def make(self, *options: str, home: str = "home", **environ: str) -> RunningJob:
        """Start a supervisor."""
        (self.port,) = free_ports(1)
        settings = {"checkpoint.storage": str(self.disk / "checkpoint"), "given": str(self.folder / "in")}
        with _environment(environ):
            return RunningJob(
                self.program,
                self.folder,
                home=self.folder / home,
                settings={**settings, "out": str(self.out)},
                conf=CONF,
                port=self.port,
                options=["--on-damage", "batch", "--savepoint-dir", str(self.catalog), *options],
            )

    def start(self, *options: str) -> None:
        """Start the job."""
        self.job = self.make(*options)

    def stop(self) -> None:
        """Stop the job between two batches."""
        job = self.running()
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
        self.job = None
        assert ended.code == 0, f"the job ended with {ended.code}: {ended.words[-3000:]}"

    def driver(self) -> int:
        """The newest driver that runs the queries."""
        return int([each for each in self.running().events if each.get("event") == "starting"][-1]["pid"])

    def verb(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run a command of Holdfast; what it printed as JSON."""
        said = subprocess.run(
            [PROGRAM, *words, "--json", "--home", str(self.home)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_VERB_S,
            check=False,
        )
        assert said.returncode == code, f"{words} ended with {said.returncode}: {said.stdout}{said.stderr}"
        return dict(json.loads(said.stdout)) if said.stdout else {}

    def end(self) -> None:
        """End all processes of the run."""
        self._fed.set()
        if self.job is not None:
            self.log.line(events=self.job.events[-40:], words=self.job.words[-3000:])
            self.job.close()
        for pid in working_in(self.folder):
            if pid != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # What is read, and how far.

    @property
    def accounts(self) -> Path:
        """The checkpoint with the money."""
        return self.checkpoint("accounts")

    def checkpoint(self, query: str) -> Path:
        """The checkpoint of a query."""
        return self.disk / "checkpoint" / query

    def read(self, query: str = "accounts") -> int:
        """The number of files that the committed batches have read."""
        checkpoint = self.checkpoint(query)
        with suppress(OSError, IndexError, ValueError):
            newest = newest_commit(checkpoint)
            return files_read(checkpoint, newest) if newest >= 0 else 0
        return 0

    def go_on(self, files: int = 1) -> None:
        """Wait until both queries have committed new files."""
        wanted = {query: self.read(query) + files for query in QUERIES}
        self.until(
            lambda: all(self.read(query) >= wanted[query] for query in QUERIES),
            f"batches are committed up to {wanted}",
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds while the job runs and the auditor has found nothing."""

        def reached() -> bool:
            # Each look reads logs of Spark, on cores that the job needs.
            self._pause.wait(0.2)
            self.auditor.check()
            return condition()

        self.running().until(reached, what)

    def begin_feeding(self) -> None:
        """Let transfers come, as fast as both queries read them."""
        self._feeder.start()

    def end_feeding(self) -> None:
        """Let no more transfers come."""
        self._fed.set()
        self._feeder.join()

    def _feed(self) -> None:
        while not self._fed.wait(0.3):
            if self.written - min(self.read(query) for query in QUERIES) < AHEAD:
                self.town.write(self.folder / "in", self.written)
                self.written += 1

    # What is kept of it.

    def keep_evidence(self) -> None:
        """Copy the checkpoints and sinks as they are."""
        kept = self.folder / f"failed-{int(time.monotonic() - self.log.begun)}"
        for name in ("checkpoint", "out"):
            # Files of a running job come and go.
            with suppress(shutil.Error, OSError):
                shutil.copytree(self.disk / name, kept / name, dirs_exist_ok=True)

    def sample(self) -> None:
        """Measure memory, descriptors, files and bytes; what has a limit is below it."""
        found: dict[str, float] = {"at": round(time.monotonic() - self.log.begun, 1)}
        found["supervisor MB"], found["supervisor descriptors"] = _measured([self.running().pid])
        group = [each.pid for each in in_group(self.driver())]
        found["driver MB"], found["driver descriptors"] = _measured(group)
        for name, place in (
            ("accounts", self.accounts),
            ("volume", self.checkpoint("volume")),
            ("home", self.home),
            ("catalog", self.catalog),
        ):
            sizes = list(_sizes_below(place))
            found[f"{name} files"], found[f"{name} MB"] = len(sizes), round(sum(sizes) / 1e6, 2)
        found["disk MB"] = round(shutil.disk_usage(self.disk).used / 1e6, 1)
        found["files read"] = self.read()
        self.samples.append(found)
        self.log.line(sample=found)
        above = {name: found[name] for name, limit in LIMITS.items() if found[name] > limit}
        assert not above, f"above their limits: {above}"


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _measured(pids: list[int]) -> tuple[float, int]:
    """Memory in MB and open descriptors of some processes."""
    pages, descriptors = 0, 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1), descriptors


def _sizes_below(place: Path) -> Iterator[int]:
    """The sizes of the files below a directory in use."""
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield (Path(folder) / name).stat().st_size
