"""`hf.sessions` without Spark: what comes out is what sorting all events in time would give."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

from grid import WHOLE
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.stream.measures import measures_of
from holdfast.stream.sessions import SessionSpec, result_names, tracker
from holdfast.testing import Harness
from holdfast.worker.declarations.types import schema_of

EVENTS = "who string, n long, price decimal(10,2), x double, ts timestamp"
AGG = {
    "rows": "count(*)",
    "ns": "count(n)",
    "n_sum": "sum(n)",
    "n_avg": "avg(n)",
    "price_sum": "sum(price)",
    "price_avg": "avg(price)",
    "x_min": "min(x)",
    "x_max": "max(x)",
    "last": "max(ts)",
}
GAP_MS = 10_000
START_MS = 1_700_000_000_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

TIME = st.builds(
    lambda step, extra: step * 2_500_000 + extra, st.integers(-4, 24), st.sampled_from([0, 1, 500])
)
EVENT = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["ann", "bob", None]),
        "n": st.sampled_from([None, 0, 1, -7, 2**53 + 1]),
        "price": st.sampled_from([None, *map(Decimal, ("0.01", "99999999.99", "-0.05", "2.50"))]),
        "x": st.sampled_from([None, 0.1, -0.3, 1e308, 2.5]),
        "ts": TIME,
    }
)
BATCH = st.fixed_dictionaries(
    {
        "events": st.lists(EVENT, max_size=7),
        "watermark": st.sampled_from([0, 0, 2_500, 5_000, 9_999, 40_000]),
        "restart": st.booleans(),
    }
)


def harness(longest_ms: int | None, key_groups: int) -> Harness:
    schema = schema_of(EVENTS)
    measures = measures_of(AGG, schema, result_names(["who"], opened=True), where="here")
    longest_us = None if longest_ms is None else longest_ms * 1000
    tracked = SessionSpec(schema, ("who",), "ts", GAP_MS * 1000, longest_us, True, measures)
    return Harness(
        tracker(tracked), by="who", events=EVENTS, output=tracked.output, time="ts", key_groups=key_groups
    )


class Model:
    """Keeps everything in time, and sorts it anew each time."""

    def __init__(self, longest_ms: int | None) -> None:
        self.longest = None if longest_ms is None else longest_ms * 1000
        self.taken: list[dict[str, Any]] = []
        self.told: Counter[str] = Counter()

    def batch(self, watermark_ms: int, events: list[dict[str, Any]]) -> Counter[str]:
        """What is new at this watermark; the events of the batch are ahead of it."""
        known = self.known(watermark_ms * 1000)
        assert not self.told - known
        new = known - self.told
        self.told = known
        self.taken += [each for each in events if each["ts"] > watermark_ms * 1000]
        return new

    def known(self, watermark: int) -> Counter[str]:
        rows: Counter[str] = Counter()
        for who in {each["who"] for each in self.taken}:
            mine = [each for each in self.taken if each["who"] == who and each["ts"] <= watermark]
            groups: list[list[dict[str, Any]]] = []
            for each in sorted(mine, key=lambda event: int(event["ts"])):
                if not groups or each["ts"] > self.end(groups[-1]):
                    groups.append([])
                groups[-1].append(each)
            for at, group in enumerate(groups):
                start, end = group[0]["ts"], self.end(group)
                rows[repr((who, start, None, "open", *[None] * len(AGG)))] += 1
                if at + 1 < len(groups) or end <= watermark:
                    rows[repr((who, start, end, "closed", *aggregates(group)))] += 1
        return rows

    def end(self, group: list[dict[str, Any]]) -> int:
        end: int = group[-1]["ts"] + GAP_MS * 1000
        return end if self.longest is None else min(end, group[0]["ts"] + self.longest)


def aggregates(group: list[dict[str, Any]]) -> list[Any]:
    n, price, x = ([each[name] for each in group if each[name] is not None] for name in ("n", "price", "x"))
    price_avg = None
    if price:
        exact = sum((Fraction(each) for each in price), Fraction()) / len(price) * 10**6
        price_avg = Decimal(int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)).scaleb(-6)
    return [
        len(group),
        len(n),
        sum(n) if n else None,
        float(Fraction(sum(n), len(n))) if n else None,
        sum(price).quantize(Decimal("0.01")) if price else None,
        price_avg,
        min(x, default=None),
        max(x, default=None),
        group[-1]["ts"],
    ]


def in_time(us: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=us)


def us_of(value: Any) -> Any:
    return (value - EPOCH) // dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else value


def shown(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(tuple(map(us_of, row.values()))) for row in rows)


def quiet(*seconds: int) -> dict[str, Any]:
    events = [{"who": "ann", "n": 1, "price": None, "x": None, "ts": each * 1_000_000} for each in seconds]
    return {"events": events, "watermark": 0, "restart": False}


# Two sessions that an event out of order makes one; an event exactly at the end of one.
@settings(max_examples=100 if WHOLE else 12)
@given(
    st.lists(BATCH, min_size=3, max_size=9),
    st.sampled_from([None, 10_000, 12_500, 30_000]),
    st.integers(1, 5),
)
@example([quiet(1, 20), quiet(11), quiet()], None, 1)
@example([quiet(1), quiet(11, 22), quiet()], None, 1)
def test_sessions_are_those_of_the_sorted_events(
    batches: list[dict[str, Any]], longest_ms: int | None, key_groups: int
) -> None:
    sessions, model, watermark = harness(longest_ms, key_groups), Model(longest_ms), START_MS
    for batch in batches:
        if batch["restart"]:
            sessions.restart()
        events = [{**each, "ts": watermark * 1000 + each["ts"]} for each in batch["events"]]
        watermark += batch["watermark"]
        sessions.set_clocks(watermark=watermark)
        rows = sessions.send(*({**each, "ts": in_time(each["ts"])} for each in events))
        assert shown(rows) == model.batch(watermark, events)
    watermark += 120_000
    assert shown(sessions.watermark(watermark)) == model.batch(watermark, [])
    assert sessions.keys() == []
    assert sum(model.told.values()) % 2 == 0
