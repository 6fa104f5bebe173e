"""The job on Bytewax, in two processes.

A source hands over a thousand events at once; the size of these portions decides Bytewax's speed. With
recovery, Bytewax snapshots its state every second; without it, no state survives the process.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from holdfast_bench.peers.stopwatch import Stopwatch, Task, batches_of, exceeds, in_processes, run_engine

_PORTION: Final = 1000
_EVERY: Final = timedelta(seconds=1)

Average = tuple[int, float]


class Half(StatefulSourcePartition[tuple[str, float], int]):
    """The events of one half of the users."""

    def __init__(self, task: Task, number: int, watch: Stopwatch) -> None:
        self._portions = self._read(task, number, watch)
        self._at = 0

    def next_batch(self) -> Any:
        """Return the next thousand events."""
        self._at += 1
        return next(self._portions)

    def snapshot(self) -> int:
        """Return the number of portions so far."""
        return self._at

    def _read(self, task: Task, number: int, watch: Stopwatch) -> Iterator[Any]:
        for at, path in enumerate(task.half(number)):
            if at == task.warm_files:
                watch.begin()
            table = pq.read_table(path)
            users = map(str, table["user"].to_pylist())
            yield from batches_of(list(zip(users, table["amount"].to_pylist(), strict=True)), _PORTION)


class Halves(FixedPartitionedSource[tuple[str, float], int]):
    """The source: two partitions."""

    def __init__(self, task: Task, watch: Stopwatch) -> None:
        self._task, self._watch = task, watch

    def list_parts(self) -> list[str]:
        """Return the names of the partitions."""
        return ["0", "1"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Half:  # noqa: ARG002
        """Open a partition."""
        return Half(self._task, int(for_part), self._watch)


class Counter(StatelessSinkPartition[Any]):
    """Counts the alerts of a worker."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch, self._alerts = watch, 0

    def write_batch(self, items: list[Any]) -> None:
        """Count."""
        self._alerts += len(items)

    def close(self) -> None:
        """Stop the clock: all events are through."""
        self._watch.end(self._alerts)


class Counters(DynamicSink[Any]):
    """The sink: one counter per worker."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counter:  # noqa: ARG002
        """Open the counter of a worker."""
        return Counter(self._watch)


def look(average: Average | None, amount: float) -> tuple[Average, list[Any]]:
    """Return the new average of a user, and an alert if one is due."""
    n, total = average or (0, 0.0)
    alerts = [(amount, total / n)] if exceeds(n, total, amount) else []
    return (n + 1, total + amount), alerts


def instance(addresses: list[str], task: Task, number: int, watch: Stopwatch) -> None:
    """Run one of the two processes to the end of the events."""
    flow = Dataflow("peers")
    events = op.input("events", flow, Halves(task, watch))
    op.output("alerts", op.stateful_flat_map("average", events, look), Counters(watch))
    store = Path(task.folder, "recovery")
    recovery = RecoveryConfig(store, timedelta(0)) if store.exists() else None
    cluster_main(flow, addresses, number, epoch_interval=_EVERY, recovery_config=recovery)


def run(task: Task) -> None:
    """Run both processes, with a recovery store if the side has one."""
    if task.side == "bytewax_recovery":
        store = Path(task.folder, "recovery")
        store.mkdir()
        init_db_dir(store, 2)
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
    in_processes(partial(instance, addresses), task, independent=False)


if __name__ == "__main__":
    run_engine(run)
