"""What a query's state costs, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.advice.cost.money import Money
from holdfast.advice.cost.prices import Prices
from holdfast.advice.cost.requests import DailyRequests, Requests
from holdfast.checkpoints.values import NAMES
from holdfast.formats.operators import OperatorName
from holdfast.json_shapes import JsonShape, json_spread


class Origin(str, Enum):
    """Where a figure comes from."""

    GIVEN = "given"
    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class StateCost(JsonShape):
    """What one state of one operator costs.

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
class Change(JsonShape):
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
    """What the state of a query costs.

    Attributes:
        place: The checkpoint or savepoint.
        is_savepoint: Whether it is a savepoint.
        batch_id: Its newest committed batch; null before the first.
        provider: Where the stores keep state: `rocksdb` or `memory`; null without state.
        medium: What the checkpoint is on: `local`, `hdfs`, or `s3` for every object store.
        batches: How many batches the checkpoint keeps.
        interval_ms: The time from one batch to the next; null where nobody knows.
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
    changes: tuple[Change, ...]
