"""The job on PyFlink in thread mode, with two parallel instances and state on the heap, which is its fastest.

One side has no checkpoints, one a checkpoint every second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

from holdfast_bench.peers.stopwatch import Stopwatch, Task, exceeds, run_engine

_INSTANCES = 2


class Alerts(KeyedProcessFunction):
    """Keeps the average of each user.

    Args:
        task: The run, as plain values.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task

    def open(self, context: RuntimeContext) -> None:
        """Get the state."""
        task = Task(**self._task)
        average = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        self._average = context.get_state(ValueStateDescriptor("average", average))
        self._watch = Stopwatch(task)
        self._warm_up = task.warm_up // _INSTANCES
        self._events = self._alerts = 0

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002
        """Take in one event."""
        self._events += 1
        if self._events == self._warm_up:
            self._watch.begin()
        user, amount = value[0], value[1]
        n, total = self._average.value() or (0, 0.0)
        self._average.update((n + 1, total + amount))
        if exceeds(n, total, amount):
            self._alerts += 1
            yield Row(user, amount, total / n)

    def close(self) -> None:
        """Stop the clock."""
        self._watch.end(self._alerts)


def run(task: Task) -> None:
    """Run the job in a JVM of this process, to the end of the events."""
    settings = Configuration()
    settings.set_string("python.execution-mode", "thread")
    settings.set_string("python.executable", sys.executable)
    if task.side == "pyflink_checkpoints":
        settings.set_string("execution.checkpointing.interval", "1s")
        settings.set_string("execution.checkpointing.dir", Path(task.folder, "checkpoints").as_uri())
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(_INSTANCES)
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        "CREATE TABLE events (`user` BIGINT, amount DOUBLE) WITH ("
        f"'connector' = 'filesystem', 'path' = '{Path(task.events, 'csv').as_uri()}', 'format' = 'csv')"
    )
    tables.execute_sql(
        "CREATE TABLE alerts (`user` BIGINT, amount DOUBLE, average DOUBLE) WITH ('connector' = 'blackhole')"
    )
    events = tables.to_data_stream(tables.from_path("events"))
    row = Types.ROW_NAMED(["user", "amount", "average"], [Types.LONG(), Types.DOUBLE(), Types.DOUBLE()])
    keyed = events.key_by(lambda event: event[0], key_type=Types.LONG())
    alerts = keyed.process(Alerts(asdict(task)), output_type=row)
    tables.from_data_stream(alerts).execute_insert("alerts").wait()


if __name__ == "__main__":
    run_engine(run)
