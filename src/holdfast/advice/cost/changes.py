"""What each change of a setting would save, and what it costs instead."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from holdfast.advice.cost.measured import Measured
from holdfast.advice.cost.money import request_money, storage_money
from holdfast.advice.cost.prices import Prices
from holdfast.advice.cost.report import Change
from holdfast.advice.cost.requests import QueryShape, Requests, daily_requests
from holdfast.config.locations import place_word
from holdfast.config.spark_defaults import CHANGELOG_KEY, COMPRESSION_KEY, RETAIN_KEY
from holdfast.config.units import exact_duration, rounded_duration

# So many batches are enough to go back behind a bad one.
_FEW_BATCHES: Final = 10
# A store of this size is still loaded within seconds.
_LARGE_STORE: Final = 128 << 20
_FEWEST_PARTITIONS: Final = 2
# How quickly a task loads a store, and what it waits for each file.
_BYTES_PER_MS: Final = 100_000
_FILE_MS: Final = {"s3": 50, "hdfs": 10, "local": 1}
# A saving below this is none.
_LEAST_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Situation:
    """What the changes are judged by.

    Attributes:
        measured: The checkpoint.
        prices: What is paid.
        medium: What the checkpoint is on.
        place: The checkpoint.
        interval_ms: The time from one batch to the next; None where nobody knows.
        packed: How much smaller than now zstd would make the changes, as a share; None where that is not
            known, or the codec is zstd.
        codec: The codec of the changes.
    """

    measured: Measured
    prices: Prices
    medium: str
    place: str
    interval_ms: int | None
    packed: float | None
    codec: str

    @property
    def state_bytes(self) -> int:
        """What a restart reads."""
        return sum(self.measured.newest.values())

    @property
    def retained_bytes(self) -> int:
        """What only older batches need."""
        return sum(self.measured.all_of_state.values()) - self.state_bytes

    def requests(self, shape: QueryShape, interval_ms: float | None = None) -> Requests | None:
        """The requests of a day with another shape or interval."""
        if self.medium != "s3" or self.interval_ms is None:
            return None
        return daily_requests(shape, interval_ms or self.interval_ms).total


def changes(now: Situation) -> tuple[Change, ...]:
    """The changes that would save something, the most money first, then the most requests and bytes."""
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


def _retention(now: Situation) -> Iterator[Change]:
    kept = len(now.measured.checkpoint.committed)
    if kept <= _FEW_BATCHES:
        return
    freed = round(now.retained_bytes * (1 - _FEW_BATCHES / kept))
    reach = "" if now.interval_ms is None else f", {rounded_duration(now.interval_ms * _FEW_BATCHES)}"
    yield _change(
        now,
        "retention",
        f"keep {_FEW_BATCHES} batches, not {kept}",
        freed,
        None,
        safe=True,
        price=f"a rollback reaches back {_FEW_BATCHES} batches{reach}; savepoints are not touched",
        recovery_ms=0,
        how=f"{RETAIN_KEY}={_FEW_BATCHES}, or hf.Checkpoint(retain={_FEW_BATCHES})",
    )


def _changelog(now: Situation) -> Iterator[Change]:
    shape = now.measured.shape
    if not shape.rocksdb or shape.incremental:
        return
    then = replace(shape, incremental=True)
    files = then.deltas_for_snapshot
    yield _change(
        now,
        "changelog",
        "let batches write their changes, not snapshots",
        0,
        _fewer(now.requests(shape), now.requests(then)),
        safe=False,
        price=f"a restart replays the changes of up to {files} batches",
        recovery_ms=files * _FILE_MS[now.medium],
        how=f"{CHANGELOG_KEY}=true, or hf.Checkpoint(incremental=True)",
    )


def _interval(now: Situation) -> Iterator[Change]:
    if now.interval_ms is None or now.medium != "s3":
        return
    shape, then = now.measured.shape, now.interval_ms * 2
    yield _change(
        now,
        "interval",
        f"a batch every {rounded_duration(then)}, not every {rounded_duration(now.interval_ms)}",
        0,
        _fewer(now.requests(shape), now.requests(shape, then)),
        safe=False,
        price=f"results come up to {rounded_duration(now.interval_ms)} later; a failed batch repeats more",
        recovery_ms=now.interval_ms,
        how=f"hf.every({exact_duration(then)!r}), or trigger(processingTime='{then} milliseconds')",
    )


def _ttl(now: Situation) -> Iterator[Change]:
    if not now.state_bytes:
        return
    held = now.state_bytes + now.retained_bytes
    yield _change(
        now,
        "ttl",
        "a time to live, for each tenth of the rows that it frees",
        held // 10,
        None,
        safe=False,
        price="what has expired is forgotten, and results of such keys begin anew",
        recovery_ms=0,
        how=f"holdfast ttl {place_word(now.place)} --what-if 24h",
        local_bytes=now.state_bytes // 10 if now.measured.provider == "rocksdb" else 0,
    )


def _partitions(now: Situation) -> Iterator[Change]:
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
        f"{wanted} partitions, not {count}",
        0,
        saved,
        safe=False,
        price=f"at most {wanted} tasks work side by side, and each loads {count / wanted:.3g} times as much",
        recovery_ms=round(largest / _BYTES_PER_MS * (1 / wanted - 1 / count)),
        how=f"holdfast rescale {place_word(now.place)} --partitions {wanted} --stopped",
    )


def _compression(now: Situation) -> Iterator[Change]:
    if now.packed is None or now.packed < _LEAST_SHARE:
        return
    yield _change(
        now,
        "compression",
        f"changes compressed with zstd, not {now.codec}",
        round(now.retained_bytes * now.packed),
        None,
        safe=True,
        price="it holds for a new checkpoint, and takes more of the processor",
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
) -> Change:
    money = storage_money(now.prices, now.medium, saves_bytes)
    money += storage_money(now.prices, "local", local_bytes)
    if saved is not None:
        money += request_money(now.prices, saved) or 0.0
    requests = None if saved is None else saved.total
    return Change(kind, what, saves_bytes, requests, money, safe, price, recovery_ms, how)


def _fewer(now: Requests | None, then: Requests | None) -> Requests | None:
    return None if now is None or then is None else now + then.times(-1)
