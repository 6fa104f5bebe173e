"""How many requests a query makes: sums done by hand, from what was counted at an S3 server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.advice.cost.money import monthly, request_money
from holdfast.advice.cost.prices import Prices
from holdfast.advice.cost.requests import (
    LOG_FILE,
    WHOLE_FILE,
    QueryShape,
    Requests,
    batch_requests,
    daily_requests,
    maintenance_requests,
)

# A batch of two stores with changes and checksums, before anything is deleted: counted, 136 requests.
TWO = QueryShape(stores=2)


def test_a_file_of_a_checkpoint_costs_twenty_two_requests() -> None:
    assert Requests(writes=2, lists=8, reads=11, deletes=1) == WHOLE_FILE
    assert WHOLE_FILE.total == 22
    assert LOG_FILE.total == 24


@pytest.mark.parametrize(
    ("shape", "counted"),
    [
        # As counted, 136, 224, 92 and 92 without deletions; each file is deleted with 3 requests more.
        (TWO, 136 + 3 * (2 + 4)),
        (replace(TWO, stores=4), 224 + 3 * (2 + 8)),
        (replace(TWO, checksums=False), 92 + 3 * (2 + 2)),
        (replace(TWO, checksums=False, rocksdb=False), 92 + 3 * (2 + 2)),
        # A snapshot with a new file of data: 3 to write that, 5 to delete it.
        (replace(TWO, incremental=False), 136 + 2 * 3 + 3 * (2 + 4) + 2 * 5),
        # A source with a log in the checkpoint.
        (replace(TWO, log_sources=1), 136 + 24 + 3 * (3 + 4)),
        (replace(TWO, stores=0), 48 + 6),
    ],
)
def test_a_batch_asks_as_often_as_was_counted(shape: QueryShape, counted: int) -> None:
    assert batch_requests(shape).total == counted


def test_maintenance_lists_each_store_and_makes_snapshots() -> None:
    # A minute of batches of a second: one snapshot of each store, though six times ten have gone by.
    snapshot = 2 * (22 + 3) + 3 + 5
    assert maintenance_requests(TWO, 1000).total == 2 * (1 + snapshot + 3)
    # Batches of ten minutes: one snapshot in a hundred passes.
    assert maintenance_requests(TWO, 600_000).total == pytest.approx(2 * (1 + (snapshot + 3) / 100))
    # Without changes batches make the snapshots, and each pass cleans up behind them.
    assert maintenance_requests(replace(TWO, incremental=False), 1000).total == 2 * (1 + 3)
    heap = replace(TWO, rocksdb=False, checksums=False)
    assert maintenance_requests(heap, 1000).total == 2 * (2 + 22 + 3)


def test_a_day_has_its_batches_and_its_maintenance() -> None:
    day = daily_requests(TWO, 60_000)
    assert day.batches == 1440
    assert day.per_batch.total == 154
    assert day.maintenance.total == pytest.approx(1440 * 2 * (1 + 61 / 10))
    assert day.total.total == pytest.approx(154 * 1440 + day.maintenance.total)


def test_requests_cost_what_their_prices_say() -> None:
    day = Requests(writes=1000, lists=100, reads=10_000, deletes=50)
    prices = Prices(writes=5e-6, reads=4e-7)
    # A list costs what a write does: 1,100 * 0.000005 + 10,000 * 0.0000004, for 30.42 days.
    assert request_money(prices, day) == pytest.approx((0.0055 + 0.004) * 730 / 24)
    assert request_money(replace(prices, lists=0.0), day) == pytest.approx((0.005 + 0.004) * 730 / 24)
    assert request_money(Prices(), day) is None


def test_a_month_adds_up() -> None:
    money = monthly(
        Prices(memory=3.0, writes=1e-6),
        "s3",
        local_bytes=10**10,
        checkpoint_bytes=2 * 10**10,
        savepoint_bytes=10**9,
        requests=Requests(writes=24_000),
        memory_bytes=10**9,
    )
    assert money.local == pytest.approx(1.0)
    assert money.checkpoint == pytest.approx(0.46)
    assert money.savepoints == pytest.approx(0.023)
    assert money.requests == pytest.approx(0.73)
    assert money.memory == pytest.approx(3.0)
    assert money.total == pytest.approx(1.0 + 0.46 + 0.023 + 0.73 + 3.0)
    assert monthly(Prices(writes=1.0), "hdfs", requests=Requests(writes=9)).requests is None
