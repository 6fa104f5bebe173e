"""Spark's `TwsTester` and `Harness` give the same output and state for the same processor and events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import pytest
from grid import WHOLE
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import holdfast as hf
from holdfast.testing import Harness

tws_tester = pytest.importorskip(
    "pyspark.sql.streaming.tws_tester", reason="PySpark before 4.2 has no TwsTester"
)

OPS: Final = ("add", "append", "replace", "count", "remove", "clear", "timer", "cancel", "timers", "read")
START: Final = 1_000_000
NAMES: Final = ("ann", "", "Zoë \U0001f980")
OUTPUT: Final = "who string, what string, number long"
EVENTS: Final = "who string, op string, name string, n long, at timestamp"


class Everything(StatefulProcessor):
    """The processor as Spark wants it: a value, a list, a map and timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long")
        self.last = handle.getListState("last", "n long")
        self.counts = handle.getMapState("counts", "name string", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - names of Spark
        for row in rows:
            yield from self.handle_row(key[0], row)

    def handle_row(self, who: str, row: Row) -> Iterator[Row]:
        match row.op:
            case "add":
                before = self.total.get()
                self.total.update(((before[0] if before else 0) + row.n,))
            case "append":
                self.last.appendValue((row.n,))
            case "replace":
                self.last.put([(row.n,), (row.n + 1,)])
            case "count":
                before = self.counts.getValue((row.name,))
                self.counts.updateValue((row.name,), ((before[0] if before else 0) + row.n,))
            case "remove":
                self.counts.removeKey((row.name,))
            case "clear":
                (self.total, self.last, self.counts)[row.n % 3].clear()
            case "timer":
                self.handle.registerTimer(row.at + row.n * 1_000)
            case "cancel":
                self.handle.deleteTimer(row.at + row.n * 1_000)
            case "timers":
                yield from (Row(who=who, what="timer", number=at) for at in self.handle.listTimers())
            case "read":
                total = self.total.get()
                yield Row(who=who, what="total", number=total[0] if total else None)
                yield from (Row(who=who, what="last", number=number) for (number,) in self.last.get())
                counts = sorted((name, number) for (name,), (number,) in self.counts.iterator())
                yield from (Row(who=who, what=name, number=number) for name, number in counts)
                known = self.total.exists(), self.last.exists(), self.counts.containsKey((row.name,))
                yield from (Row(who=who, what="exists", number=int(there)) for there in known)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803 - names of Spark
        total = self.total.get()
        yield Row(who=key[0], what="expired", number=expiredTimerInfo.getExpiryTimeInMs())
        self.total.update((1 + (total[0] if total else 0),))

    def close(self) -> None:
        pass


class ByEvent(hf.Keyed):
    """The same for Holdfast. A timer of Spark has no name, and a key has any number of them."""

    total = hf.value(int)
    last = hf.list(int)
    counts = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str, str, int | None]]:
        at = int(event.at.timestamp()) * 1_000 + event.n * 1_000
        who = ctx.key.who
        match event.op:
            case "add":
                state.total = (state.total or 0) + event.n
            case "append":
                state.last.append(event.n)
            case "replace":
                state.last.set([event.n, event.n + 1])
            case "count":
                state.counts[event.name] = state.counts.get(event.name, 0) + event.n
            case "remove":
                state.counts.pop(event.name, None)
            case "clear":
                if event.n % 3 == 0:
                    state.total = None
                else:
                    (state.last if event.n % 3 == 1 else state.counts).clear()
            case "timer":
                ctx.timer(at, name=str(at))
            case "cancel":
                ctx.cancel_timer(str(at))
            case "timers":
                yield from ((who, "timer", int(timer.name)) for timer in ctx.timers())
            case "read":
                yield who, "total", state.total
                yield from ((who, "last", number) for number in state.last)
                yield from ((who, name, number) for name, number in sorted(state.counts.items()))
                known = state.total is not None, bool(state.last), event.name in state.counts
                yield from ((who, "exists", int(there)) for there in known)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[tuple[str, str, int]]:
        yield ctx.key.who, "expired", int(timer.name)
        state.total = 1 + (state.total or 0)


class ByKey(ByEvent):
    """The same with one call for all events of a key."""

    on_event = hf.Keyed.on_event

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[tuple[str, str, int | None]]:
        for event in events:
            yield from ByEvent.on_event(self, event, state, ctx)


EVENT = st.fixed_dictionaries(
    {
        "who": st.sampled_from(NAMES),
        "op": st.sampled_from([*OPS, "timer", "read"]),
        "name": st.sampled_from(NAMES),
        "n": st.integers(1, 8),
        "at": st.integers(0, 9).map(lambda step: START + step * 1_000),
    }
)
BATCH = st.tuples(st.integers(1, 5).map(lambda step: step * 1_000), st.lists(EVENT, max_size=6))


@pytest.mark.parametrize("clock", ["eventTime", "processingTime"])
@settings(max_examples=300 if WHOLE else 4, deadline=None)
@given(st.lists(BATCH, min_size=2, max_size=8), st.sampled_from([ByEvent, ByKey]))
def test_a_processor_does_the_same_as_in_sparks_tester(
    clock: str, batches: list[tuple[int, list[dict[str, Any]]]], processor: type[hf.Keyed]
) -> None:
    event_time = clock == "eventTime"
    tester = tws_tester.TwsTester(
        Everything(), timeMode=clock, eventTimeExtractor=(lambda row: row.at) if event_time else None
    )
    harness = Harness(
        processor(), by="who", events=EVENTS, output=OUTPUT, time="at" if event_time else None, now=START - 1
    )
    now = START - 1_000
    for step, events in batches:
        now += step
        # Spark calls timers after the events of a batch, Holdfast before them and after: so time moves by
        # itself, and no event sets a timer that is due already.
        expired = tester.setWatermark(now) if event_time else tester.setProcessingTime(now)
        assert by_key(expired) == by_key(harness.watermark(now) if event_time else harness.at(now))
        batch = [
            {**event, "at": max(event["at"], now)} if event["op"] == "timer" else event for event in events
        ]
        output: list[Any] = []
        for who in NAMES:
            rows = [Row(**event) for event in batch if event["who"] == who]
            if rows:
                output += tester.test(who, rows)
        assert by_key(output) == by_key(
            harness.send(*({**event, "at": moment(event["at"])} for event in batch))
        )
        for who in NAMES:
            total = tester.peekValueState("total", who)
            counts = tester.peekMapState("counts", who)
            found = {
                "total": total[0] if total else None,
                "last": [number for (number,) in tester.peekListState("last", who)],
                "counts": {name: number for (name,), (number,) in counts.items()},
            }
            held = (who,) in set(harness.keys())
            assert (harness.state(who) if held else {"total": None, "last": [], "counts": {}}) == found


def moment(ms: int) -> Any:
    """Return the event time as a harness takes it."""
    return dt.datetime.fromtimestamp(ms // 1_000, dt.timezone.utc)


def by_key(rows: list[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each key in order; the order of keys is undefined."""
    kept: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        values = tuple(row.values()) if isinstance(row, dict) else tuple(row)
        kept.setdefault(values[0], []).append(values)
    return kept
