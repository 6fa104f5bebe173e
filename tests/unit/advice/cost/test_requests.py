"""How many requests a query makes: sums done by hand, from what was counted at an S3 server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.advice.prices import Money, Prices, monthly, request_money, total_text
from holdfast.advice.usage import (
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


def test_a_month_of_object_storage_worked_out_by_hand() -> None:
    """With the prices of the guide on the cost of state.

    50 GB of local disk at 0.10 are 5.00, 100 GB in the checkpoint at 0.023 are 2.30. A day has 1,000 writes
    and 2,000 lists at 5 for a million, 0.015, and 10,000 reads at 0.4 for a million, 0.004; for 730 hours,
    30.4166 days of 0.019, that is 0.5779. 2 GiB of memory at 3.50 are 7.00. All in all 14.8779.
    """
    prices = Prices(memory=3.5 * 10**9 / 2**30, writes=5e-6, lists=5e-6, reads=4e-7)
    money = monthly(
        prices,
        "s3",
        local_bytes=50 * 10**9,
        checkpoint_bytes=100 * 10**9,
        requests=Requests(writes=1000, lists=2000, reads=10_000, deletes=500),
        memory_bytes=2 * 2**30,
    )
    assert money.requests == pytest.approx(0.577917, abs=1e-6)
    assert money.memory == pytest.approx(7.0)
    assert money.total == pytest.approx(14.877917, abs=1e-6)
    assert money.unpriced == ()
    assert total_text(money, "USD") == "14.88 USD"


@pytest.mark.parametrize(
    ("prices", "text"),
    [
        (Prices(), "2.30 USD without requests and memory (no price given)"),
        (Prices(memory=1.0), "3.30 USD without requests (no price given)"),
        (Prices(memory=1.0, writes=0.0), "3.30 USD without reads (no price given)"),
        (Prices(memory=1.0, reads=0.0), "3.30 USD without writes (no price given)"),
        (Prices(memory=1.0, reads=0.0, lists=0.0), "3.30 USD without writes (no price given)"),
        (Prices(writes=0.0, reads=0.0), "2.30 USD without memory (no price given)"),
        (Prices(memory=1.0, writes=0.0, reads=0.0), "3.30 USD"),
    ],
)
def test_a_sum_says_what_it_leaves_out(prices: Prices, text: str) -> None:
    a_day = Requests(writes=10, lists=10, reads=10, deletes=10)
    money = monthly(prices, "s3", checkpoint_bytes=100 * 10**9, requests=a_day, memory_bytes=10**9)
    assert total_text(money, "USD") == text


def test_a_sum_leaves_nothing_out_where_nothing_is_used() -> None:
    assert monthly(Prices(), "hdfs", checkpoint_bytes=1.0, requests=Requests(writes=9)).unpriced == ()
    assert monthly(Prices(), "s3", checkpoint_bytes=1.0, requests=Requests()).unpriced == ()
    assert total_text(Money(), "USD") == "0.00 USD"
