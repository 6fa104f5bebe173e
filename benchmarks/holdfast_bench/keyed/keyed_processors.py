"""What a person writes with Holdfast: a count and a sum per user, in each of the ways there are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import holdfast as hf

HOUR_MS = 60 * 60 * 1000


class EventTotals(hf.Keyed):
    """Event by event; puts out a row an event, where the other ways give a row a user and batch."""

    n = hf.value("long", default=0)
    total = hf.value("double", default=0.0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:  # noqa: ARG002 - not needed here
        """Take in one event."""
        state.n += 1
        state.total += event.amount
        return event.user, state.n, state.total


class TimedEventTotals(hf.Keyed):
    """The same with a time to live, and one timer a user that each event moves."""

    n = hf.value("long", default=0, ttl="24h")
    total = hf.value("double", default=0.0, ttl="24h")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        """Take in one event and move the timer."""
        state.n += 1
        state.total += event.amount
        ctx.timer(ctx.now_ms + HOUR_MS, name="idle", clock="processing")
        return event.user, state.n, state.total

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> None:
        """Never called: the measurement is over before an hour is."""


class KeyTotals(hf.Keyed):
    """Key by key, as the raw side."""

    n = hf.value("long", default=0)
    total = hf.value("double", default=0.0)

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Any:  # noqa: ARG002 - not needed here
        """Take in one user's events."""
        state.n += len(events)
        state.total += sum(event.amount for event in events)
        return key.user, state.n, state.total


class TableTotals(hf.KeyedTable):
    """A table at a time."""

    n = hf.value("long", default=0)
    total = hf.value("double", default=0.0)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - by name through the state
        """Take in the events of many users."""
        state.n += state.counts()
        state.total += state.sums("amount")
        return state.table(n=state.n, total=state.total)


class TimedTableTotals(hf.KeyedTable):
    """The same with a time to live, and one timer a user that each batch moves."""

    n = hf.value("long", default=0, ttl="24h")
    total = hf.value("double", default=0.0, ttl="24h")

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - by name through the state
        """Take in the events of many users and move their timers."""
        state.n += state.counts()
        state.total += state.sums("amount")
        state.timer(state.now_ms + HOUR_MS, name="idle", clock="processing")
        return state.table(n=state.n, total=state.total)

    def on_timers(self, timers: pa.Table, state: Any) -> None:
        """Never called: the measurement is over before an hour is."""


class CombinedTotals(hf.KeyedTable):
    """A table at a time, of counts and sums that were made before the shuffle."""

    n = hf.reducing("long", hf.add)
    total = hf.reducing("double", hf.add)
    combined = "user long, n long, total double"

    def combine(self, events: pa.Table) -> pa.Table:
        """Count and sum a part of a batch."""
        found = events.group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        return found.rename_columns(["user", "n", "total"])

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        """Take in the counts and sums of many users."""
        state.n.add(events["n"])
        state.total.add(events["total"])
        return state.table(n=state.n, total=state.total)
