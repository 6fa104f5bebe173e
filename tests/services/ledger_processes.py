"""Ledgers for the tests, and other processes that write to them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.stream.sinks.databases.database import Database

WORKER = Path(__file__).with_name("ledger_worker.py")
WAIT_S = 60


class Worker:
    """A process that owns a sink; see ledger_worker.py."""

    def __init__(self, address: str, stop_at: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), address, stop_at],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """What it says next; empty once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def freeze(self) -> None:
        """Stop it in its tracks, as a long pause of its machine would."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on from where it was."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it with no chance to tidy up."""
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def start_worker() -> Iterator[Callable[[str, str], Worker]]:
    """Starts workers, and ends them with the test."""
    started: list[Worker] = []

    def start(address: str, stop_at: str) -> Worker:
        started.append(Worker(address, stop_at))
        return started[-1]

    yield start
    for each in started:
        if each.process.stdout is not None and not each.process.stdout.closed:
            each.kill()


# A parameter for each kind of ledger.
LEDGERS = ["sqlite", *(pytest.param(server, marks=pytest.mark.services) for server in ("postgres", "mysql"))]


def stages(connection: Any, database: Database, begin: str = "holdfast_stage_") -> list[str]:
    """The tables of a database whose names begin so, as those of attempts do."""
    listed = connection.execute(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = {database.own_schema}"
    )
    return sorted(name for (name,) in listed.fetchall() if name.startswith(begin))


@pytest.fixture
def ledger_address(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes the address of a new ledger: in "sqlite", "postgres" or "mysql"."""

    def make(database: str) -> str:
        if database in ("postgres", "mysql"):
            server: Any = request.getfixturevalue(f"{database}_server")
            return str(server.database())
        directory: Path = request.getfixturevalue("tmp_path")
        return f"sqlite:///{directory}/ledger.db"

    return make
