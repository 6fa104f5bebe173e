"""`holdfast run` as a process of its own: what it says, what it starts, and what it writes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command import PROGRAM
from process_table import in_group
from small_session import small_driver, small_session

from holdfast.storage import open_storage

JOBS = Path(__file__).parent / "jobs"

CONF = small_session()
LOCAL = "local[2]"

# Long enough for a machine that does other things too; nothing waits for it to pass.
PATIENCE_S = 400.0
LOOK_S = 0.002

Event = dict[str, Any]


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it never came to this: {what}")
        time.sleep(LOOK_S)


def freeze(group: int) -> None:
    """Stop a group of processes, and return when none of them runs any more."""
    os.killpg(group, signal.SIGSTOP)
    until(lambda: all(each.state == "T" for each in in_group(group)), "the group stands still")


def kill_at(driver: int, reached: Callable[[], bool], what: str) -> None:
    """Kill a driver and all of its group at a point; all stands still while it is looked at again."""
    while True:
        until(reached, what)
        freeze(driver)
        if reached():
            return os.killpg(driver, signal.SIGKILL)
        os.killpg(driver, signal.SIGCONT)


@contextmanager
def commit_held_up(database: Path) -> Iterator[None]:
    """Let nobody commit to an SQLite file: it cannot be done while somebody reads."""
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM holdfast_batches").fetchall()
        yield


def transaction_open(database: Path) -> bool:
    """Whether somebody has written to an SQLite file and not committed."""
    return database.with_name(database.name + "-journal").exists()


@dataclass(frozen=True, slots=True)
class QueryLogs:
    """The offset log and the commit log of a query's checkpoint, as they are now; a URI is elsewhere."""

    path: Path | str

    @property
    def offsets(self) -> set[int]:
        """The batches that were begun."""
        return self._numbers("offsets")

    @property
    def commits(self) -> set[int]:
        """The batches that were ended."""
        return self._numbers("commits")

    @property
    def newest(self) -> int:
        """The newest batch that was begun, -1 before the first."""
        return max(self.offsets, default=-1)

    @property
    def uncommitted(self) -> bool:
        """Whether the newest batch was begun and not ended."""
        newest = self.newest
        return newest >= 0 and newest not in self.commits

    def _numbers(self, folder: str) -> set[int]:
        return {int(name) for name in open_storage(self.path).list(folder).names if name.isdigit()}


@dataclass(frozen=True, slots=True)
class BatchLogs(QueryLogs):
    """Those of a checkpoint on a local disk."""

    path: Path


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    code: int
    events: list[Event]
    words: str

    @property
    def text(self) -> str:
        """The words without the line breaks, which depend on the length of paths."""
        return " ".join(self.words.split())

    @property
    def kinds(self) -> list[str]:
        """The events' kinds in order; an error's is `error`."""
        return [kind(event) for event in self.events]

    def only(self, wanted: str) -> Event:
        """The one event of a kind."""
        (found,) = [event for event in self.events if kind(event) == wanted]
        return found


def kind(event: Event) -> str:
    """What an event is about. The last line of a run that failed is the error alone."""
    return str(event["event"]) if "event" in event else "error"


class RunningJob:
    """One `holdfast run`. Its events come in on a thread; whoever waits for one sees it at once."""

    def __init__(
        self,
        target: Path | str,
        folder: Path,
        *,
        home: Path,
        settings: Mapping[str, str],
        conf: Mapping[str, str],
        savepoints: Mapping[str, str] | None = None,
        port: int | None = None,
        master: str = LOCAL,
        options: Sequence[str] = (),
    ) -> None:
        command = [PROGRAM, "run", str(target), "--master", master, "--home", str(home), "--json"]
        command += options
        command += ["--no-rest"] if port is None else ["--port", str(port)]
        for query, savepoint in (savepoints or {}).items():
            command += ["-s", f"{query}={savepoint}"]
        # On a cluster the number of partitions is what a test looks at.
        small = CONF if master == LOCAL else small_driver()
        for flag, pairs in (("--set", settings), ("--conf", {**small, **conf})):
            for key, value in pairs.items():
                command += [flag, f"{key}={value}"]
        self._process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._news = threading.Condition()
        self._events: list[Event] = []
        self._words = ""
        self._silent = 0
        self._readers = [
            threading.Thread(target=reader, daemon=True) for reader in (self._listen, self._overhear)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The supervisor."""
        return self._process.pid

    @property
    def events(self) -> list[Event]:
        """What it has said so far."""
        with self._news:
            return list(self._events)

    @property
    def words(self) -> str:
        """What it has written to standard error so far."""
        return self._words

    def await_event(self, wanted: str, count: int = 1) -> Event:
        """Wait for the `count`-th event of a kind."""
        deadline = time.monotonic() + PATIENCE_S
        with self._news:
            while len(found := [event for event in self._events if kind(event) == wanted]) < count:
                left = deadline - time.monotonic()
                if left <= 0 or self._silent:
                    raise AssertionError(f"no event {wanted} number {count} in {self._events}\n{self._words}")
                self._news.wait(left)
            return found[count - 1]

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait until something holds while it runs."""

        def reached() -> bool:
            if condition():
                return True
            assert self._process.poll() is None, f"it ended before this: {what}\n{self.events}\n{self._words}"
            return False

        until(reached, what, seconds)

    def driver(self, number: int = 1) -> int:
        """Wait for the `number`-th driver; its process id is also that of its group."""
        return int(self.await_event("starting", number)["pid"])

    def ended(self) -> Ended:
        """Wait for its end."""
        try:
            code = self._process.wait(PATIENCE_S)
        finally:
            self.close()
        return Ended(code, self.events, self._words)

    def kill(self) -> None:
        """SIGKILL for the supervisor alone."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End what is left of it, drivers included."""
        if self._process.poll() is None:
            self.kill()
        for event in self.events:
            if kind(event) == "starting":
                with suppress(ProcessLookupError):
                    os.killpg(int(event["pid"]), signal.SIGKILL)
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._events.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._silent += 1
            self._news.notify_all()

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._words += line


@contextmanager
def running(
    target: Path | str,
    folder: Path,
    *,
    home: Path | None = None,
    settings: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    savepoints: Mapping[str, str] | None = None,
    port: int | None = None,
    master: str = LOCAL,
    options: Sequence[str] = (),
) -> Iterator[RunningJob]:
    """Start `holdfast run` in a folder, serving on a port if one is named; nothing outlives the block."""
    job = RunningJob(
        target,
        folder,
        home=home or folder / "home",
        settings=settings or {},
        conf=conf or {},
        savepoints=savepoints,
        port=port,
        master=master,
        options=options,
    )
    try:
        yield job
    except BaseException:
        sys.stderr.write("\n".join(["the job said:", *map(str, job.events), job._words]))
        raise
    finally:
        job.close()
