"""The job on Pathway, in two processes of half the users each, with persistence of the input.

Pathway's reducer keeps the number of alerts in the state of a user; it puts out no stream of alerts. It
persists the input and replays it at a restart: persistence of operators' state needs a license key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pathway as pw

from holdfast_bench.peers.stopwatch import Stopwatch, Task, exceeds, in_processes, run_engine

State = tuple[int, float, int]


class Event(pw.Schema):
    """One event; `at` is its position."""

    user: int
    amount: float
    at: int


@pw.reducers.stateful_many
def average(state: State | None, rows: list[tuple[list[Any], int]]) -> State:
    """Take in the events of a user that Pathway received together."""
    n, total, alerts = state or (0, 0.0, 0)
    for _, amount in sorted(row for row, _ in rows):
        alerts += exceeds(n, total, amount)
        n, total = n + 1, total + amount
    return n, total, alerts


class Sums:
    """Follows the sums over all users, one row per time of Pathway."""

    def __init__(self, watch: Stopwatch, warm_up: int) -> None:
        self.watch, self._warm_up = watch, warm_up
        self._skipped = 0
        self.events = self.alerts = 0

    def change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG002
        """Take in a change of the sums."""
        if not is_addition:
            return
        self.events, self.alerts = row["events"], row["alerts"]
        if self.events >= self._warm_up and not self._skipped:
            self._skipped = self.events
            self.watch.begin()

    @property
    def counted(self) -> int:
        """The events since the clock began."""
        return self.events - self._skipped


def instance(task: Task, number: int, watch: Stopwatch) -> None:
    """Run one half of the users to the end of the events."""
    sums = Sums(watch, task.warm_up // 2)
    events = pw.io.csv.read(
        f"{task.events}/rows/{number}", schema=Event, mode="static", max_backlog_size=task.rows // 2
    )
    states = events.groupby(events.user).reduce(state=average(events.at, events.amount))
    state = pw.declare_type(State, states.state)
    parts = states.select(n=state[0], alerts=state[2])
    totals = parts.reduce(events=pw.reducers.sum(parts.n), alerts=pw.reducers.sum(parts.alerts))
    pw.io.subscribe(totals, on_change=sums.change)
    store = pw.persistence.Backend.filesystem(Path(task.folder, f"store-{number}"))
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(store, snapshot_interval_ms=1000),
    )
    sums.watch.end(sums.alerts, sums.counted)


def run(task: Task) -> None:
    """Run both halves."""
    in_processes(instance, task, independent=True)


if __name__ == "__main__":
    run_engine(run)
