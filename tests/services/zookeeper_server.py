"""A real ZooKeeper for the tests, from PySpark's own jars: loopback, free port, ended by its pid."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from loopback import free_ports
from required import require

PATIENCE_S = 60
# Sessions live for 2 to 20 ticks.
TICK_MS = 250


class Server:
    """One ZooKeeper server; it keeps what it knows when it is killed and started again.

    Args:
        java: The program.
        jars: The directory with ZooKeeper's jars.
        directory: Its own directory.
        ensemble: The settings that all servers of an ensemble share; empty for a server by itself.
    """

    def __init__(
        self, java: str, jars: Path, directory: Path, ensemble: Mapping[str, object] | None = None
    ) -> None:
        self._java = java
        self._jars = jars
        self._directory = directory
        self._ensemble = ensemble or {}
        self.log = directory / "log"
        (self.port,) = free_ports(1)
        self._launch()
        if ensemble is None:
            self.wait()

    def address(self, path: str) -> str:
        """The address of a node, for `--ha`."""
        return f"zookeeper://127.0.0.1:{self.port}/{path}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._launch()
        self.wait()

    def _launch(self) -> None:
        settings = {
            "dataDir": self._directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr",
            "maxClientCnxns": 0,
            **self._ensemble,
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

    def wait(self) -> None:
        """Wait until it answers, as a part of an ensemble that has a leader if it is one."""
        until = time.monotonic() + PATIENCE_S
        while not (self.mode() if self._ensemble else self._answers()):
            if self.process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"ZooKeeper does not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def mode(self) -> str:
        """Return what it is in its ensemble, `leader` or `follower`; empty until it is one of them."""
        told = self._ask(b"srvr").decode()
        return next((line.split()[1] for line in told.splitlines() if line.startswith("Mode: ")), "")

    def _answers(self) -> bool:
        return self._ask(b"ruok") == b"imok"

    def _ask(self, word: bytes) -> bytes:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
            line.sendall(word)
            return b"".join(iter(lambda: line.recv(1 << 16), b""))
        return b""


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole session; a test that kills it starts it again."""
    server = Server(*_java_and_jars(), tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def zookeeper_pair(directory: Path) -> Iterator[tuple[Server, Server]]:
    """The leader and the follower of an ensemble of two, neither of which is a quorum by itself."""
    java, jars = _java_and_jars()
    ports = free_ports(4)
    shared: dict[str, object] = {"initLimit": 400, "syncLimit": 400}  # in ticks, for a busy machine
    for number in (1, 2):
        shared[f"server.{number}"] = f"127.0.0.1:{ports[2 * number - 2]}:{ports[2 * number - 1]}"
        (directory / str(number) / "data").mkdir(parents=True)
        (directory / str(number) / "data" / "myid").write_text(str(number))
    servers = [Server(java, jars, directory / str(number), shared) for number in (1, 2)]
    try:
        for server in servers:
            server.wait()
        leader, follower = sorted(servers, key=Server.mode, reverse=True)
        assert (leader.mode(), follower.mode()) == ("leader", "follower")
        yield leader, follower
    finally:
        for server in servers:
            server.kill()


def _java_and_jars() -> tuple[str, Path]:
    java = str(require("java"))
    import pyspark

    return java, Path(pyspark.__file__).parent / "jars"
