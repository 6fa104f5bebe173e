"""A control plane as a process of its own, and a job whose supervisor is one, over a real checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command import PROGRAM
from served import Served

from holdfast.checkpoints.state.contents import contents
from holdfast.config.policies import no_restart
from holdfast.jobs.definition import strategy_fields
from holdfast.storage.local import LocalStorage

MEMORY = "4.2/join-memory"
SCRIPT = Path(__file__).with_name("supervised_script.py")


@contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`holdfast serve` on a free port; nothing of it outlives the block."""
    process = subprocess.Popen(
        [PROGRAM, "serve", "--port", "0", "--home", str(home), "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.stderr.read() if process.stderr else ""
        yield process, json.loads(first)["url"]
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


class Scripted:
    """A scripted job over a real checkpoint, whose supervisor can be killed."""

    def __init__(self, folder: Path) -> None:
        self.served = Served(folder)
        self.home = self.served.home
        self.checkpoint = self.served.checkpoint(MEMORY)
        self.before = contents(LocalStorage(self.checkpoint))
        self.script = folder / "job.json"
        definition = {
            "name": "shop",
            "checkpoint": self.checkpoint.as_uri(),
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "record": False,
            "restart": strategy_fields(no_restart()),
        }
        attempts = [["wait"]]
        self.script.write_text(
            json.dumps(
                {
                    "definition": definition,
                    "attempts": attempts,
                    "query_checkpoint": self.checkpoint.as_uri(),
                }
            )
        )

    @contextmanager
    def supervised(self) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.home.path), str(self.script)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == "running":
                    break
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
