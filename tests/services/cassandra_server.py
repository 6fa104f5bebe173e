"""A real Cassandra node for the tests, ended by its process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from named_servers import named
from required import require

from holdfast_bench.backends.cassandra_node import PATIENCE_S, CassandraNode

STORE_PASSWORD: Final = "of-the-file"
_NAMES: Final = "san=ip:127.0.0.1,dns:localhost"


class CassandraServer(CassandraNode):
    """A node that tests ask, freeze and kill."""

    @property
    def certificate(self) -> Path:
        """The certificate of one that speaks TLS."""
        return self.folder / "node.pem"

    @property
    def trust_store(self) -> Path:
        """A key store with that certificate."""
        return self.folder / "trust.p12"

    def ask(self, cql: str, user: str | None = None, password: str | None = None) -> list[Any]:
        """Give it a statement through Python's driver; returns the rows."""
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import Cluster

        login = PlainTextAuthProvider(user, password) if user else None
        cluster = Cluster(["127.0.0.1"], port=self.port, auth_provider=login, protocol_version=5)
        try:
            return list(cluster.connect().execute(cql))
        finally:
            cluster.shutdown()

    def wait_until_logged(self, text: str) -> None:
        """Wait until this is in its log."""
        until = time.monotonic() + PATIENCE_S
        while text not in (self.folder / "log").read_text():
            assert time.monotonic() < until, f"Cassandra has not logged: {text}"
            time.sleep(0.05)

    def freeze(self) -> None:
        """Let it answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it; nobody needs its data any more."""
        self.kill()


def started(settings: str = "", *, closed: bool = False) -> Iterator[CassandraServer]:
    """A server of its own, for one user.

    Args:
        settings: Further lines of its settings.
        closed: Whether it speaks TLS only and asks who comes.
    """
    require("cassandra", "cassandra-client", "cassandra-driver", "java")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cassandra-"))
    try:
        server = CassandraServer(folder, settings + (_closing(folder) if closed else ""))
        try:
            if closed:
                server.wait_until_logged("Created default superuser role 'cassandra'")
            with named("HOLDFAST_CASSANDRA_ADDRESS", server.port):
                yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cassandra_server() -> Iterator[CassandraServer]:
    """One server for all tests that do nothing to it."""
    yield from started()


@pytest.fixture(scope="session")
def own_cassandra() -> Iterator[CassandraServer]:
    """A server that tests may freeze and kill, if they leave it running: it takes seconds to start."""
    yield from started()


@pytest.fixture(scope="session")
def closed_cassandra() -> Iterator[CassandraServer]:
    """One server for all tests of who comes in: it speaks TLS, and knows the user cassandra."""
    yield from started(closed=True)


# A node of a ring waits this long for the others before it takes its part of the rows.
_OF_RING: Final = {"cassandra.ring_delay_ms": "5000", "cassandra.consistent.rangemovement": "false"}
_SMALL: Final = ("-Xms256m", "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@contextmanager
def cassandra_ring(folder: Path) -> Iterator[list[CassandraServer]]:
    """Three nodes of one cluster, at three addresses of loopback."""
    require("cassandra", "cassandra-client", "cassandra-driver", "java")
    nodes: list[CassandraServer] = []
    with ExitStack() as ends:
        for number in (1, 2, 3):
            home = folder / f"node-{number}"
            home.mkdir(parents=True)
            first = nodes[0] if nodes else None
            more = _OF_RING if nodes else {}
            host = f"127.0.0.{number}"
            nodes.append(CassandraServer(home, java=_SMALL, facts=more, host=host, seed=first))
            ends.callback(nodes[-1].stop)
        yield nodes


def _closing(folder: Path) -> str:
    """Make a certificate; returns the settings of a server that speaks TLS only and asks who comes."""
    keys, trust, certificate = folder / "keys.p12", folder / "trust.p12", folder / "node.pem"
    tool = ["keytool", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-alias", "node"]
    for words in (
        ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=node", "-ext", _NAMES, "-keystore", str(keys)],
        ["-exportcert", "-rfc", "-keystore", str(keys), "-file", str(certificate)],
        ["-importcert", "-noprompt", "-keystore", str(trust), "-file", str(certificate)],
    ):
        subprocess.run([*tool, *words], check=True, capture_output=True)
    tls = f"{{enabled: true, keystore: {keys}, keystore_password: {STORE_PASSWORD}, store_type: PKCS12}}"
    login = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n"
    return f"{login}client_encryption_options: {tls}\n"
