"""The job in Python: a count and a sum per user, in each way that Spark and Holdfast offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import holdfast as hf
from holdfast_bench.peers.stopwatch import exceeds

OUTPUT: Final = "user long, amount double, average double"
STATE: Final = "n long, total double"


class RawAlerts(StatefulProcessor):
    """`transformWithState`, row by row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._average = handle.getValueState("average", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002 - Spark's names
        """Take in one user's events."""
        n, total = self._average.get() or (0, 0.0)
        for row in rows:
            if exceeds(n, total, row.amount):
                yield Row(user=key[0], amount=row.amount, average=total / n)
            n += 1
            total += row.amount
        self._average.update((n, total))

    def close(self) -> None:
        """Nothing to close."""


class PandasAlerts(StatefulProcessor):
    """`transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._average = handle.getValueState("average", STATE)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803, ARG002
    ) -> Iterator[pd.DataFrame]:
        """Take in one user's events."""
        n, total, alerts = look(key, rows, self._average.get() or (0, 0.0))
        self._average.update((n, total))
        yield from alerts

    def close(self) -> None:
        """Nothing to close."""


def apply_in_pandas(key: Any, rows: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Take in one user's events with `applyInPandasWithState`."""
    n, total, alerts = look(key, rows, state.get if state.exists else (0, 0.0))
    state.update((n, total))
    yield from alerts


def look(
    key: Any, rows: Iterator[pd.DataFrame], average: tuple[int, float]
) -> tuple[int, float, list[pd.DataFrame]]:
    """Return the new count and sum of a user, and the alerts as at most one frame.

    A loop over a list is faster than pandas for the few events that a user has in a batch.
    """
    n, total = average
    alerts = []
    for frame in rows:
        for amount in frame["amount"].tolist():
            if exceeds(n, total, amount):
                alerts.append((key[0], amount, total / n))
            n += 1
            total += amount
    return n, total, [pd.DataFrame(alerts, columns=["user", "amount", "average"])] if alerts else []


class EventAlerts(hf.Keyed):
    """Holdfast, event by event."""

    n = hf.value("long", default=0)
    total = hf.value("double", default=0.0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:  # noqa: ARG002 - not needed here
        """Take in one event."""
        n, total, amount = state.n, state.total, event.amount
        state.n = n + 1
        state.total = total + amount
        if n and amount * n > 3 * total:
            return event.user, amount, total / n
        return None


class BatchAlerts(hf.KeyedTable):
    """Holdfast, a table of many users' events at a time."""

    n = hf.value("long", default=0)
    total = hf.value("double", default=0.0)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        """Take in the events of many users."""
        # The events by user, those of one user in their order.
        order = np.argsort(state.position, kind="stable")
        user, amounts = state.position[order], events["amount"].to_numpy()[order]
        counts = state.counts()
        first = np.cumsum(counts) - counts
        before = np.cumsum(amounts) - amounts
        n = state.n.get()[user] + np.arange(len(user)) - first[user]
        total = state.total.get()[user] + before - before[first][user]
        state.n += counts
        state.total += state.sums("amount")
        alerts = np.flatnonzero((n > 0) & (amounts * n > 3 * total))
        users = state.keys["user"].take(pa.array(user[alerts]))
        return pa.table({"user": users, "amount": amounts[alerts], "average": total[alerts] / n[alerts]})
