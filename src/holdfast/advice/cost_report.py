"""The report of the cost of a query's state, with the savings of possible changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from holdfast.advice.prices import Medium, Money, Prices, request_money, storage_money
from holdfast.advice.usage import DailyRequests, MeasuredCheckpoint, QueryShape, Requests, daily_requests
from holdfast.checkpoints.checkpoint import NAMES
from holdfast.config.checks import place_word
from holdfast.config.spark_defaults import CHANGELOG_KEY, COMPRESSION_KEY, RETAIN_KEY
from holdfast.config.units import exact_duration
from holdfast.formats.operators import OperatorName
from holdfast.json_shapes import JsonShape, json_spread
from holdfast.quantities import rounded_duration


class Origin(str, Enum):
    """The origin of a value in the report."""

    GIVEN = "given"
    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class StateCost(JsonShape):
    """The cost of one state of one operator.

    Attributes:
        named: The names of the operator.
        state: The name of the state.
        store: The name of its store; `default` if the operator has only one.
        stores: The number of stores: one per partition.
        local_bytes: Bytes on the local disks of executors while the query runs: the working copy.
        checkpoint_bytes: Bytes in the checkpoint for the newest batch, which a restart reads.
        retained_bytes: Further bytes in the checkpoint: files that only older batches need, and checksums.
        savepoint_bytes: Bytes in the query's savepoints, shared objects counted once.
        memory_bytes: Bytes in memory while the query runs; null if unknown.
        requests: Requests to object storage per day, for batches and their share of maintenance; null if the
            checkpoint is elsewhere, or the interval is unknown.
        money: The cost per month.
    """

    named: OperatorName = field(metadata=json_spread(*NAMES, "operator_id"))
    state: str
    store: str
    stores: int
    local_bytes: int
    checkpoint_bytes: int
    retained_bytes: int
    savepoint_bytes: int
    memory_bytes: int | None
    requests: Requests | None
    money: Money


@dataclass(frozen=True, slots=True)
class Saving(JsonShape):
    """A possible change and its savings.

    Attributes:
        kind: `retention`, `changelog`, `interval`, `ttl`, `partitions` or `compression`.
        what: The change, from the current to the new value.
        saves_bytes: Bytes saved in the checkpoint.
        saves_requests: Requests to object storage saved per day; null if unknown.
        saves_money: Money saved per month, for items with known prices.
        safe: Whether results and recoveries stay the same.
        price: The drawback, as a sentence.
        recovery_ms: Additional recovery time in milliseconds, estimated; null if unknown.
        how: The command or setting.
    """

    kind: str
    what: str
    saves_bytes: int
    saves_requests: float | None
    saves_money: float
    safe: bool
    price: str
    recovery_ms: int | None
    how: str


@dataclass(frozen=True, slots=True)
class CostReport(JsonShape):
    """The cost of a query's state.

    Attributes:
        place: The address of the checkpoint or savepoint.
        is_savepoint: Whether the address is a savepoint.
        batch_id: The newest committed batch; null before the first.
        provider: The state store provider: `rocksdb` or `memory`; null without state.
        medium: The storage of the checkpoint: `local`, `hdfs`, or `s3` for any object store.
        batches: The number of kept batches.
        interval_ms: The time from one batch to the next, in milliseconds; null if unknown.
        interval_from: `given`, or `measured` from the kept batches.
        states: The cost of each state of each operator.
        other_bytes: Bytes in the checkpoint other than state: logs, sources and metadata.
        catalogs: The savepoint catalogs that were searched.
        savepoints: The number of the query's savepoints in them.
        savepoint_bytes: Bytes of these savepoints, shared objects counted once.
        local_bytes: Bytes on the local disks of executors, all states together.
        checkpoint_bytes: Bytes in the checkpoint, in total.
        memory_bytes: Bytes in memory, all states together; null if one is unknown.
        memory_from: `measured` in the job's newest batch, or `estimated` from files.
        requests: Requests to object storage per day; null if unknown.
        money: The cost per month.
        prices: The prices used.
        changes: The possible changes with their savings, largest saving first.

    Example:
        report: hf.CostReport = hf.cost("checkpoints/visits")
        assert [cost.state for cost in report.states] == ["aggregate"]
    """

    place: str
    is_savepoint: bool
    batch_id: int | None
    provider: str | None
    medium: str
    batches: int
    interval_ms: int | None
    interval_from: Origin | None
    states: tuple[StateCost, ...]
    other_bytes: int
    catalogs: tuple[str, ...]
    savepoints: int
    savepoint_bytes: int
    local_bytes: int
    checkpoint_bytes: int
    memory_bytes: int | None
    memory_from: Origin | None
    requests: DailyRequests | None
    money: Money
    prices: Prices
    changes: tuple[Saving, ...]


# This number of batches is enough to go back behind a bad one.
_FEW_BATCHES: Final = 10
# A store of this size is loaded within seconds.
_LARGE_STORE: Final = 128 << 20
_FEWEST_PARTITIONS: Final = 2
# The speed at which a task loads a store, and the wait for each file.
_BYTES_PER_MS: Final = 100_000
_FILE_MS: Final = {"s3": 50, "hdfs": 10, "local": 1}
# Savings smaller than this are ignored.
_LEAST_SHARE: Final = 0.05


def estimate_load_ms(size_bytes: int, files: int, medium: str, tasks: int) -> int:
    """Estimate the time for tasks to load state, from its bytes and a latency for each file."""
    return round((size_bytes / _BYTES_PER_MS + files * _FILE_MS[medium]) / tasks)


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts from which possible savings are estimated.

    Attributes:
        measured: The checkpoint.
        prices: The prices used.
        medium: The storage of the checkpoint.
        place: The address of the checkpoint.
        interval_ms: The time from one batch to the next; None if unknown.
        packed: The share by which zstd would shrink the changes; None if unknown, or if the codec is zstd.
        codec: The codec of the changes.
    """

    measured: MeasuredCheckpoint
    prices: Prices
    medium: Medium
    place: str
    interval_ms: int | None
    packed: float | None
    codec: str

    @property
    def state_bytes(self) -> int:
        """Return the bytes that a restart reads."""
        return sum(self.measured.newest.values())

    @property
    def retained_bytes(self) -> int:
        """Return the bytes that only older batches need."""
        return sum(self.measured.all_of_state.values()) - self.state_bytes

    def requests(self, shape: QueryShape, interval_ms: float | None = None) -> Requests | None:
        """Return the requests per day with a different shape or interval."""
        if self.medium != "s3" or self.interval_ms is None:
            return None
        return daily_requests(shape, interval_ms or self.interval_ms).total


