"""Forecast the cost of a planned job's state, from its rows per second and its keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, get_args

from holdfast.advice.prices import Medium, Money, Prices, monthly
from holdfast.advice.usage import DELTAS_FOR_SNAPSHOT, RETAIN, DailyRequests, QueryShape, daily_requests
from holdfast.errors import Invalid
from holdfast.json_shapes import JsonShape, in_json

HEAP: Final = "memory"
ROCKSDB: Final = "rocksdb"
# Bytes per row in addition to its key and value: each is a Spark row with a word of null bits, a word per
# field, and its checksum, and the store adds lengths and a version.
ROW_OVERHEAD: Final = 48
# On the heap, a row is two objects in a map, in each of the two versions that Spark keeps, which share the
# rows themselves.
_HEAP_OVERHEAD: Final = 160
# Spark's default budget for all RocksDB stores of an executor, if bounded.
_ROCKSDB_BUDGET: Final = 500 << 20
_MOST: Final = 10**15


@dataclass(frozen=True, slots=True)
class PlannedState(JsonShape):
    """A planned job.

    Attributes:
        rate: Rows per second.
        keys: Distinct keys in the state at one time.
        value_bytes: Bytes of one value.
        key_bytes: Bytes of one key.
        interval_ms: The time from one batch to the next.
        partitions: Partitions of the state.
        stores: Stores per partition: four for a stream-stream join in Spark's older format, otherwise one.
        provider: `rocksdb`, or `memory` for state on the heap.
        incremental: Whether each batch writes only its changes.
        retain: The number of kept batches.
        medium: The storage of the checkpoint: `local`, `hdfs` or `s3`.
        deltas_for_snapshot: The number of batches from one snapshot to the next.
    """

    rate: float
    keys: int
    value_bytes: int = 100
    key_bytes: int = 16
    interval_ms: int = 60_000
    partitions: int = 200
    stores: int = 1
    provider: str = ROCKSDB
    incremental: bool = True
    retain: int = RETAIN
    medium: Medium = "s3"
    deltas_for_snapshot: int = DELTAS_FOR_SNAPSHOT

    def __post_init__(self) -> None:
        if not math.isfinite(self.rate) or not 0 < self.rate <= _MOST:
            raise _refused("rate", self.rate, "more than 0 rows per second, at most 10^15")
        for name in ("keys", "value_bytes", "key_bytes", "interval_ms", "partitions", "stores", "retain"):
            number = getattr(self, name)
            if not 0 < number <= _MOST:
                raise _refused(name.replace("_", " "), number, "at least 1, at most 10^15")
        if self.provider not in (ROCKSDB, HEAP):
            raise _refused("provider", self.provider, f"{ROCKSDB} or {HEAP}")
        if self.medium not in get_args(Medium):
            raise _refused("medium", self.medium, "local, hdfs or s3")

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row of state."""
        return self.key_bytes + self.value_bytes + ROW_OVERHEAD

    def touched(self, batches: float) -> float:
        """Return the expected number of distinct keys in this number of batches, for equally likely keys.

        The number is lower if some keys are more likely than others.
        """
        rows = self.rate * self.interval_ms / 1000 * batches
        return self.keys * -math.expm1(-rows / self.keys)


@dataclass(frozen=True, slots=True)
class CostForecast(JsonShape):
    """The cost of a plan once all of its keys have arrived.

    Attributes:
        plan: The plan.
        rows: Rows of state.
        state_bytes: Bytes of state that a restart reads, without changes since the last snapshot.
        local_bytes: Bytes on the local disks of executors.
        batch_bytes: Bytes that a batch writes.
        retained_bytes: Bytes in the checkpoint that only older batches need.
        memory_bytes: Bytes in memory: the whole state on the heap, or RocksDB's cache.
        requests: Requests per day; None if the checkpoint is not in object storage.
        money: The cost per month.
        prices: The prices used.
        assumed: The assumptions of the forecast.

    Example:
        forecast: hf.CostForecast = hf.forecast_cost(rate=500, keys=1_000_000)
        assert forecast.checkpoint_bytes == forecast.state_bytes + forecast.retained_bytes
    """

    plan: PlannedState
    rows: int
    state_bytes: int
    local_bytes: int
    batch_bytes: int
    retained_bytes: int
    memory_bytes: int
    requests: DailyRequests | None
    money: Money
    prices: Prices
    assumed: tuple[str, ...]

    @property
    @in_json
    def checkpoint_bytes(self) -> int:
        """Return all bytes of the checkpoint."""
        return self.state_bytes + self.retained_bytes


def shape_of(plan: PlannedState) -> QueryShape:
    """Return the properties of a plan that decide the number of its requests."""
    return QueryShape(
        stores=plan.partitions * plan.stores,
        incremental=plan.incremental or plan.provider == HEAP,
        rocksdb=plan.provider == ROCKSDB,
        deltas_for_snapshot=plan.deltas_for_snapshot,
    )


def forecast(plan: PlannedState, prices: Prices | None = None) -> CostForecast:
    """Forecast the cost of a plan.

    The result is an upper bound: bytes are counted before compression, and keys are assumed to be equally
    likely.

    Args:
        plan: The plan.
        prices: The prices; None for the defaults.
    """
    paid = prices or Prices()
    state_bytes = plan.keys * plan.row_bytes
    batch_bytes = round(plan.touched(1) * plan.row_bytes)
    # RocksDB's snapshots share unchanged data; those of the heap store share nothing.
    apart = plan.deltas_for_snapshot if plan.incremental or plan.provider == HEAP else 1
    again = state_bytes if plan.provider == HEAP else min(state_bytes, plan.touched(apart) * plan.row_bytes)
    changes = batch_bytes * (plan.retain + apart) if apart > 1 else 0
    retained_bytes = round(changes + again * plan.retain / apart)
    if plan.provider == HEAP:
        local_bytes, memory_bytes = 0, plan.keys * (plan.row_bytes + _HEAP_OVERHEAD)
    else:
        local_bytes, memory_bytes = state_bytes, min(state_bytes, _ROCKSDB_BUDGET)
    requests = daily_requests(shape_of(plan), plan.interval_ms) if plan.medium == "s3" else None
    money = monthly(
        paid,
        plan.medium,
        local_bytes=local_bytes,
        checkpoint_bytes=state_bytes + retained_bytes,
        requests=None if requests is None else requests.total,
        memory_bytes=memory_bytes,
    )
    return CostForecast(
        plan,
        plan.keys,
        state_bytes,
        local_bytes,
        batch_bytes,
        retained_bytes,
        memory_bytes,
        requests,
        money,
        paid,
        (
            "rows are counted before compression",
            "all keys are equally likely",
            f"a row takes {ROW_OVERHEAD} bytes in addition to its key and value",
        ),
    )


def _refused(name: str, found: object, expected: str) -> Invalid:
    return Invalid(
        f"invalid {name} of the planned job",
        code="HF-E2006",
        found=str(found),
        expected=expected,
        hint="correct the value; list the options of a planned job with `holdfast advise --help`",
    )
