"""The job on csp, in two processes of half the users each; state is in memory only, without recovery."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import csp
import pyarrow.parquet as pq
from csp import ts
from csp.adapters.parquet import ParquetReader

from holdfast_bench.peers.stopwatch import Stopwatch, Task, exceeds, in_processes, run_engine


@csp.node  # noqa: RET503 - a node that returns nothing puts out nothing
def find_alerts(user: ts[int], amount: ts[float], warm_up: int, watch: Stopwatch) -> ts[float]:
    """Put out the amounts that are alerts."""
    with csp.state():
        s_averages: dict[int, Any] = {}
        s_events = 0
        s_alerts = 0

    with csp.stop():
        watch.end(s_alerts)

    if csp.ticked(user, amount):
        s_events += 1
        if s_events == warm_up:
            watch.begin()
        n, total = s_averages.get(user, (0, 0.0))
        s_averages[user] = (n + 1, total + amount)
        if exceeds(n, total, amount):
            s_alerts += 1
            return amount


@csp.graph
def job(files: list[str], warm_up: int, watch: Stopwatch) -> None:
    """Connect the files of events with the node."""
    reader = ParquetReader(files, time_column="at")
    user, amount = reader.subscribe_all(int, "user"), reader.subscribe_all(float, "amount")
    csp.add_graph_output("alerts", find_alerts(user, amount, warm_up, watch), tick_count=1)


def instance(task: Task, number: int, watch: Stopwatch) -> None:
    """Run one half of the users to the end of the events."""
    files = task.half(number)
    warm_up = sum(pq.read_metadata(path).num_rows for path in files[: task.warm_files])
    begin, end = datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2027, 1, 1, tzinfo=timezone.utc)
    csp.run(job, [str(path) for path in files], warm_up, watch, starttime=begin, endtime=end)


def run(task: Task) -> None:
    """Run both halves."""
    in_processes(instance, task, independent=True)


if __name__ == "__main__":
    run_engine(run)