def changes(now: Situation) -> tuple[Saving, ...]:
    """Return the changes that have savings, ordered by money, then requests, then bytes."""
    if not now.measured.checkpoint.operators:
        return tuple(_interval(now))
    found = [
        change
        for each in (_retention, _changelog, _interval, _ttl, _partitions, _compression)
        for change in each(now)
    ]
    return tuple(
        sorted(found, key=lambda it: (-it.saves_money, -(it.saves_requests or 0), -it.saves_bytes, it.kind))
    )


def _retention(now: Situation) -> Iterator[Saving]:
    kept = len(now.measured.checkpoint.committed)
    if kept <= _FEW_BATCHES:
        return
    freed = round(now.retained_bytes * (1 - _FEW_BATCHES / kept))
    reach = "" if now.interval_ms is None else f", {rounded_duration(now.interval_ms * _FEW_BATCHES)}"
    yield _change(
        now,
        "retention",
        f"keep {_FEW_BATCHES} batches instead of {kept}",
        freed,
        None,
        safe=True,
        price=f"a rollback can go back only {_FEW_BATCHES} batches{reach}; savepoints are unaffected",
        recovery_ms=0,
        how=f"{RETAIN_KEY}={_FEW_BATCHES}, or hf.Checkpoint(retain={_FEW_BATCHES})",
    )


