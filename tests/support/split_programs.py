"""A processor whose keys may be split, and what it must come to, in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import holdfast as hf

EVENTS = "who string, item string, amount long, ts timestamp"
OUTPUT = "who string, n long, total decimal(20,2), least long, average double, items string, kinds string"


class Average(hf.Aggregate):
    """The average of whole numbers, exactly."""

    def create(self) -> Any:
        return {"n": 0, "sum": 0}

    def add(self, accumulator: Any, value: Any) -> Any:
        return {"n": accumulator["n"] + 1, "sum": accumulator["sum"] + value}

    def merge(self, one: Any, other: Any) -> Any:
        return {"n": one["n"] + other["n"], "sum": one["sum"] + other["sum"]}

    def result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["n"]


class Basket(hf.Keyed):
    """All kinds of state, none of which depends on the order of events."""

    n = hf.value("long", default=0)
    total = hf.reducing("decimal(20,2)", hf.add)
    least = hf.reducing("long", hf.least, ttl="30 days")
    average = hf.aggregating("struct<n: long, sum: long>", Average())
    amounts = hf.list("long")
    kinds = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.n += 1
        state.total.add(Decimal(event.amount) / 100)
        state.least.add(event.amount)
        state.average.add(event.amount)
        state.amounts.append(event.amount)
        state.kinds[event.item] = state.kinds.get(event.item, 0) + 1

    def merge(self, state: Any, part: Any) -> None:
        state.n += part.n
        state.total.merge(part.total)
        state.least.merge(part.least)
        state.average.merge(part.average)
        state.amounts.extend(part.amounts)
        for item, count in part.kinds.items():
            state.kinds[item] = state.kinds.get(item, 0) + count

    def on_end(self, state: Any, ctx: Any) -> Any:
        items = ",".join(str(each) for each in sorted(state.amounts))
        kinds = ",".join(f"{item}={count}" for item, count in sorted(state.kinds.items()))
        yield ctx.key.who, state.n, state.total.get(), state.least.get(), state.average.get(), items, kinds


class Dated(hf.Keyed):
    """When a key's events were met before the end of a batch, and in how many parts."""

    met = hf.list("long")
    parts = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.met.append(ctx.now_ms)

    def merge(self, state: Any, part: Any) -> None:
        state.met.extend(part.met)
        state.parts += 1

    def on_end(self, state: Any, ctx: Any) -> Any:
        yield ctx.key.who, state.parts, set(state.met) == {ctx.now_ms}
        state.met.clear()
        state.parts = 0


def batches(seed: int, count: int, size: int, start: int) -> list[list[dict[str, Any]]]:
    """Random events, most of one key."""
    chance = random.Random(seed)
    who = ["ann"] * 12 + ["bob", "cyd", None]
    return [
        [
            {
                "who": chance.choice(who),
                "item": chance.choice("abcd"),
                "amount": chance.randrange(-500, 500),
                "ts": start + number * 1_000,
            }
            for _ in range(chance.randrange(size))
        ]
        for number in range(count)
    ]


def expected(made: Sequence[Iterable[dict[str, Any]]]) -> list[set[tuple[Any, ...]]]:
    """The rows of each batch, worked out event by event."""
    amounts: dict[Any, list[int]] = {}
    kinds: dict[Any, dict[str, int]] = {}
    found = []
    for batch in made:
        touched = set()
        for event in batch:
            who = event["who"]
            touched.add(who)
            amounts.setdefault(who, []).append(event["amount"])
            of = kinds.setdefault(who, {})
            of[event["item"]] = of.get(event["item"], 0) + 1
        found.append({_row(who, amounts[who], kinds[who]) for who in touched})
    return found


def by_length(who: str | None) -> int:
    """A group for a name."""
    return 7 if who is None else len(who)


def _row(who: Any, amounts: list[int], kinds: dict[str, int]) -> tuple[Any, ...]:
    return (
        who,
        len(amounts),
        (Decimal(sum(amounts)) / 100).quantize(Decimal("0.01")),
        min(amounts),
        sum(amounts) / len(amounts),
        ",".join(str(each) for each in sorted(amounts)),
        ",".join(f"{item}={count}" for item, count in sorted(kinds.items())),
    )
