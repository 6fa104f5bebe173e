"""What a plan comes to: worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from holdfast.advice.plan_forecast import ROW_OVERHEAD, PlannedState, forecast
from holdfast.advice.prices import Prices
from holdfast.errors import Invalid

# Six hundred thousand rows in a batch of a minute, of which a million keys have each its share.
PLAN = PlannedState(rate=10_000, keys=1_000_000, value_bytes=100, partitions=10)
ROW = 100 + 16 + ROW_OVERHEAD


def test_state_is_as_large_as_its_keys() -> None:
    found = forecast(PLAN)
    assert found.rows == 1_000_000
    assert found.state_bytes == 1_000_000 * ROW == found.local_bytes
    touched = 1_000_000 * (1 - math.exp(-0.6))
    assert found.batch_bytes == pytest.approx(touched * ROW, abs=1)
    # The changes of a hundred batches and of the ten before, and ten snapshots of almost every row.
    ten = 1_000_000 * (1 - math.exp(-6))
    assert found.retained_bytes == pytest.approx(touched * ROW * 110 + 10 * ten * ROW, rel=1e-6)
    assert found.requests is not None
    # Two logs, and two files of each store; each is made, and deleted at last.
    assert found.requests.per_batch.total == 2 * (24 + 3) + 10 * 2 * (22 + 3)


def test_state_on_the_heap_is_in_memory_and_on_no_disk() -> None:
    found = forecast(replace(PLAN, provider="memory"))
    assert found.local_bytes == 0
    assert found.memory_bytes > found.state_bytes
    assert forecast(PLAN).memory_bytes == found.state_bytes  # less than what RocksDB is given


def test_a_plan_on_disks_asks_no_object_store() -> None:
    found = forecast(replace(PLAN, medium="hdfs"), Prices(writes=1.0))
    assert found.requests is None
    assert found.money.requests is None
    assert found.money.checkpoint == pytest.approx(0.03 * found.checkpoint_bytes / 1e9)


def test_more_rows_and_keys_cost_more_and_longer_intervals_less() -> None:
    prices = Prices(writes=5e-6, reads=4e-7)
    usual = forecast(PLAN, prices).money.total
    assert forecast(replace(PLAN, keys=2_000_000), prices).money.total > usual
    assert forecast(replace(PLAN, rate=20_000), prices).money.total > usual
    assert forecast(replace(PLAN, interval_ms=120_000), prices).money.requests == pytest.approx(
        forecast(PLAN, prices).money.requests, rel=0.6
    )
    assert (forecast(replace(PLAN, interval_ms=120_000), prices).money.requests or 0) < (
        forecast(PLAN, prices).money.requests or 0
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": -1},
        {"rate": math.nan},
        {"rate": math.inf},
        {"keys": 0},
        {"value_bytes": -1},
        {"partitions": 0},
        {"interval_ms": 0},
        {"keys": 10**16},
        {"provider": "redis"},
        {"medium": "tape"},
    ],
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="of the planned job"):
        PlannedState(**{"rate": 1.0, "keys": 1, **wrong})  # type: ignore[arg-type]
