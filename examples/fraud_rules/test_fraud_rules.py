"""The rules, tried without Spark. The expected alarms are worked out by hand."""

from __future__ import annotations

import datetime as dt

from fraud_rules import ALARMS, PAYMENTS, RULES, Rules

from holdfast.testing import Harness, broadcast


def checks() -> Harness:
    rules = broadcast(RULES, key="rule", version="version", withdrawn="withdrawn")
    return Harness(Rules(), by="card", events=PAYMENTS, output=ALARMS, broadcast=rules)


def payment(name: str, amount: float, minute: int) -> dict[str, object]:
    at = dt.datetime(2026, 3, 5, 9, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=minute)
    return {"payment": name, "card": "c1", "amount": amount, "ts": at}


def rule(name: str, most: float, version: int, *, withdrawn: bool = False) -> dict[str, object]:
    return {"rule": name, "most": most, "version": version, "withdrawn": withdrawn}


def test_a_rule_counts_from_the_batch_that_brings_it() -> None:
    card = checks()
    assert card.send(payment("p1", 1200.0, 0)) == []
    card.broadcast(rule("amount", 1000.0, version=1))
    (alarm,) = card.send(payment("p2", 1200.0, 1))
    assert (alarm["payment"], alarm["rule"], alarm["most"]) == ("p2", "amount", 1000.0)
    card.broadcast(rule("amount", 1000.0, version=2, withdrawn=True))
    assert card.send(payment("p3", 1200.0, 2)) == []


def test_payments_of_the_last_hour_are_counted() -> None:
    card = checks()
    card.broadcast(rule("payments an hour", 2.0, version=1))
    assert card.send(payment("p1", 1.0, 0), payment("p2", 1.0, 30)) == []
    (alarm,) = card.send(payment("p3", 1.0, 59))
    assert (alarm["rule"], alarm["found"]) == ("payments an hour", 3.0)
    # The first payment is an hour old, the second has 90 - 30 = 60 minutes and is out, too.
    assert card.send(payment("p4", 1.0, 90)) == []
