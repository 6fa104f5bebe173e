"""A driver without Spark: it speaks the supervisor's protocol and does what a script file says.

The script is JSON: `definition` (fields of the job), maybe `query_checkpoint`, and `attempts`, a list of
steps for each attempt in turn (the last one serves all further attempts). Steps: `batch`, `caution TEXT`,
`fail LINE`, `refuse`, `finish`, `exit CODE`, `die` (SIGKILL to itself), `wait` (till told to stop), `hang`
(for ever), `busy`, `work` (batches through a ledger till told to stop, holding the checkpoint as a JVM does).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.engine.state.ownership import Owner, lock_path, outlived
from holdfast.jobs.processes.channel import Channel
from holdfast.jobs.processes.driver import ENVIRONMENT, DriverSpec
from holdfast.jobs.processes.lease_watchdog import LeaseWatchdog
from holdfast.stream.sinks.ledger import Ledger


class FakeDriver:
    def __init__(self, spec: DriverSpec, channel: Channel) -> None:
        self.spec = spec
        self.channel = channel
        self.script = json.loads(Path(spec.target).read_text())
        self.go = threading.Event()
        self.stop = threading.Event()
        self.leash = LeaseWatchdog()
        self.term: int | None = None
        self.election = ""
        self.machine = ""
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for message in self.channel.messages():
            if message["kind"] == "lead":
                self.leash.hold(message["until_s"])
            else:
                if message["kind"] == "go":
                    self.term = message["term"]
                    self.election, self.machine = message["election"], message["machine"]
                {"go": self.go, "stop": self.stop}[message["kind"]].set()
        self.stop.set()
        self.go.set()

    def run(self) -> int:
        steps = self.steps()
        self.channel.send("defined", **self.script["definition"])
        self.go.wait()
        place = self.script.get("query_checkpoint", "c")
        queries = [
            {"name": "q", "query_id": "id", "run_id": "run", "checkpoint": place, "promise": "none: x"}
        ]
        self.channel.send("started", queries=queries)
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
            self.channel.send("batch", batch=self.batch())
        elif verb == "busy":
            self.channel.send("busy", query="q", busy=True)
        elif verb == "caution":
            self.channel.send("caution", query="q", text=rest)
        elif verb == "fail":
            failure = {"label": "query", "error_class": "Error", "line": rest, "query": "q", "detail": ""}
            self.channel.send("failed", failure=failure)
            return 1
        elif verb == "finish":
            self.channel.send("finished")
            return 0
        elif verb == "exit":
            return int(rest)
        elif verb == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "wait":
            self.stop.wait()
            self.channel.send("stopped")
            Path(self.spec.target).with_suffix(".stopped").touch()
            return 0
        elif verb == "work":
            self.work()
            self.channel.send("stopped")
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
        token = ledger.claim("sink", f"pid {os.getpid()}", term=self.term)
        while not self.stop.wait(0.02):
            number = len([each for each in commits.iterdir() if each.name.isdigit()])
            with ledger.transaction("sink", "query", number, token) as transaction:
                if transaction is not None:
                    transaction.execute("CREATE TABLE IF NOT EXISTS results (batch INTEGER)")
                    transaction.execute("INSERT INTO results VALUES (?)", (number,))
            (commits / str(number)).write_text(str(self.term))
            self.channel.send("batch", batch={**self.batch(), "batch_id": number})

    def hold(self, checkpoint: Path) -> None:
        """Take the checkpoint's lock for good, by the rules of the JVM's."""
        path = lock_path(checkpoint.as_uri(), Path(self.spec.home))
        owner = Owner("job", self.spec.home, os.getpid(), self.term or 0, self.election, self.machine)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = os.pread(self.descriptor, 10_000, 0)
        former = Owner(**json.loads(text)) if text else None
        if former is not None and owner.is_older_than(former):
            raise outlived(path, owner, former)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, json.dumps(asdict(owner)).encode(), 0)

    def batch(self) -> dict[str, Any]:
        place = Path(self.spec.target).with_suffix(".batches")
        number = len(place.read_text()) if place.exists() else 0
        place.write_text("x" * (number + 1))
        return {
            "query": "q",
            "batch_id": number,
            "committed_ms": 1000 + number,
            "input_rows": 10,
            "duration_ms": 5,
            "watermark": None,
            "operators": [],
        }


if __name__ == "__main__":
    sys.exit(FakeDriver(DriverSpec.from_text(os.environ[ENVIRONMENT]), Channel.inherited()).run())
