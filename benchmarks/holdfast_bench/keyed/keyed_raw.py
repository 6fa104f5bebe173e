"""What a careful person writes with PySpark alone: a count and a sum per user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000


class RawTotals(StatefulProcessor):
    """Keeps both numbers in one value state: one read and one write a user and batch, the least there is."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._totals = handle.getValueState("totals", "n long, total double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002 - Spark's names
        """Take in one user's events."""
        n, total = self._totals.get() or (0, 0.0)
        for row in rows:
            n += 1
            total += row.amount
        self._totals.update((n, total))
        yield Row(user=key[0], n=n, total=total)

    def close(self) -> None:
        """Nothing to close."""


class RawTimedTotals(StatefulProcessor):
    """The same with a time to live, and one timer a user that each batch moves.

    Spark knows timers by their time, so the state holds when the timer is due.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._handle = handle
        self._totals = handle.getValueState("totals", "n long, total double, due long", DAY_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        """Take in one user's events and move the timer."""
        n, total, due = self._totals.get() or (0, 0.0, None)
        for row in rows:
            n += 1
            total += row.amount
        if due is not None:
            self._handle.deleteTimer(due)
        due = timerValues.getCurrentProcessingTimeInMs() + HOUR_MS
        self._handle.registerTimer(due)
        self._totals.update((n, total, due))
        yield Row(user=key[0], n=n, total=total)

    def close(self) -> None:
        """Nothing to close."""
