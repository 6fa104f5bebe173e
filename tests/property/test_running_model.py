"""`hf.running` without Spark: each event has what an independent model computes from the events around it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from grid import WHOLE
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.stream.measures import measures_of
from holdfast.stream.running import RangeAggregation, early_over, final_over
from holdfast.testing import Harness
from holdfast.worker.declarations.types import schema_of

EVENTS = "who string, n long, price decimal(10,2), x double, ts timestamp"
AGG = {
    "rows": "count(*)",
    "ns": "count(n)",
    "n_sum": "sum(n)",
    "n_avg": "avg(n)",
    "n_min": "min(n)",
    "price_sum": "sum(price)",
    "price_avg": "avg( price )",
    "price_max": "MAX(price)",
    "x_sum": "sum(x)",
    "x_avg": "avg(x)",
    "x_min": "min(x)",
    "x_max": "max(`x`)",
}
SIZE_MS = 10_000
START_MS = 1_700_000_000_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
NAN = math.nan

# Steps of 2.5 s, so that events meet each other's ranges exactly, and some between two milliseconds.
TIME = st.builds(
    lambda step, extra: step * 2_500_000 + extra, st.integers(-4, 16), st.sampled_from([0, 1, 500])
)
EVENT = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["ann", "bob", None]),
        "n": st.sampled_from([None, 0, 1, -7, 2**53 + 1, -(2**55)]),
        "price": st.sampled_from([None, *map(Decimal, ("0.01", "99999999.99", "-0.05", "2.50"))]),
        "x": st.sampled_from([None, 0.1, 0.2, -0.3, 1e16, -1e16, 1e308, 5e-324, 2.5, 1.0, math.inf, NAN]),
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


def harness(emit: str, key_groups: int) -> Harness:
    schema = schema_of(EVENTS)
    measures = measures_of(AGG, schema, schema.names, where="here")
    stored = ("n", "price", "x", "ts") if emit == "final" else ("ts", "n", "price", "x")
    over = RangeAggregation(schema, ("who",), "ts", SIZE_MS * 1000, measures, stored)
    make = final_over if emit == "final" else early_over
    return Harness(make(over), by="who", events=EVENTS, output=over.output, time="ts", key_groups=key_groups)


class Model:
    """Keeps everything, and computes each answer from it anew."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.late = 0
        self.answered: set[int] = set()

    def accept(self, watermark_ms: int, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        in_time = [each for each in events if each["ts"] > watermark_ms * 1000]
        self.late += len(events) - len(in_time)
        self.taken += in_time
        return in_time

    def ripe(self, watermark_ms: int) -> list[str]:
        """The answers to what the watermark has reached, each once."""
        due = [at for at, each in enumerate(self.taken) if each["ts"] <= watermark_ms * 1000]
        new = [at for at in due if at not in self.answered]
        self.answered.update(new)
        return self.answers([self.taken[at] for at in new])

    def answers(self, asked: list[dict[str, Any]]) -> list[str]:
        return sorted(self.answer(each) for each in asked)

    def answer(self, event: dict[str, Any]) -> str:
        around = [
            each
            for each in self.taken
            if each["who"] == event["who"] and event["ts"] - SIZE_MS * 1000 <= each["ts"] <= event["ts"]
        ]
        n, price, x = (
            [each[name] for each in around if each[name] is not None] for name in ("n", "price", "x")
        )
        return repr(
            (
                *(event[name] for name in ("who", "n", "price", "x")),
                event["ts"],
                len(around),
                len(n),
                sum(n) if n else None,
                float(Fraction(sum(n), len(n))) if n else None,
                min(n, default=None),
                sum(price).quantize(Decimal("0.01")) if price else None,
                average(price),
                max(price, default=None),
                total(x),
                mean(x),
                min(x, key=nan_last, default=None),
                max(x, key=nan_last, default=None),
            )
        )


def average(values: list[Decimal]) -> Decimal | None:
    if not values:
        return None
    exact = sum((Fraction(each) for each in values), Fraction()) / len(values) * 10**6
    return Decimal(int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)).scaleb(-6)


