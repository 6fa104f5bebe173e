"""Two processors whose keys, timers, entries and expired values a model in plain Python counts too.

The model shares nothing with the product: it keeps dictionaries and takes one event after the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import holdfast as hf

EVENTS = "who string, item string, op string, n long, ts timestamp"
OUTPUT = "name string, n long"
START = 1_700_000_000_000
SEEN_TTL_MS = 20_000
DELAY_MS = 5_000


class Baskets(hf.Keyed):
    """By customer: a value, a list, a map and timers, none of which expires by itself."""

    amount = hf.value("long", default=0)
    notes = hf.list("string")
    prices = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if event.op == "add":
            state.amount += event.n
            state.notes.append(event.item)
            state.prices[event.item] = event.n
        elif event.op == "take":
            state.prices.pop(event.item, None)
        elif event.op == "remind":
            ctx.timer(event.ts + hf.seconds(event.n), name=event.item)
        elif event.op == "clear":
            state.clear()
        yield {"name": event.who, "n": state.amount}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.notes.append(timer.name)
        yield {"name": ctx.key.who, "n": -1}


class Items(hf.Keyed):
    """By item: when it was seen last, for some seconds of event time."""

    seen = hf.value("long", ttl=hf.ttl(SEEN_TTL_MS, clock="event"))

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.seen = event.n
        yield {"name": event.item, "n": event.n}


@dataclass
class _Basket:
    amount: int | None = None
    notes: list[str] = field(default_factory=list)
    prices: dict[str, int] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        return self.amount is not None or bool(self.notes or self.prices or self.timers)


class BasketsModel:
    """What `Baskets` holds after each batch."""

    def __init__(self) -> None:
        self._baskets: dict[str, _Basket] = {}

    def batch(self, watermark: int, events: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Run a batch, and count."""
        for basket in self._baskets.values():
            self._fire(basket, watermark)
        for event in events:
            if watermark and event["ts"] <= watermark:
                continue
            basket = self._baskets.setdefault(event["who"], _Basket())
            self._take(basket, event)
        for basket in self._baskets.values():
            self._fire(basket, watermark)
        there = [each for each in self._baskets.values() if each.there]
        return {
            "keys": len(there),
            "timers": sum(len(each.timers) for each in there),
            "amount": sum(each.amount is not None for each in there),
            "notes": sum(len(each.notes) for each in there),
            "prices": sum(len(each.prices) for each in there),
        }

    @staticmethod
    def _take(basket: _Basket, event: dict[str, Any]) -> None:
        if event["op"] == "add":
            basket.amount = (basket.amount or 0) + event["n"]
            basket.notes.append(event["item"])
            basket.prices[event["item"]] = event["n"]
        elif event["op"] == "take":
            basket.prices.pop(event["item"], None)
        elif event["op"] == "remind":
            basket.timers[event["item"]] = event["ts"] + 1000 * event["n"]
        elif event["op"] == "clear":
            basket.amount, basket.notes, basket.prices = None, [], {}

    @staticmethod
    def _fire(basket: _Basket, watermark: int) -> None:
        for name, at in sorted(basket.timers.items(), key=lambda timer: (timer[1], timer[0])):
            if watermark and at <= watermark:
                del basket.timers[name]
                basket.notes.append(name)


class ItemsModel:
    """Which items `Items` must know, and how many values have expired."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.expired = 0

    def batch(self, watermark: int, events: Sequence[dict[str, Any]]) -> None:
        """Run a batch."""
        self.expire(watermark)
        for event in events:
            if not watermark or event["ts"] > watermark:
                self.seen[event["item"]] = max(self.seen.get(event["item"], 0), event["ts"])

    def expire(self, watermark: int) -> None:
        """Take out what has expired."""
        gone = [item for item, at in self.seen.items() if watermark and at + SEEN_TTL_MS <= watermark]
        self.expired += len(gone)
        for item in gone:
            del self.seen[item]


def program(seed: int, batches: int, events: int) -> list[list[dict[str, Any]]]:
    """Random batches whose event times move on by some seconds each."""
    chance = random.Random(seed)
    return [
        [
            {
                "who": chance.choice("abcdefg"),
                "item": f"i{chance.randrange(30)}",
                "op": chance.choice(["add", "add", "add", "take", "remind", "clear"]),
                "n": chance.randrange(1, 25),
                "ts": START + number * 6_000 + chance.randrange(-4_000, 6_000, 500),
            }
            for _ in range(events)
        ]
        for number in range(batches)
    ]