def _changelog(now: Situation) -> Iterator[Saving]:
    shape = now.measured.shape
    if not shape.rocksdb or shape.incremental:
        return
    then = replace(shape, incremental=True)
    files = then.deltas_for_snapshot
    yield _change(
        now,
        "changelog",
        "write changes instead of snapshots in each batch",
        0,
        _fewer(now.requests(shape), now.requests(then)),
        safe=False,
        price=f"a restart replays the changes of up to {files} batches",
        recovery_ms=files * _FILE_MS[now.medium],
        how=f"{CHANGELOG_KEY}=true, or hf.Checkpoint(incremental=True)",
    )


def _interval(now: Situation) -> Iterator[Saving]:
    if now.interval_ms is None or now.medium != "s3":
        return
    shape, then = now.measured.shape, now.interval_ms * 2
    yield _change(
        now,
        "interval",
        f"one batch every {rounded_duration(then)} instead of every {rounded_duration(now.interval_ms)}",
        0,
        _fewer(now.requests(shape), now.requests(shape, then)),
        safe=False,
        price=(
            f"results arrive up to {rounded_duration(now.interval_ms)} later; a failed batch repeats"
            " more work"
        ),
        recovery_ms=now.interval_ms,
        how=f"hf.every({exact_duration(then)!r}), or trigger(processingTime='{then} milliseconds')",
    )


def _ttl(now: Situation) -> Iterator[Saving]:
    if not now.state_bytes:
        return
    held = now.state_bytes + now.retained_bytes
    yield _change(
        now,
        "ttl",
        "a TTL, for each tenth of the rows that it removes",
        held // 10,
        None,
        safe=False,
        price="expired rows are lost, and results of their keys start from scratch",
        recovery_ms=0,
        how=f"holdfast ttl {place_word(now.place)} --what-if 24h",
        local_bytes=now.state_bytes // 10 if now.measured.provider == "rocksdb" else 0,
    )


def _partitions(now: Situation) -> Iterator[Saving]:
    operators = [each for each in now.measured.checkpoint.operators if not each.gathered]
    if not operators:
        return
    count = max(operator.partitions for operator in operators)
    largest = max(operator.size_bytes for operator in operators)
    wanted = max(_FEWEST_PARTITIONS, math.ceil(largest / _LARGE_STORE))
    shape = now.measured.shape
    if wanted >= count:
        return
    stores = sum(
        len(operator.stores) if operator.gathered else len(operator.store_names) * wanted
        for operator in now.measured.checkpoint.operators
    )
    saved = _fewer(now.requests(shape), now.requests(replace(shape, stores=stores)))
    if not saved:
        return
    yield _change(
        now,
        "partitions",
        f"{wanted} partitions instead of {count}",
        0,
        saved,
        safe=False,
        price=f"at most {wanted} tasks run in parallel, and each loads {count / wanted:.3g} times as much",
        recovery_ms=round(largest / _BYTES_PER_MS * (1 / wanted - 1 / count)),
        how=f"holdfast rescale {place_word(now.place)} --partitions {wanted} --confirm-stopped",
    )


def _compression(now: Situation) -> Iterator[Saving]:
    if now.packed is None or now.packed < _LEAST_SHARE:
        return
    yield _change(
        now,
        "compression",
        f"changes compressed with zstd instead of {now.codec}",
        round(now.retained_bytes * now.packed),
        None,
        safe=True,
        price="applies to new checkpoints only, and uses more CPU",
        recovery_ms=0,
        how=f"{COMPRESSION_KEY}=zstd, or hf.Checkpoint(compression='zstd')",
    )


def _change(
    now: Situation,
    kind: str,
    what: str,
    saves_bytes: int,
    saved: Requests | None,
    *,
    safe: bool,
    price: str,
    recovery_ms: int | None,
    how: str,
    local_bytes: int = 0,
) -> Saving:
    money = storage_money(now.prices, now.medium, saves_bytes)
    money += storage_money(now.prices, "local", local_bytes)
    if saved is not None:
        money += request_money(now.prices, saved) or 0.0
    requests = None if saved is None else saved.total
    return Saving(kind, what, saves_bytes, requests, money, safe, price, recovery_ms, how)


def _fewer(now: Requests | None, then: Requests | None) -> Requests | None:
    return None if now is None or then is None else now + then.times(-1)
