"""Carts, tried without Spark. The clock moves only where a test moves it."""

from __future__ import annotations

import datetime as dt

from abandoned_carts import ABANDONED, CLICKS, Carts

from holdfast.testing import Harness


def at(minute: int) -> dt.datetime:
    return dt.datetime(2026, 3, 5, 9, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=minute)


def click(action: str, minute: int, price: float | None = None) -> dict[str, object]:
    return {"cart": "c1", "action": action, "price": price, "ts": at(minute)}


def carts() -> Harness:
    return Harness(Carts(), by="cart", events=CLICKS, output=ABANDONED, time="ts")


def test_a_cart_is_abandoned_half_an_hour_after_its_last_item() -> None:
    shop = carts()
    shop.send(click("add", 0, 20.0), click("add", 10, 5.0))
    assert shop.watermark(at(39)) == []
    assert shop.watermark(at(40)) == [{"cart": "c1", "items": 2, "worth": 25.0, "since": at(10)}]
    assert shop.keys() == []


def test_a_cart_that_is_paid_for_is_not_abandoned() -> None:
    shop = carts()
    shop.send(click("add", 0, 20.0), click("pay", 20))
    assert shop.watermark(at(60)) == []


def test_a_restart_forgets_no_timer() -> None:
    shop = carts()
    shop.send(click("add", 0, 20.0))
    shop.restart()
    assert len(shop.watermark(at(30))) == 1
