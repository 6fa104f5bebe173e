"""The waiter is called for the same regulars however the day is cut into batches."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.demo.coffee_shop import model
from holdfast.demo.coffee_shop.day import DELAY, STREAMS, CoffeeDay
from holdfast.demo.coffee_shop.regulars import OUTPUT, Regulars
from holdfast.testing import Harness

pytestmark = pytest.mark.slow

EVENTS = {
    "arrivals": "arrival_id string, customer string, seat int, ts timestamp",
    "orders": "order_id string, customer string, drink string, amount long, ts timestamp",
    "payments": "payment_id string, order_id string, customer string, amount long, ts timestamp",
}


def at(day: int, hour: int, minute: int = 0, second: int = 0) -> dt.datetime:
    return dt.datetime(2026, 3, day, hour, minute, second, tzinfo=dt.timezone.utc)


def harness() -> Harness:
    times = dict.fromkeys(EVENTS, "ts")
    return Harness(Regulars(), by="customer", events=EVENTS, output=OUTPUT, time=times)


def arrive(shop: Harness, name: str, ts: dt.datetime, seat: int = 1) -> None:
    assert shop.send({"arrival_id": name, "customer": "ann", "seat": seat, "ts": ts}, stream="arrivals") == []


def order(shop: Harness, ts: dt.datetime, drink: str = "tea") -> None:
    row = {"order_id": "o", "customer": "ann", "drink": drink, "amount": 300, "ts": ts}
    assert shop.send(row, stream="orders") == []


def pay(shop: Harness, name: str, ts: dt.datetime, amount: int) -> None:
    row = {"payment_id": name, "order_id": "o", "customer": "ann", "amount": amount, "ts": ts}
    assert shop.send(row, stream="payments") == []


def come_on(shop: Harness, *days: int) -> None:
    for day in days:
        arrive(shop, f"a{day}", at(day, 9))
        order(shop, at(day, 9, 2))


def test_a_regular_is_called_for_once_the_watermark_is_five_minutes_on() -> None:
    shop = harness()
    come_on(shop, 1, 2, 3)
    order(shop, at(2, 15), "mocha")
    order(shop, at(3, 15), "mocha")
    pay(shop, "p1", at(1, 9, 30), 400)
    pay(shop, "p1", at(1, 9, 30), 400)
    pay(shop, "p2", at(3, 9, 30), 50)
    arrive(shop, "a4", at(4, 9), seat=7)
    arrive(shop, "a4", at(4, 9), seat=7)
    order(shop, at(4, 9, 5, 1), "espresso")
    assert shop.watermark(at(4, 9, 4, 59)) == []
    (row,) = shop.watermark(at(4, 9, 5))
    assert row == {
        "arrival_id": "a4",
        "customer": "ann",
        "seat": 7,
        "seated_at": at(4, 9),
        "days": 3,
        "visits": 3,
        "cents": 450,
        "usual": "tea",
    }
    assert shop.watermark(at(30, 9)) == []


@pytest.mark.parametrize("minute", [0, 5])
def test_an_order_ends_the_wait_whether_it_is_heard_of_before_or_after(minute: int) -> None:
    for first in (arrive, order):
        shop = harness()
        come_on(shop, 1, 2, 3)
        shop.watermark(at(4, 8, 59, 59))
        if first is arrive:
            arrive(shop, "a4", at(4, 9))
            order(shop, at(4, 9, minute))
        else:
            order(shop, at(4, 9, minute))
            arrive(shop, "a4", at(4, 9))
        assert shop.timers("ann") == ()
        assert shop.watermark(at(5, 9)) == []


def test_who_came_on_two_days_is_no_regular_yet() -> None:
    shop = harness()
    come_on(shop, 1, 2)
    arrive(shop, "again", at(2, 16))
    arrive(shop, "today", at(4, 9))
    assert shop.watermark(at(5, 0)) == []


@pytest.mark.parametrize(("today", "called"), [(8, ["today"]), (9, [])])
def test_seven_days_count_and_the_eighth_does_not(today: int, called: list[str]) -> None:
    shop = harness()
    come_on(shop, 1, 2, 3)
    arrive(shop, "today", at(today, 9))
    assert [row["arrival_id"] for row in shop.watermark(at(10, 0))] == called


def test_a_watermark_that_leaps_takes_nothing_away_from_a_timer() -> None:
    shop = harness()
    come_on(shop, 1, 2, 3)
    arrive(shop, "a4", at(4, 9))
    assert [row["days"] for row in shop.watermark(at(20, 0))] == [3]


@pytest.mark.parametrize("seed", range(4))
def test_a_day_in_any_batches_gives_the_model_s_answer(tmp_path: Path, seed: int) -> None:
    CoffeeDay.make(seed, customers=120).write(tmp_path)
    day = model.read_day(tmp_path)
    (expected,) = (each for each in model.answers(day) if each.name == "regulars")
    shop = harness()
    rows = in_batches(shop, day, Random(seed))
    comparison = model.compare(expected, model.rows_of(rows, expected.columns))
    assert comparison.exact, comparison
    assert comparison.equal > 5
    assert len(shop.late_events) == model.late_counts(day)["regulars"] > 0


def in_batches(shop: Harness, day: dict[str, model.ShopStream], rng: Random) -> list[dict[str, Any]]:
    """Run the day a file or two a batch, with the watermark that the batches before have given."""
    rows: list[dict[str, Any]] = []
    done, files = 0, len(day["orders"].reach) - 1
    while done < files:
        upto = min(files, done + 1 + rng.randrange(2))
        batch = {
            name: [
                {**event.fields, "ts": event.at} for event in day[name].events if done <= event.file < upto
            ]
            for name in STREAMS
        }
        rows += shop.send_all(batch)
        newest = [day[name].reach[upto] for name in STREAMS]
        shop.set_clocks(watermark=min(each for each in newest if each is not None) - DELAY)
        if rng.random() < 0.2:
            shop.restart()
        done = upto
    return rows + shop.send_all({})
