"""A processor that finds the regulars who sat for five minutes without an order.

The answer does not depend on how the streams are divided into batches:

- The handlers of events only add up, by day. An event in time is ahead of the watermark, so what it has
  to be compared with is too, and no TTL can have expired it.
- An event-time timer emits the answer. When it fires, the watermark has passed it, so all events up to it
  that are on time have arrived. It reads whole days before its own, which are complete.
- The watermark may be far ahead, since it moves once per batch. An event-time TTL expires by the
  watermark, so the state that a timer reads needs a TTL that is longer than its look-back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

import holdfast as hf

PATIENCE = timedelta(minutes=5)
WEEK = 7
OFTEN = 3
OUTPUT = (
    "arrival_id string, customer string, seat int, seated_at timestamp, "
    "days int, visits int, cents long, usual string"
)


class Regulars(hf.Keyed):
    """A processor that calls a waiter to each regular who has waited too long, with the usual order.

    A regular has visited on at least three of the seven previous days.
    """

    # The ids of arrivals and payments, to drop duplicates.
    seen = hf.map("string", "boolean", ttl=hf.ttl("24h", clock="event"))
    days = hf.map(
        "date",
        "struct<visits: int, cents: long, drinks: array<string>>",
        ttl=hf.ttl("30 days", clock="event"),
    )
    ordered = hf.list("timestamp", ttl=hf.ttl(PATIENCE, clock="event"))
    # From an arrival to its seat; the timer or an order removes it.
    waiting = hf.map("string", "int")

    def on_arrivals(self, event: Any, state: Any, ctx: Any) -> None:
        """Count the visit, and wait for an order unless it has already arrived."""
        if event.arrival_id in state.seen:
            return
        state.seen[event.arrival_id] = True
        _add(state.days, event.ts, visits=1)
        due = event.ts + PATIENCE
        if not any(event.ts <= at <= due for at in state.ordered):
            state.waiting[event.arrival_id] = event.seat
            ctx.timer(due, name=event.arrival_id)

    def on_orders(self, event: Any, state: Any, ctx: Any) -> None:
        """Record the drink, and stop waiting for an order."""
        state.ordered.append(event.ts)
        _add(state.days, event.ts, drinks=[event.drink])
        for timer in ctx.timers():
            if timer.at - PATIENCE <= event.ts <= timer.at:
                ctx.cancel_timer(timer.name)
                del state.waiting[timer.name]

    def on_payments(self, event: Any, state: Any, _ctx: Any) -> None:
        """Add the amount paid."""
        if event.payment_id not in state.seen:
            state.seen[event.payment_id] = True
            _add(state.days, event.ts, cents=event.amount)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> dict[str, Any] | None:
        """Call the waiter if a regular has not ordered."""
        seat = state.waiting.pop(timer.name)
        seated = timer.at - PATIENCE
        week = [state.days[day] for day in _days_before(seated.date()) if day in state.days]
        days = sum(day.visits > 0 for day in week)
        if days < OFTEN:
            return None
        drinks = Counter(drink for day in week for drink in day.drinks)
        return {
            "arrival_id": timer.name,
            "customer": ctx.key.customer,
            "seat": seat,
            "seated_at": seated,
            "days": days,
            "visits": sum(day.visits for day in week),
            "cents": sum(day.cents for day in week),
            "usual": min(drinks, key=lambda drink: (-drinks[drink], drink), default=None),
        }


def _add(days: Any, at: datetime, visits: int = 0, cents: int = 0, drinks: Iterable[str] = ()) -> None:
    day = days.get(at.date())
    before = (0, 0, ()) if day is None else (day.visits, day.cents, day.drinks)
    days[at.date()] = {
        "visits": before[0] + visits,
        "cents": before[1] + cents,
        "drinks": [*before[2], *drinks],
    }


def _days_before(day: date) -> list[date]:
    return [day - timedelta(days=back) for back in range(1, WEEK + 1)]
