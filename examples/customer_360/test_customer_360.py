"""One customer, tried without Spark."""

from __future__ import annotations

from customer_360 import CUSTOMERS, TOPICS, Customer

from holdfast.testing import Harness


def customers() -> Harness:
    return Harness(Customer(), by="customer", events=TOPICS, output=CUSTOMERS)


def profile(city: str, version: int) -> dict[str, object]:
    return {"customer": "c1", "name": "Ann", "city": city, "version": version}


def ticket(name: str, *, is_open: bool) -> dict[str, object]:
    return {"customer": "c1", "ticket": name, "open": is_open}


def test_a_customer_is_one_row_from_three_streams() -> None:
    seen = customers()
    (row,) = seen.send_all(
        {
            "profiles": [profile("Bern", 1)],
            "orders": [{"customer": "c1", "order_id": f"o{n}", "amount": 2.5} for n in range(3)],
            "tickets": [ticket("t1", is_open=True), ticket("t2", is_open=True), ticket("t1", is_open=False)],
        }
    )
    assert row == {
        "customer": "c1", "name": "Ann", "city": "Bern", "orders": 3, "spent": 7.5, "open_tickets": 1,
    }  # fmt: skip


def test_an_order_need_not_wait_for_a_profile() -> None:
    seen = customers()
    (row,) = seen.send({"customer": "c1", "order_id": "o1", "amount": 1.0}, stream="orders")
    assert (row["name"], row["orders"]) == (None, 1)


def test_an_older_profile_that_comes_late_changes_nothing() -> None:
    seen = customers()
    seen.send(profile("Graz", 2), stream="profiles")
    (row,) = seen.send(profile("Linz", 1), stream="profiles")
    assert row["city"] == "Graz"
