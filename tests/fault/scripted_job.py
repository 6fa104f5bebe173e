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

from golden import golden_files, without_checksums
from holdfast.checkpoints.state.contents import contents
from holdfast.config.policies import no_restart
from holdfast.jobs.definition import strategy_fields
from holdfast.storage import open_storage
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
    """A scripted job over a real checkpoint, whose supervisor can be killed.

    Args:
        folder: A directory for the job.
        uri: The checkpoint on remote storage; by default it is in the directory.
    """

    def __init__(self, folder: Path, uri: str | None = None) -> None:
        self.served = Served(folder)
        self.home = self.served.home
        self.checkpoint = self.served.checkpoint(MEMORY)
        self.before = contents(LocalStorage(self.checkpoint))
        self.uri = uri or self.checkpoint.as_uri()
        if uri is not None:
            storage = open_storage(uri)
            for path, data in without_checksums(golden_files(MEMORY)).items():
                storage.write(path, data)
        self.script = folder / "job.json"
        definition = {
            "name": "shop",
            "checkpoint": self.uri,
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
                    "query_checkpoint": self.uri,
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
