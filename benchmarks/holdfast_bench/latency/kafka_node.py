"""A Kafka broker as a process of this machine: one node, loopback, free ports."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import Failed, NotFound

HOME: Final = Path(__file__).parents[3] / ".services" / "kafka"
PATIENCE_S: Final = 120
# What Spark's connector consists of; Spark has the rest of what it needs.
_CONNECTOR: Final = ("spark-*.jar", "kafka-clients-*.jar", "commons-pool2-*.jar")
SMALL: Final = ("-Xmx384m", "-XX:TieredStopAtLevel=1")
_CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"


class KafkaNode:
    """A running broker, which is its own controller and creates a topic at its first record.

    Args:
        folder: The directory for its data and its log.
        java: Options of its JVM; few resources by default.

    Raises:
        Failed: The broker does not start.
    """

    def __init__(self, folder: Path, java: Sequence[str] = SMALL) -> None:
        self.folder = folder
        self._options = java
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port, control = one.getsockname()[1], other.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "num.partitions": "2",
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        formatting = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(file))
        if formatting.wait(PATIENCE_S) != 0:
            raise self._failure()
        self.process = self._java("kafka.Kafka", str(file))
        until = time.monotonic() + PATIENCE_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise self._failure()
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill the broker."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def _java(self, *words: str) -> subprocess.Popen[bytes]:
        command = ["java", *self._options, "-cp", f"{HOME}/broker/*", *words]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _failure(self) -> Failed:
        return Failed("Kafka does not start", found=(self.folder / "log").read_text()[-3000:])


def connector() -> str:
    """Return the jars of Spark's connector, as `spark.jars` takes them."""
    return ",".join(str(jar) for pattern in _CONNECTOR for jar in sorted((HOME / "spark").glob(pattern)))


@contextmanager
def kafka_node(java: Sequence[str] = SMALL) -> Iterator[KafkaNode]:
    """Run a broker; its data is deleted afterwards.

    Args:
        java: Options of its JVM; few resources by default.

    Raises:
        NotFound: Kafka is not installed.
        Failed: The broker does not start.
    """
    if not (HOME / ".ready").exists():
        raise NotFound("Kafka is not installed", expected=str(HOME), hint="run `make services-kafka`")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-kafka-") as folder:
        node = KafkaNode(Path(folder), java)
        try:
            yield node
        finally:
            node.stop()
