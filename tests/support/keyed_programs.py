"""A processor that does everything a keyed state can do, and a model of it in plain Python.

The model shares nothing with the product: it keeps dictionaries and follows the written rules one event at
a time. A program is a list of batches; both must put out the same rows in the same order for each key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import holdfast as hf

EVENTS = "who string, op string, n long, ts timestamp"
OUTPUT = "who string, what string, last long, total long, recent string, seen string, span long, at long"

LAST_TTL, TOTAL_TTL, RECENT_TTL, SEEN_TTL, SPAN_TTL = 10_000, 15_000, 12_000, 20_000, 30_000
OPS = ("add", "read", "drop", "timer", "cancel", "clock", "clear")


class Highest(hf.Aggregate):
    """The span between the least and the greatest number."""

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any) -> Any:
        return [min([*accumulator, value]), max([*accumulator, value])]

    def result(self, accumulator: Any) -> Any:
        return accumulator[1] - accumulator[0] if accumulator else None


class Everything(hf.Keyed):
    """Every kind of state, TTL on both clocks, timers on both clocks."""

    last = hf.value("long", default=-1, ttl=LAST_TTL)
    total = hf.reducing("long", hf.add, ttl=hf.ttl(TOTAL_TTL, update="read_and_write"))
    recent = hf.list("long", ttl=RECENT_TTL)
    seen = hf.map("string", "long", ttl=hf.ttl(SEEN_TTL, update="read_and_write", clock="event"))
    span = hf.aggregating("array<long>", Highest(), ttl=hf.ttl(SPAN_TTL, clock="event"))
    events = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.events += 1
        if event.op == "add":
            state.last = event.n
            state.total.add(event.n)
            state.recent.append(event.n)
            state.seen[f"k{event.n % 3}"] = event.n
            state.span.add(event.n)
        elif event.op == "drop":
            state.seen.pop(f"k{event.n % 3}", None)
            del state.last
        elif event.op == "timer":
            ctx.timer(event.ts + hf.seconds(event.n), name=f"t{event.n % 2}")
        elif event.op == "clock":
            ctx.timer(ctx.now_ms + event.n * 1000, name="clock", clock="processing")
        elif event.op == "cancel":
            ctx.cancel_timer(f"t{event.n % 2}")
        elif event.op == "clear":
            state.clear()
        if event.op == "read":
            yield self.look(event.who, "read", state, 0)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.recent.append(-1)
        if timer.name == "t1":
            ctx.timer(timer.at_ms + 3000, name="t0")
        yield self.look(ctx.key.who, timer.name, state, timer.at_ms)

    @staticmethod
    def look(who: str | None, what: str, state: Any, at: int) -> dict[str, Any]:
        """Read everything in a fixed order; a read may renew and may remove."""
        return {
            "who": who,
            "what": what,
            "last": state.last,
            "total": state.total.get(),
            "recent": ",".join(map(str, state.recent)),
            "seen": ",".join(f"{key}={value}" for key, value in sorted(state.seen.items())),
            "span": state.span.get(),
            "at": at,
        }


@dataclass
class _Key:
    last: tuple[int, int] | None = None
    total: tuple[int, int] | None = None
    recent: list[tuple[int, int]] = field(default_factory=list)
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    span: tuple[int, int, int] | None = None
    timers: dict[tuple[str, str], int] = field(default_factory=dict)


class Model:
    """What `Everything` must answer, by the rules."""

    def __init__(self) -> None:
        self.keys: dict[str | None, _Key] = {}
        self.late = 0

    def batch(
        self, now: int, watermark: int | None, events: list[dict[str, Any]]
    ) -> dict[str | None, list[Any]]:
        """Run a batch; events have `ts` in epoch milliseconds. Returns the rows of each key in order."""
        rows: dict[str | None, list[Any]] = {}
        in_time = [each for each in events if not watermark or each["ts"] > watermark]
        self.late += len(events) - len(in_time)
        for who in {each["who"] for each in in_time} | set(self.keys):
            key = self.keys.setdefault(who, _Key())
            out = rows.setdefault(who, [])
            self._fire(who, key, now, watermark, out)
            for event in in_time:
                if event["who"] == who:
                    self._event(key, event, now, watermark, out)
            self._fire(who, key, now, watermark, out)
        return {who: out for who, out in rows.items() if out}

    def _fire(self, who: str | None, key: _Key, now: int, watermark: int | None, out: list[Any]) -> None:
        while True:
            due = [
                (at, clock, name)
                for (clock, name), at in key.timers.items()
                if at <= (now if clock == "processing" else watermark or 0)
            ]
            if not due:
                return
            at, clock, name = min(due)
            del key.timers[clock, name]
            key.recent.append((-1, now))
            if name == "t1":
                key.timers["event", "t0"] = at + 3000
            event_time = at if clock == "event" else (watermark or 0)
            out.append(self._look(who, name, key, now, watermark, event_time, at))

    def _event(
        self, key: _Key, event: dict[str, Any], now: int, watermark: int | None, out: list[Any]
    ) -> None:
        op, n, ts = event["op"], event["n"], event["ts"]
        entry = f"k{n % 3}"
        if op == "add":
            key.last = (n, now)
            old = key.total if key.total and now < key.total[1] + TOTAL_TTL else None
            key.total = (n + old[0] if old else n, now)
            key.recent.append((n, now))
            before = key.seen.get(entry)
            key.seen[entry] = (n, self._stamp(ts, before[1] if before else None, watermark, SEEN_TTL))
            span = key.span if key.span and not self._over(key.span[2], SPAN_TTL, watermark) else None
            low, high = (min(span[0], n), max(span[1], n)) if span else (n, n)
            key.span = (low, high, max(ts, span[2]) if span else ts)
        elif op == "drop":
            key.seen.pop(entry, None)
            key.last = None
        elif op == "timer":
            key.timers["event", f"t{n % 2}"] = ts + n * 1000
        elif op == "clock":
            key.timers["processing", "clock"] = now + n * 1000
        elif op == "cancel":
            key.timers.pop(("event", f"t{n % 2}"), None)
        elif op == "clear":
            key.last, key.total, key.recent, key.seen, key.span = None, None, [], {}, None
        elif op == "read":
            out.append(self._look(event["who"], "read", key, now, watermark, ts, 0))

    @staticmethod
    def _single(key: _Key, now: int) -> tuple[int, int | None]:
        if key.last is not None and now >= key.last[1] + LAST_TTL:
            key.last = None
        if key.total is not None:
            key.total = (key.total[0], now) if now < key.total[1] + TOTAL_TTL else None
        return key.last[0] if key.last else -1, key.total[0] if key.total else None

    @staticmethod
    def _over(stamp: int, ttl: int, watermark: int | None) -> bool:
        return watermark is not None and stamp + ttl <= watermark

    def _stamp(self, ts: int, before: int | None, watermark: int | None, ttl: int) -> int:
        if before is None or self._over(before, ttl, watermark):
            return ts
        return max(ts, before)

    def _look(
        self, who: str | None, what: str, key: _Key, now: int, watermark: int | None, ts: int, at: int
    ) -> tuple[Any, ...]:
        last, total = self._single(key, now)
        recent = [value for value, stamp in key.recent if now < stamp + RECENT_TTL]
        if not recent:
            key.recent = []
        for entry, (value, stamp) in list(key.seen.items()):
            if self._over(stamp, SEEN_TTL, watermark):
                del key.seen[entry]
            else:
                key.seen[entry] = (value, max(stamp, ts))
        span = None
        if key.span is not None:
            if self._over(key.span[2], SPAN_TTL, watermark):
                key.span = None
            else:
                span = key.span[1] - key.span[0]
        seen = ",".join(f"{entry}={value}" for entry, (value, _) in sorted(key.seen.items()))
        return (who, what, last, total, ",".join(map(str, recent)), seen, span, at)
