"""The job on Quix Streams, in two processes: RocksDB with a changelog in Kafka, committed every second.

Each process reads a topic of its own with half the users, so that no rebalance falls into the measurement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.serialization import DoubleSerializer
from quixstreams import Application

from holdfast_bench.peers.stopwatch import Stopwatch, Task, exceeds, in_processes, run_engine


class Alerts:
    """Keeps the average of each user.

    Args:
        watch: The clock.
        warm_up: Events that are not counted.
    """

    def __init__(self, watch: Stopwatch, warm_up: int) -> None:
        self._watch, self._warm_up = watch, warm_up
        self._events = self.alerts = 0

    def look(self, amount: float, state: Any) -> None:
        """Take in one event."""
        self._events += 1
        if self._events == self._warm_up:
            self._watch.begin()
        n, total = state.get("average") or (0, 0.0)
        state.set("average", (n + 1, total + amount))
        if exceeds(n, total, amount):
            self.alerts += 1


def produce(task: Task) -> None:
    """Write the events to the topics."""
    producer = Producer({"bootstrap.servers": task.kafka, "linger.ms": 50})
    double = DoubleSerializer()
    for half in (0, 1):
        for path in task.half(half):
            table = pq.read_table(path)
            for user, amount in zip(table["user"].to_pylist(), table["amount"].to_pylist(), strict=True):
                producer.produce(_topic(half), double(amount), str(user), partition=0)
                producer.poll(0)
            producer.flush()


def instance(task: Task, number: int, watch: Stopwatch) -> None:
    """Process one half of the users to the end of its topic."""
    files = [pq.read_metadata(path).num_rows for path in task.half(number)]
    alerts = Alerts(watch, sum(files[: task.warm_files]))
    application = Application(
        task.kafka,
        consumer_group=f"peers-{number}",
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=Path(task.folder, f"state-{number}"),
        loglevel="WARNING",
    )
    topic = application.topic(_topic(number), key_deserializer="str", value_deserializer="double")
    application.dataframe(topic).update(alerts.look, stateful=True)
    application.run(count=sum(files))
    watch.end(alerts.alerts)


def run(task: Task) -> None:
    """Fill the topics, which is not measured, and process them."""
    produce(task)
    in_processes(instance, task, independent=True)


def _topic(half: int) -> str:
    return f"events-{half}"


if __name__ == "__main__":
    run_engine(run)
