"""A real Kafka broker for the tests: one node, loopback, free ports, ended by its pid."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from loopback import free_ports, listens
from required import require

HOME = Path(__file__).parents[2] / ".services" / "kafka"
PATIENCE_S = 120
# What Spark's connector consists of; Spark has the rest of what it needs.
_CONNECTOR = ("spark-*.jar", "kafka-clients-*.jar", "commons-pool2-*.jar")
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


class Broker:
    """A running broker, which is its own controller."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._topics = count()
        port, control = free_ports(2)
        self.address = f"127.0.0.1:{port}"
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
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        formatting = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings)]
        assert self._java(*formatting).wait(PATIENCE_S) == 0, self._log()
        self._process = self._java("kafka.Kafka", str(self._settings))
        if not listens(self._process, port, PATIENCE_S):
            self.stop()
            pytest.fail(f"Kafka does not start:\n{self._log()}")

    def topic(self) -> str:
        """The name of a topic that nobody else uses; it is made when something is written to it."""
        return f"topic-{next(self._topics)}"

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def size_of(self, topic: str) -> int:
        """How many bytes stand in a topic's partitions."""
        return sum(log.stat().st_size for log in (self._folder / "data").glob(f"{topic}-*/*.log"))

    def stop(self) -> None:
        """End the broker."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def _java(self, *words: str) -> subprocess.Popen[bytes]:
        command = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{HOME}/broker/*", *words]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, start_new_session=True)

    def _log(self) -> str:
        return (self._folder / "log").read_text()[-3000:]


def connector() -> str:
    """The jars of Spark's connector, as `spark.jars` takes them."""
    return ",".join(str(jar) for pattern in _CONNECTOR for jar in sorted((HOME / "spark").glob(pattern)))


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole session."""
    require("kafka", "java")
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.stop()
