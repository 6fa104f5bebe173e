"""A driver without Spark: it speaks the supervisor's protocol and does what a script file says.

The script is JSON: `definition` (fields of the job), maybe `query_checkpoint`, and `attempts`, a list of
steps for each attempt in turn (the last one serves all further attempts). Steps: `batch`, `caution TEXT`,
`fail LINE`, `refuse`, `finish`, `exit CODE`, `die` (SIGKILL to itself), `wait` (till told to stop), `hang`
(for ever), `busy`, `line TEXT` (sends it as it is), `work` (batches through a ledger till told to stop,
holding the checkpoint as a JVM does).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

from holdfast.errors import Invalid
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.protocol import (
    BatchCommitted,
    Build,
    Built,
    Busy,
    Caution,
    Channel,
    DriverStopped,
    Finished,
    Go,
    JobDefined,
    JobFailed,
    Lead,
    QueriesStarted,
    Refused,
    Stop,
    Warm,
    Warmed,
)
from holdfast.model import BatchProgress, Failure, QueryStarted
from holdfast.ownership.checkpoint_lock import Owner, lock_path, outlived
from holdfast.ownership.watchdog import LeaseWatchdog
from holdfast.stream.sinks.ledger import Ledger


class FakeDriver:
    def __init__(self, spec: DriverSpec, channel: Channel) -> None:
        self.spec = spec
        self.channel = channel
        self.script = json.loads(Path(spec.target).read_text())
        self.told = threading.Event()
        self.stop = threading.Event()
        self.watchdog = LeaseWatchdog()
        self.go = Go(log=None, restore=False, repeat={}, term=None, election="", machine="")
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for message in self.channel.messages():
            if isinstance(message, Lead):
                self.watchdog.hold(message.until_s)
            elif isinstance(message, Go):
                self.go = message
                self.told.set()
            elif isinstance(message, Build):
                self.channel.send(Built(self.script.get("unbuildable")))
            elif isinstance(message, Warm):
                if "unfit" in self.script:
                    self.channel.send(Refused(Invalid(self.script["unfit"], code="HF-E0000")))
                    os._exit(2)
                Path(message.log).touch()
                self.channel.send(Warmed(took_ms=1500, memory_bytes=1 << 20, batches=3))
            else:
                assert isinstance(message, Stop), message
                self.stop.set()
        self.stop.set()
        self.told.set()

    def run(self) -> int:
        self.channel.send(JobDefined(**self.script["definition"]))
        self.told.wait()
        if self.stop.is_set():
            self.channel.send(DriverStopped())
            return 0
        steps = self.steps()
        place = self.script.get("query_checkpoint", "c")
        started = QueryStarted("q", "id", "run", place, "none: x")
        self.channel.send(QueriesStarted((started,), ("redis://of-the-job:6379/0",)))
        for step in steps:
            code = self.take(step)
            if code is not None:
                return code
        return 0

    def steps(self) -> list[str]:
        counter = Path(self.spec.target).with_suffix(".count")
        number = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(number + 1))
        attempts: list[list[str]] = self.script["attempts"]
        return attempts[min(number, len(attempts) - 1)]

    def take(self, step: str) -> int | None:
        verb, _, rest = step.partition(" ")
        if verb == "batch":
            self.channel.send(BatchCommitted(self.batch()))
        elif verb == "busy":
            self.channel.send(Busy("q", busy=True))
        elif verb == "caution":
            self.channel.send(Caution("q", rest))
        elif verb == "fail":
            self.channel.send(JobFailed(Failure("query", "Error", rest, query="q")))
            return 1
        elif verb == "finish":
            self.channel.send(Finished())
            return 0
        elif verb == "line":
            os.write(self.channel.fileno(), rest.encode() + b"\n")
        elif verb == "exit":
            return int(rest)
        elif verb == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "wait":
            self.stop.wait()
            self.channel.send(DriverStopped())
            Path(self.spec.target).with_suffix(".stopped").touch()
            return 0
        elif verb == "work":
            self.work()
            self.channel.send(DriverStopped())
            return 0
        elif verb == "hang":
            threading.Event().wait()
        return None

    def work(self) -> None:
        """Write one row a batch, with its number, and note it as committed in the checkpoint after that."""
        checkpoint = Path(self.spec.target).parent / "checkpoint"
        commits = checkpoint / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text('{"id":"00000000-0000-4000-8000-000000000001"}')
        self.hold(checkpoint)
        ledger = Ledger.sqlite(checkpoint.with_name("results.db"), patience_s=10)
        token = ledger.claim("sink", f"pid {os.getpid()}", term=self.go.term)
        while not self.stop.wait(0.02):
            number = len([each for each in commits.iterdir() if each.name.isdigit()])
            with ledger.transaction("sink", "query", number, token) as transaction:
                if transaction is not None:
                    transaction.execute("CREATE TABLE IF NOT EXISTS results (batch INTEGER)")
                    transaction.execute("INSERT INTO results VALUES (?)", (number,))
            # As Spark does: a kill leaves no commit that is cut short.
            written = commits / f".{number}.tmp"
            written.write_text(str(self.go.term))
            written.replace(commits / str(number))
            self.channel.send(BatchCommitted(replace(self.batch(), batch_id=number)))

    def hold(self, checkpoint: Path) -> None:
        """Take the checkpoint's lock for good, by the rules of the JVM's."""
        path = lock_path(checkpoint.as_uri(), Path(self.spec.home))
        owner = Owner(
            "job", self.spec.home, os.getpid(), self.go.term or 0, self.go.election, self.go.machine
        )
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = os.pread(self.descriptor, 10_000, 0)
        former = Owner(**json.loads(text)) if text else None
        if former is not None and owner.is_older_than(former):
            raise outlived(path, owner, former)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, json.dumps(asdict(owner)).encode(), 0)

    def batch(self) -> BatchProgress:
        place = Path(self.spec.target).with_suffix(".batches")
        number = len(place.read_text()) if place.exists() else 0
        place.write_text("x" * (number + 1))
        return BatchProgress(
            query="q",
            batch_id=number,
            committed_ms=1000 + number,
            input_rows=10,
            duration_ms=5,
            watermark=None,
            operators=(),
        )


if __name__ == "__main__":
    sys.exit(FakeDriver(DriverSpec.inherited(), Channel.inherited()).run())
