"""The newest change of a row, tried without Spark."""

from __future__ import annotations

import itertools

from cdc_to_delta import CHANGES, Newest

from holdfast.testing import Harness

HISTORY = [
    {"id": 1, "lsn": 10, "op": "c", "name": "Ann", "city": "Bern"},
    {"id": 1, "lsn": 12, "op": "u", "name": "Ann", "city": "Chur"},
    {"id": 1, "lsn": 14, "op": "d", "name": None, "city": None},
]


def changes() -> Harness:
    return Harness(Newest(), by="id", events=CHANGES, output=CHANGES)


def test_any_order_ends_with_the_newest_change() -> None:
    for order in itertools.permutations(HISTORY):
        table = changes()
        reported = [row for change in order for row in table.send(change)]
        assert reported[-1] == HISTORY[-1]
        assert [row["lsn"] for row in reported] == sorted(row["lsn"] for row in reported)


def test_a_change_that_is_sent_again_is_not_reported_again() -> None:
    table = changes()
    assert table.send(*HISTORY) == [HISTORY[-1]]
    assert table.send(*HISTORY) == []