def nan_last(value: float) -> tuple[bool, float]:
    return math.isnan(value), 0 if math.isnan(value) else value


def total(values: list[float], count: int = 1) -> float | None:
    """The sum (of an average, its share) as if there were no rounding but the last."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        return sum(values)
    exact = sum((Fraction(each) for each in values), Fraction()) / count
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def mean(values: list[float]) -> float | None:
    return total(values, len(values))


def in_time(us: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=us)


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        repr(tuple((each - EPOCH) // dt.timedelta(microseconds=1) if isinstance(each, dt.datetime) else each
                   for each in row.values()))
        for row in rows
    )  # fmt: skip


def moved(batch: dict[str, Any], watermark_ms: int) -> list[dict[str, Any]]:
    return [{**each, "ts": watermark_ms * 1000 + each["ts"]} for each in batch["events"]]


@settings(max_examples=60 if WHOLE else 12)
@given(st.lists(BATCH, min_size=3, max_size=9), st.integers(1, 5))
def test_with_final_each_event_comes_once_with_all_of_its_range(
    batches: list[dict[str, Any]], key_groups: int
) -> None:
    running, model, watermark = harness("final", key_groups), Model(), START_MS
    for batch in batches:
        if batch["restart"]:
            running.restart()
        events = moved(batch, watermark)
        watermark += batch["watermark"]
        running.set_clocks(watermark=watermark)
        rows = running.send(*({**each, "ts": in_time(each["ts"])} for each in events))
        expected = model.ripe(watermark)
        model.accept(watermark, events)
        assert shown(rows) == expected
        assert len(running.late_events) == model.late
    assert shown(running.watermark(watermark + 60_000)) == model.ripe(watermark + 60_000)
    running.watermark(watermark + 120_000)
    assert running.keys() == []
    assert len(model.answered) == len(model.taken)


@settings(max_examples=60 if WHOLE else 12)
@given(st.lists(BATCH, min_size=3, max_size=9), st.integers(1, 5))
def test_with_early_each_event_has_what_has_come_until_then(
    batches: list[dict[str, Any]], key_groups: int
) -> None:
    running, model, watermark = harness("early", key_groups), Model(), START_MS
    for batch in batches:
        if batch["restart"]:
            running.restart()
        events = moved(batch, watermark)
        watermark += batch["watermark"]
        running.set_clocks(watermark=watermark)
        rows = running.send(*({**each, "ts": in_time(each["ts"])} for each in events))
        assert shown(rows) == model.answers(model.accept(watermark, events))
    running.watermark(watermark + 120_000)
    assert running.keys() == []


def test_a_key_holds_no_more_than_twice_its_window() -> None:
    running = harness("final", 1)
    event = {"who": "ann", "n": 1, "price": None, "x": 0.5}
    for second in range(120 if WHOLE else 40):
        at_ms = START_MS + second * 1_000
        running.set_clocks(watermark=at_ms - 1)
        rows = running.send({**event, "ts": in_time(at_ms * 1_000)})
        # The event before is answered: ten seconds back lie ten others.
        assert [row["rows"] for row in rows] == ([] if second == 0 else [min(second, 11)])
        assert sum(map(len, running.state("ann")["rows"])) <= 2 * 11 + 1


def test_while_the_watermark_has_not_begun_events_from_before_1970_are_remembered() -> None:
    running = harness("early", 1)
    event = {"who": "ann", "n": 1, "price": None, "x": 0.5}
    running.set_clocks(watermark=0)
    found = [
        running.send({**event, "ts": in_time((second - 600_000_000) * 1_000_000)})[0]["rows"]
        for second in range(15)
    ]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 11, 11, 11]  # both ends of ten seconds count
