"""Processors for batch frames, and what they must put out for a history, in plain Python.

The model shares nothing with the product: it takes the events of a key in the order of their times, and
before each event it fires what was due.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import holdfast as hf

EVENTS = "who string, ts timestamp, n long"
OUTPUT = "who string, what string, at long, n long, held long, watermark long"
GAP = 20_000
HELD = 45_000


def history(seed: int, start: int, size: int) -> list[dict[str, Any]]:
    """Events in no order; the times of a key are unique."""
    chance = random.Random(seed)
    times = chance.sample(range(start, start + size * 5_000, 500), size)
    return [{"who": chance.choice("abcde"), "ts": at, "n": number} for number, at in enumerate(times)]


class Sessions(hf.Keyed):
    """A session ends after a gap; a value is held for a while in event time; a timer may set the next."""

    total = hf.value("long", default=0)
    held = hf.value("long", default=-1, ttl=hf.ttl(HELD, clock="event"))

    def on_go(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        at = int(event.ts.timestamp() * 1000)
        yield self.row(event.who, "go", at, state, ctx, event.n)
        state.total += event.n
        if event.n % 3 == 0:
            state.held = event.n
        ctx.timer(at + GAP, name="gap")

    def on_back(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        at = int(event.ts.timestamp() * 1000)
        yield self.row(event.who, "back", at, state, ctx, event.n)
        state.total -= event.n

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield self.row(ctx.key.who, timer.name, timer.at_ms, state, ctx, state.total)
        if timer.name == "gap":
            state.total = 0
            ctx.timer(timer.at_ms + 7_000, name="after")

    @staticmethod
    def row(who: str, what: str, at: int, state: Any, ctx: Any, n: int) -> dict[str, Any]:
        late = ctx.watermark_ms if what in ("go", "back") else None
        return {"who": who, "what": what, "at": at, "n": n, "held": state.held, "watermark": late}


@dataclass
class _Key:
    total: int = 0
    held: tuple[int, int] | None = None


def sessions(
    streams: Mapping[str, list[dict[str, Any]]],
    delay: int = 0,
    until: float = float("inf"),
    left: dict[str, tuple[int, dict[str, int]]] | None = None,
) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of `Sessions` for each key, in order; `left` gets its total and timers at the end."""
    out: dict[str, list[tuple[Any, ...]]] = {}
    events = [(event["ts"], what, event) for what, some in streams.items() for event in some]
    for who in {event["who"] for _, _, event in events}:
        key, timers = _Key(), dict[str, int]()
        rows = out.setdefault(who, [])

        def held(watermark: float, key: _Key = key) -> int:
            return key.held[0] if key.held is not None and key.held[1] + HELD > watermark else -1

        def fire(
            watermark: float,
            key: _Key = key,
            timers: dict[str, int] = timers,
            rows: list[tuple[Any, ...]] = rows,
            who: str = who,
        ) -> None:
            while timers and min(timers.values()) <= watermark:
                at, name = min((at, name) for name, at in timers.items())
                del timers[name]
                rows.append((who, name, at, key.total, held(watermark, key), None))
                if name == "gap":
                    key.total = 0
                    timers["after"] = at + 7_000

        for at, what, event in sorted((e for e in events if e[2]["who"] == who), key=lambda e: e[0]):
            watermark = at - delay - 1
            fire(watermark)
            rows.append((who, what, at, event["n"], held(watermark), watermark))
            if what == "back":
                key.total -= event["n"]
                continue
            key.total += event["n"]
            if event["n"] % 3 == 0:
                key.held = (event["n"], at)
            timers["gap"] = at + GAP
        fire(until)
        if left is not None:
            left[who] = (key.total, timers)
    return out


class Timed(hf.Keyed):
    """Rows that do not depend on how events are divided into batches."""

    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.n += event.n
        ctx.timer(event.ts + hf.seconds(8), name=str(event.n))
        at = int(event.ts.timestamp() * 1000)
        yield {"who": event.who, "what": "event", "at": at, "n": state.n, "held": 0, "watermark": 0}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        del state
        yield {"who": ctx.key.who, "what": timer.name, "at": timer.at_ms, "n": 0, "held": 0, "watermark": 0}
