"""A real ZooKeeper for the tests, from PySpark's own jars: loopback, free port, ended by its pid."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from loopback import free_ports
from required import require

PATIENCE_S = 60
# Sessions live for 2 to 20 ticks.
TICK_MS = 250


class Server:
    """One ZooKeeper server; it keeps what it knows when it is killed and started again."""

    def __init__(self, java: str, jars: Path, directory: Path) -> None:
        self._java = java
        self._jars = jars
        self._directory = directory
        self.log = directory / "log"
        (self.port,) = free_ports(1)
        self.start()

    def address(self, path: str) -> str:
        """The address of a node, for `--ha`."""
        return f"zookeeper://127.0.0.1:{self.port}/{path}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "dataDir": self._directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "maxClientCnxns": 0,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._directory / "zoo.cfg").write_text(text)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [self._java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
        command += ["-cp", f"{self._jars}/*", main, str(self._directory / "zoo.cfg")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._directory, start_new_session=True
            )
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"ZooKeeper does not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
            line.sendall(b"ruok")
            return line.recv(8) == b"imok"
        return False


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole session; a test that kills it starts it again."""
    java = str(require("java"))
    import pyspark

    server = Server(java, Path(pyspark.__file__).parent / "jars", tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server
    finally:
        server.kill()
