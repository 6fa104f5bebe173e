"""A real Redis for the tests: private directory, loopback, free port, ended by its process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from loopback import free_ports
from named_servers import named
from required import require

PATIENCE_S: Final = 60
CLIENT: Final = Path(__file__).parents[2] / ".services" / "state-clients" / "redis"


class RedisServer:
    """A server that notes every write on disk before it answers, so that killing it loses nothing.

    Args:
        folder: Where it keeps its data.
        settings: Further arguments of the program.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._settings = settings
        (self.port,) = free_ports(1)
        self.start()

    @property
    def address(self) -> str:
        """As `hf.Redis` takes it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port and the data that it has had."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always", *self._settings]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(["redis-server", *words], stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < until:
            if self.ask("PING", check=False).strip() in ("PONG", "NOAUTH Authentication required."):
                return
            time.sleep(0.02)
        pytest.fail(f"Redis does not start:\n{(self.folder / 'log').read_text()}")

    def ask(self, *words: str, check: bool = True) -> str:
        """Give it a command, with its own client; returns what that prints."""
        done = subprocess.run(
            ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), *words],
            capture_output=True,
            text=True,
            check=check,
        )
        return done.stdout

    def kill(self) -> None:
        """End it as a power failure does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def freeze(self) -> None:
        """Let it answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        self.thaw()
        self.process.terminate()
        self.process.wait(PATIENCE_S)


def started(*settings: str) -> Iterator[RedisServer]:
    """A server of its own, for one user."""
    require("redis", "redis-client")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
    try:
        server = RedisServer(folder, *settings)
        try:
            with named("HOLDFAST_REDIS_ADDRESS", server.port):
                yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests that do nothing to it."""
    yield from started()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may kill, freeze or fill."""
    yield from started()
