"""A real Kafka broker for the tests, ended by its process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from required import require

from holdfast_bench.latency.kafka_node import KafkaNode, connector

__all__ = ["Broker", "connector", "kafka_broker"]


class Broker(KafkaNode):
    """A broker whose topics tests name and measure."""

    def __init__(self, folder: Path) -> None:
        self._topics = count()
        super().__init__(folder)

    def topic(self) -> str:
        """The name of a topic that nobody else uses; it is made when something is written to it."""
        return f"topic-{next(self._topics)}"

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def size_of(self, topic: str) -> int:
        """How many bytes stand in a topic's partitions."""
        return sum(log.stat().st_size for log in (self.folder / "data").glob(f"{topic}-*/*.log"))


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole session."""
    require("kafka", "java")
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.stop()
