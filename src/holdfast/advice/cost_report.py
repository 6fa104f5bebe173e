"""The report of what a query's state costs, with the savings that settings would bring."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from holdfast.advice.prices import Money, Prices, request_money, storage_money
from holdfast.advice.usage import DailyRequests, MeasuredCheckpoint, QueryShape, Requests, daily_requests
from holdfast.checkpoints.checkpoint import NAMES
from holdfast.config.checks import place_word
from holdfast.config.spark_defaults import CHANGELOG_KEY, COMPRESSION_KEY, RETAIN_KEY
from holdfast.config.units import exact_duration, rounded_duration
from holdfast.formats.operators import OperatorName
from holdfast.json_shapes import JsonShape, json_spread


class Origin(str, Enum):
    """The origin of a figure."""

    GIVEN = "given"
    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class StateCost(JsonShape):
    """The cost of one state of one operator.

    Attributes:
        named: What the operator is called.
        state: What people call the state.
        store: The name of its store; `default` where the operator has one only.
        stores: How many stores it is in: one for each partition.
        local_bytes: On the disks of executors while the query runs: its working copy.
        checkpoint_bytes: In the checkpoint, for the newest batch: what a restart reads.
        retained_bytes: In the checkpoint beside that: what only older batches need, and checksums.
        savepoint_bytes: In the savepoints of the query, what they share counted once.
        memory_bytes: In memory while the query runs; null where that is not known.
        requests: What a batch and its share of the maintenance ask of object storage in a day; null where the
            checkpoint is not in one, or nobody knows how often a batch comes.
        money: What a month costs.
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
    """A change, and what it would save.

    Attributes:
        kind: `retention`, `changelog`, `interval`, `ttl`, `partitions` or `compression`.
        what: What to change, with what it is now and what it would be.
        saves_bytes: Bytes in the checkpoint that would go.
        saves_requests: Requests to object storage that a day would have fewer; null where they are not known.
        saves_money: What a month would cost less, as far as that has a price.
        safe: Whether results and recoveries stay as they are.
        price: What it costs instead, in words.
        recovery_ms: How much longer a recovery would take, by the model; null where it is not known.
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
        place: The checkpoint or savepoint.
        is_savepoint: Whether it is a savepoint.
        batch_id: Its newest committed batch; null before the first.
        provider: Where the stores keep state: `rocksdb` or `memory`; null without state.
        medium: What the checkpoint is on: `local`, `hdfs`, or `s3` for every object store.
        batches: How many batches the checkpoint keeps.
        interval_ms: The time from one batch to the next; null if unknown.
        interval_from: `given`, or `measured` from the kept batches.
        states: Each state of each operator.
        other_bytes: In the checkpoint beside state: logs, sources and notes.
        catalogs: The directories in which savepoints were looked for.
        savepoints: The number of the query's savepoints in them.
        savepoint_bytes: Their bytes, what they share counted once.
        local_bytes: On the disks of executors, all states together.
        checkpoint_bytes: In the checkpoint, all of it.
        memory_bytes: In memory, all states together; null where one is not known.
        memory_from: `measured` by the job's newest batch, or `estimated` from files.
        requests: What a day asks of object storage; null where that is not known.
        money: What a month costs.
        prices: What is paid.
        changes: What each change would save, the most first.
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


def estimate_load_ms(size_bytes: int, files: int, medium: str, tasks: int) -> int:
    """Estimate how long tasks take to load state: each reads its share of the bytes and waits for each file."""
    return round((size_bytes / _BYTES_PER_MS + files * _FILE_MS[medium]) / tasks)


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts by which possible savings are judged.

    Attributes:
        measured: The checkpoint.
        prices: What is paid.
        medium: What the checkpoint is on.
        place: The checkpoint.
        interval_ms: The time from one batch to the next; None if unknown.
        packed: How much smaller than now zstd would make the changes, as a share; None where that is not
            known, or the codec is zstd.
        codec: The codec of the changes.
    """

    measured: MeasuredCheckpoint
    prices: Prices
    medium: str
    place: str
    interval_ms: int | None
    packed: float | None
    codec: str

    @property
    def state_bytes(self) -> int:
        """The bytes that a restart reads."""
        return sum(self.measured.newest.values())

    @property
    def retained_bytes(self) -> int:
        """The bytes that only older batches need."""
        return sum(self.measured.all_of_state.values()) - self.state_bytes

    def requests(self, shape: QueryShape, interval_ms: float | None = None) -> Requests | None:
        """The requests of a day with another shape or interval."""
        if self.medium != "s3" or self.interval_ms is None:
            return None
        return daily_requests(shape, interval_ms or self.interval_ms).total


def changes(now: Situation) -> tuple[Saving, ...]:
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


def _retention(now: Situation) -> Iterator[Saving]:
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


def _changelog(now: Situation) -> Iterator[Saving]:
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


def _interval(now: Situation) -> Iterator[Saving]:
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


def _ttl(now: Situation) -> Iterator[Saving]:
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
        f"{wanted} partitions, not {count}",
        0,
        saved,
        safe=False,
        price=f"at most {wanted} tasks work side by side, and each loads {count / wanted:.3g} times as much",
        recovery_ms=round(largest / _BYTES_PER_MS * (1 / wanted - 1 / count)),
        how=f"holdfast rescale {place_word(now.place)} --partitions {wanted} --stopped",
    )


def _compression(now: Situation) -> Iterator[Saving]:
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
) -> Saving:
    money = storage_money(now.prices, now.medium, saves_bytes)
    money += storage_money(now.prices, "local", local_bytes)
    if saved is not None:
        money += request_money(now.prices, saved) or 0.0
    requests = None if saved is None else saved.total
    return Saving(kind, what, saves_bytes, requests, money, safe, price, recovery_ms, how)


def _fewer(now: Requests | None, then: Requests | None) -> Requests | None:
    return None if now is None or then is None else now + then.times(-1)
