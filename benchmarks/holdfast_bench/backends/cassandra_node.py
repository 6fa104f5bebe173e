"""A Cassandra node as a process of this machine: private directories, loopback, free ports."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import Failed

JARS: Final = Path(__file__).parents[3] / ".services" / "cassandra"
PATIENCE_S: Final = 120
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


def flushed_bytes(folder: Path, jmx: int, keyspace: str) -> int:
    """What a keyspace of a node takes on disk, once all of it is there.

    Raises:
        Failed: The node does not do it.
    """
    place = folder / "data" / keyspace
    if not place.exists():
        return 0
    tool = ["java", *_opened(), "-cp", f"{JARS}/*", "org.apache.cassandra.tools.NodeTool", "-p", str(jmx)]
    done = subprocess.run([*tool, "flush", keyspace], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise Failed("Cassandra does not write its tables to disk", found=done.stderr[-2000:])
    return sum(each.stat().st_size for each in place.rglob("*") if each.is_file())


def _opened() -> list[str]:
    return [f"{option}={each}=ALL-UNNAMED" for option in ("--add-opens", "--add-exports") for each in _OPENED]


class CassandraNode:
    """A node.

    Args:
        folder: Where it keeps its data.
        settings: Further lines of its settings.
        commit_log: When writes are on disk; by default before they are answered: a kill loses nothing.
        java: Options of its JVM; few resources by default.
        facts: Further properties of its JVM.
        host: Its address on loopback.
        seed: A node whose cluster it joins; nodes of a cluster have the same ports and different hosts.

    Raises:
        Failed: It does not start.
    """

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        commit_log: Sequence[str] = ("commitlog_sync: batch",),
        java: Sequence[str] = ("-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        facts: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        seed: CassandraNode | None = None,
    ) -> None:
        self.folder = folder
        self.host = host
        self._java = java
        self._facts = facts or {}
        if seed is None:
            with socket.socket() as one, socket.socket() as other:
                one.bind((host, 0))
                other.bind((host, 0))
                self.port, self.storage = one.getsockname()[1], other.getsockname()[1]
        else:
            self.port, self.storage = seed.port, seed.storage
        first = host if seed is None else seed.host
        (folder / "cassandra.yaml").write_text(self._settings(first, commit_log) + settings)
        (folder / "logback.xml").write_text(_LOGGING)
        self.start()

    @property
    def address(self) -> str:
        """As `hf.Cassandra` takes it."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start it, on the port and the data that it has had.

        Raises:
            Failed: It does not start.
        """
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
            **self._facts,
        }
        command = ["java", *self._java, *_opened()]
        command += [f"-D{name}={value}" for name, value in facts.items()]
        command += ["-cp", f"{JARS}/*", "org.apache.cassandra.service.CassandraDaemon"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)  # noqa: S603
        until = time.monotonic() + PATIENCE_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise Failed("Cassandra does not start", found=(self.folder / "log").read_text()[-5000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power failure does."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
            return True
        return False

    def _settings(self, seed: str, commit_log: Sequence[str]) -> str:
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
            *commit_log,
            f"data_file_directories: [{self.folder}/data]",
            *(f"{name}: {self.folder}/{place}" for name, place in folders.items()),
            "endpoint_snitch: SimpleSnitch",
            "seed_provider:",
            "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
            f'    parameters: [{{seeds: "{seed}:{self.storage}"}}]',
            f"listen_address: {self.host}",
            f"storage_port: {self.storage}",
            f"rpc_address: {self.host}",
            f"native_transport_port: {self.port}",
            "",
        ]
        return "\n".join(lines)
