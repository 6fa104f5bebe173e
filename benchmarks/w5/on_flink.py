"""Run the job on PyFlink in thread mode: python on_flink.py FOLDER [BATCHES]

Two parallel instances, state on the heap and no checkpoints: the fastest that Flink offers. The figure is
all events by the time from the first to the last that the function saw. BATCHES is how many events there
are, in hundred thousands (12 by default).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment


class Alerts(KeyedProcessFunction):
    def __init__(self, notes: str) -> None:
        self._notes = notes

    def open(self, context: RuntimeContext) -> None:
        kind = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        self._seen = context.get_state(ValueStateDescriptor("seen", kind))
        self._part = uuid.uuid4().hex
        self._first = self._last = 0.0
        self._events = self._alerts = 0

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002
        user, amount = value[0], value[1]
        n, total = self._seen.value() or (0, 0.0)
        self._seen.update((n + 1, total + amount))
        self._events += 1
        if self._events == 1:
            self._first = time.time()
        if n and amount * n > 3 * total:
            self._alerts += 1
            yield Row(user, amount, total / n)

    def close(self) -> None:
        note = [self._first, time.time(), self._events, self._alerts]
        Path(self._notes, self._part).write_text(json.dumps(note))


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    notes = tempfile.mkdtemp(prefix="w5-")
    settings = Configuration()
    settings.set_string("python.execution-mode", "thread")
    settings.set_string("python.executable", sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(2)
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        "CREATE TABLE events (`user` BIGINT, amount DOUBLE) WITH ("
        f"'connector' = 'filesystem', 'path' = 'file://{folder}/csv', 'format' = 'csv')"
    )
    tables.execute_sql(
        "CREATE TABLE alerts (`user` BIGINT, amount DOUBLE, average DOUBLE) WITH ('connector' = 'blackhole')"
    )
    events = tables.to_data_stream(tables.from_path("events"))
    kind = Types.ROW_NAMED(["user", "amount", "average"], [Types.LONG(), Types.DOUBLE(), Types.DOUBLE()])
    found = events.key_by(lambda row: row[0], key_type=Types.LONG()).process(Alerts(notes), output_type=kind)
    tables.from_data_stream(found).execute_insert("alerts").wait()
    parts = [json.loads(each.read_text()) for each in Path(notes).iterdir()]
    count = sum(each[2] for each in parts)
    took = max(each[1] for each in parts) - min(each[0] for each in parts)
    result = {
        "engine": "pyflink, thread mode",
        "events_per_s": round(count / took),
        "events": count,
        "alerts": sum(each[3] for each in parts),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
