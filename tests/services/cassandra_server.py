"""A real Cassandra node for the tests: private directories, loopback, free ports, ended by its process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from loopback import free_ports, listens

SERVICES: Final = Path(__file__).parents[2] / ".services"
JARS: Final = SERVICES / "cassandra"
CLIENT: Final = SERVICES / "state-clients" / "cassandra"
PATIENCE_S: Final = 120
STORE_PASSWORD: Final = "of-the-file"
_NAMES: Final = "san=ip:127.0.0.1,dns:localhost"
# What Cassandra's own start script opens of Java 17.
_OPENED: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.logging/java.util.logging",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.management/com.sun.management.internal",
)
_LOGGING: Final = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{HH:mm:ss} %logger{20} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


class CassandraServer:
    """A node that has every write on disk before it answers, so that killing it loses nothing.

    Args:
        folder: Where it keeps its data.
        settings: Further lines of its settings.
    """

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder = folder
        self.port, storage = free_ports(2)
        (folder / "cassandra.yaml").write_text(self._settings(storage) + settings)
        (folder / "logback.xml").write_text(_LOGGING)
        self.start()

    @property
    def address(self) -> str:
        """As `hf.Cassandra` takes it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port and the data that it has had."""
        opened = [word for each in _OPENED for word in ("--add-opens", f"{each}=ALL-UNNAMED")]
        opened += [word for each in _OPENED for word in ("--add-exports", f"{each}=ALL-UNNAMED")]
        facts = {
            "cassandra-foreground": "yes",
            "cassandra.config": f"file://{self.folder}/cassandra.yaml",
            "cassandra.storagedir": str(self.folder),
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.ring_delay_ms": "100",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "io.netty.tryReflectionSetAccessible": "true",
            "java.io.tmpdir": str(self.folder),
            "jdk.attach.allowAttachSelf": "true",
            "logback.configurationFile": str(self.folder / "logback.xml"),
        }
        command = ["java", "-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *opened]
        command += [f"-D{name}={value}" for name, value in facts.items()]
        command += ["-cp", f"{JARS}/*", "org.apache.cassandra.service.CassandraDaemon"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        if not listens(self.process, self.port, PATIENCE_S):
            self.process.kill()
            pytest.fail(f"Cassandra does not start:\n{(self.folder / 'log').read_text()[-5000:]}")

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
        """End it; nobody needs its data any more."""
        self.kill()

    def _settings(self, storage: int) -> str:
        folders = {
            "commitlog_directory": "commitlog",
            "saved_caches_directory": "saved_caches",
            "hints_directory": "hints",
            "cdc_raw_directory": "cdc_raw",
        }
        lines = [
            "cluster_name: tests",
            "num_tokens: 1",
            "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
            "commitlog_sync: batch",
            f"data_file_directories: [{self.folder}/data]",
            *(f"{name}: {self.folder}/{place}" for name, place in folders.items()),
            "endpoint_snitch: SimpleSnitch",
            "seed_provider:",
            "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
            f'    parameters: [{{seeds: "127.0.0.1:{storage}"}}]',
            "listen_address: 127.0.0.1",
            f"storage_port: {storage}",
            "rpc_address: 127.0.0.1",
            f"native_transport_port: {self.port}",
            "",
        ]
        return "\n".join(lines)


def started(settings: str = "") -> Iterator[CassandraServer]:
    """A server of its own, for one user."""
    if not (JARS / ".ready").exists() or not CLIENT.is_dir():
        pytest.skip("Cassandra is not there; `make services-cassandra` fetches it")
    if shutil.which("java") is None:
        pytest.skip("Cassandra needs Java")
    pytest.importorskip("cassandra", reason="comes with the extra cassandra")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cassandra-"))
    try:
        server = CassandraServer(folder, settings)
        try:
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


@dataclass(frozen=True)
class ClosedCassandra:
    """A server that speaks TLS only and asks who comes: `cassandra`, with that as the password.

    Attributes:
        server: The server.
        trust_store: A key store with its certificate, for Java.
        certificate: The certificate as PEM.
    """

    server: CassandraServer
    trust_store: Path
    certificate: Path


@pytest.fixture
def closed_cassandra(tmp_path: Path) -> Iterator[ClosedCassandra]:
    """A server of a test's own that lets nobody in without a password and its certificate."""
    keys, trust, certificate = tmp_path / "keys.p12", tmp_path / "trust.p12", tmp_path / "node.pem"
    if shutil.which("keytool") is None:
        pytest.skip("Java's keytool is not there")
    tool = ["keytool", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-alias", "node"]
    for words in (
        ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=node", "-ext", _NAMES, "-keystore", str(keys)],
        ["-exportcert", "-rfc", "-keystore", str(keys), "-file", str(certificate)],
        ["-importcert", "-noprompt", "-keystore", str(trust), "-file", str(certificate)],
    ):
        subprocess.run([*tool, *words], check=True, capture_output=True)
    tls = f"{{enabled: true, keystore: {keys}, keystore_password: {STORE_PASSWORD}, store_type: PKCS12}}"
    login = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n"
    for server in started(f"{login}client_encryption_options: {tls}\n"):
        server.wait_until_logged("Created default superuser role 'cassandra'")
        yield ClosedCassandra(server, trust, certificate)
