"""Advice on the backend of state and on the location of checkpoints."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.advice.advice import Advice, AdviceKind, Confidence, Cost, Option, Topic, migrate
from holdfast.advice.checkpoint_advice import requests_a_day
from holdfast.advice.checkpoint_checks import Lasting, heap_outgrown
from holdfast.advice.evidence import (
    BACKENDS,
    CASSANDRA,
    MEMORY,
    REDIS,
    ROCKSDB,
    VALUE_BYTES,
    Evidence,
    MeasuredBackends,
)
from holdfast.advice.findings import Severity
from holdfast.advice.prices import Medium, Money, Prices, medium_of, monthly
from holdfast.advice.usage import Requests
from holdfast.config.backend import Backend, Memory, RocksDB
from holdfast.config.database_stores import Cassandra, Redis
from holdfast.config.spark_defaults import (
    CASSANDRA_PROVIDER,
    MEMORY_PROVIDER,
    REDIS_PROVIDER,
    ROCKSDB_PROVIDER,
)
from holdfast.formats.operators import KEYED_WORDS
from holdfast.formats.providers import provider_class
from holdfast.quantities import rounded_duration, rounded_size

_PROVIDERS: Final = {
    MEMORY_PROVIDER: MEMORY,
    ROCKSDB_PROVIDER: ROCKSDB,
    REDIS_PROVIDER: REDIS,
    CASSANDRA_PROVIDER: CASSANDRA,
}
_MADE: Final[dict[str, type[Backend]]] = {
    MEMORY: Memory,
    ROCKSDB: RocksDB,
    REDIS: Redis,
    CASSANDRA: Cassandra,
}
BUILT_IN, KEYED, OWN = "built-in", "keyed", "own"
# The maximum size of state that fits easily into the memory of one server, or of the executors' heap.
_ONE_SERVER: Final = 64 << 30
_LARGE_HEAP: Final = 100 << 20
_HEAP: Final = 1 << 30
_MOST_HEAP: Final = 100 << 30
_QUICK_MS: Final = 1_000
_SLOW_RESTART_MS: Final = 60_000
_MOST_KEYS: Final = 0.5
# The number of versions of state on the heap.
_VERSIONS: Final = 2

HEAP_OUTGROWN = AdviceKind(
    "AD101",
    "heap-outgrown",
    Topic.BACKEND,
    Severity.WARNING,
    Confidence.CERTAIN,
    "State on the heap, at least 100 MB in the checkpoint.",
    "The memory that a job's newest batch reports, which is certain; otherwise two versions of the state in"
    " the checkpoint, which is a minimum and likely.",
    "Move the state to RocksDB; the move verifies every row.",
    "HF301",
)
SHARED = AdviceKind(
    "AD102",
    "not-shared",
    Topic.BACKEND,
    Severity.WARNING,
    Confidence.CERTAIN,
    "`--shared`, and state in files of the checkpoint, which other services cannot read.",
    "The size of the state in that database, from the backend measurements.",
    "Move the state to Redis, or to Cassandra if the state would exceed 64 GiB.",
)
SLOW_RESTART = AdviceKind(
    "AD103",
    "slow-restart",
    Topic.BACKEND,
    Severity.NOTE,
    Confidence.LIKELY,
    "State in files that takes at least one minute to load, estimated from its rows (or its bytes), the"
    " number of parallel tasks, and the backend measurements.",
    "The time to load the state, per restart.",
    "Use more partitions and cores to load in parallel; with Redis or Cassandra nothing is loaded.",
)
KEY_BY_KEY = AdviceKind(
    "AD104",
    "key-by-key",
    Topic.BACKEND,
    Severity.WARNING,
    Confidence.LIKELY,
    "For a job: state in Cassandra, of which a median batch changes at least half of the rows.",
    "The factor by which a batch takes longer than on RocksDB, from the measurements of both, applied to the"
    " time of its tasks.",
    "Move the state to RocksDB.",
)
KINDS: Final = (HEAP_OUTGROWN, SHARED, SLOW_RESTART, KEY_BY_KEY)


@dataclass(frozen=True, slots=True)
class Load:
    """The workload of a backend.

    Attributes:
        keys: The number of keys.
        value_bytes: Bytes of one value.
        tasks: Tasks that load state in parallel.
        latency_ms: The accepted delay of a result; None if not given.
        shared: Whether other services read the state.
        carried: The owner of the state: `BUILT_IN` operators (any backend), Holdfast's `KEYED` state (a
            database holds only its rows), or `OWN` transformWithState (RocksDB only).
        most_keys: Whether a batch changes most keys; None if unknown.
        now: The current backend.
        now_bytes: The size of the state in the current backend, in bytes.
    """

    keys: float
    value_bytes: float
    tasks: int
    latency_ms: int | None
    shared: bool
    carried: str
    most_keys: bool | None = None
    now: str | None = None
    now_bytes: int | None = None


def backend_of(evidence: Evidence) -> str | None:
    """Return the backend of the state; None for an unknown provider, or without state."""
    external = evidence.checkpoint.external
    if not evidence.checkpoint.operators:
        return None
    provider = provider_class(evidence.checkpoint.confs) if external is None else external.provider
    return _PROVIDERS.get(provider)


def load_of(evidence: Evidence) -> Load:
    """Return the load of a checkpoint's backend."""
    backend = backend_of(evidence)
    changes = _changed(evidence)
    keys, bytes_ = evidence.keys, evidence.checkpoint.size_bytes
    rocksdb = evidence.figures.of(ROCKSDB).bytes_a_key
    value_bytes = max(bytes_ / keys - rocksdb + VALUE_BYTES, 1.0) if keys else VALUE_BYTES
    return Load(
        keys,
        value_bytes,
        evidence.loading_tasks,
        evidence.needs.latency_ms,
        evidence.needs.shared,
        _carried(evidence),
        None if changes is None else changes >= _MOST_KEYS,
        backend,
        bytes_,
    )


def _carried(evidence: Evidence) -> str:
    operators = evidence.checkpoint.operators
    if any(operator.named.operator_kind == KEYED_WORDS for operator in operators):
        return KEYED
    return OWN if any(operator.name.startswith("transformWithState") for operator in operators) else BUILT_IN


def backend_advice(evidence: Evidence) -> Iterator[Advice]:
    """Yield all advice on the backend of the state."""
    backend = backend_of(evidence)
    if backend is None:
        return
    load, uri = load_of(evidence), evidence.checkpoint.uri
    heap = heap_outgrown(evidence.checkpoint) if evidence.checkpoint.external is None else None
    if heap is not None:
        reported = _reported_memory(evidence)
        cost = Cost(
            "garbage collection pauses grow with it, and an executor that runs out of heap fails",
            memory_bytes=reported or _VERSIONS * evidence.checkpoint.size_bytes,
        )
        sureness = None if reported else Confidence.LIKELY
        do = "move the state to RocksDB; the move counts and compares every row"
        yield HEAP_OUTGROWN.advice(heap, cost, do, [migrate(uri, ROCKSDB)], sureness=sureness)
    if load.shared and backend in (MEMORY, ROCKSDB):
        yield _not_shared(evidence, load)
    elif backend in (MEMORY, ROCKSDB):
        yield from _slow_restart(evidence, load, backend)
    if backend == CASSANDRA and load.most_keys:
        yield _key_by_key(evidence)


def choice(load: Load, measured: MeasuredBackends) -> tuple[Option, ...]:
    """Return all backends; the best one that fits is marked as advised."""
    best = _best(load, measured)
    return tuple(_option(load, measured, backend, best) for backend in BACKENDS)


def _best(load: Load, measured: MeasuredBackends) -> str:
    if load.shared:
        small = measured.of(REDIS).state_bytes(load.keys, load.value_bytes) <= _ONE_SERVER
        return REDIS if small else CASSANDRA
    if load.now in (REDIS, CASSANDRA) and not load.most_keys:
        return load.now  # the user may have a reason that no file records
    if load.now == MEMORY and (load.now_bytes or 0) < _LARGE_HEAP:
        return MEMORY
    small = measured.of(MEMORY).state_bytes(load.keys, load.value_bytes) <= _HEAP
    quick = load.latency_ms is not None and load.latency_ms <= _QUICK_MS
    return MEMORY if small and quick and load.carried == BUILT_IN else ROCKSDB


def _option(load: Load, measured: MeasuredBackends, backend: str, best: str) -> Option:
    figures = measured.of(backend)
    state_bytes = figures.state_bytes(load.keys, load.value_bytes)
    if backend == load.now and load.now_bytes:
        state_bytes = load.now_bytes
    unfit = _unfit(load, backend, state_bytes)
    why = unfit or _why(load, backend, state_bytes, advised=backend == best)
    return Option(
        backend,
        backend == best and unfit is None,
        backend == load.now,
        unfit is None,
        why,
        state_bytes,
        figures.recovery(load.keys, load.tasks),
        figures.rows_a_second,
        figures.read_us,
        settings=_MADE[backend]().spark_conf(),
    )


def _unfit(load: Load, backend: str, state_bytes: int) -> str | None:
    """Return the reason why a backend does not fit; None if it fits."""
    size = rounded_size(state_bytes)
    reasons = (
        (
            load.shared and backend in (MEMORY, ROCKSDB),
            "other services cannot read the files of a checkpoint",
        ),
        (load.carried == OWN and backend != ROCKSDB, "transformWithState works only with RocksDB"),
        (load.carried == KEYED and backend == MEMORY, "keyed state cannot be kept on the heap"),
        (
            backend == MEMORY and state_bytes > _MOST_HEAP,
            f"{size} is more than the heaps of executors hold",
        ),
        (
            backend == REDIS and state_bytes > _ONE_SERVER,
            f"{size} is more than one server's memory holds",
        ),
        (
            backend == CASSANDRA and bool(load.most_keys) and not load.shared,
            "a batch changes most keys, and each change is a read and a write in the database",
        ),
    )
    return next((why for wrong, why in reasons if wrong), None)


def _why(load: Load, backend: str, state_bytes: int, *, advised: bool) -> str:
    size = rounded_size(state_bytes)
    if advised and backend == load.now and backend != ROCKSDB:
        return f"{size} are already there and fit; files do not show whether other services read them"
    if backend == MEMORY and advised:
        return f"results may be {rounded_duration(load.latency_ms or 0)} late, and {size} fits on the heap"
    if backend == ROCKSDB and advised:
        return (
            "it spills to disk, its checkpoints are incremental, and every operator and command supports it"
        )
    return {
        MEMORY: f"the fastest, but all {size} are on the heap, and garbage collection pauses grow with it",
        ROCKSDB: "reads take only two or three microseconds on disk, which is enough here",
        REDIS: "other services can read it and a restart loads nothing, but there is one more server to run",
        CASSANDRA: (
            "other services can read it and it scales beyond one server, but there are three more nodes"
            " to run"
        ),
    }[backend]


def _not_shared(evidence: Evidence, load: Load) -> Advice:
    best = _best(load, evidence.figures)
    if load.carried == OWN:
        do, commands = (
            "keep the state in an operator of `hf.keyed`; transformWithState works only with RocksDB",
            [],
        )
    elif load.carried == KEYED:
        do = f"keep its rows in {best.capitalize()}, where `holdfast.shared` reads them"
        commands = [f'.process(…, blobs=hf.{best.capitalize()}("HOST"))']
    else:
        do = f"move the state to {best.capitalize()}, where `holdfast.shared` reads it"
        commands = [migrate(evidence.checkpoint.uri, best)]
    takes = rounded_size(evidence.figures.of(best).state_bytes(load.keys, load.value_bytes))
    return SHARED.advice(
        "other services need the state, but it is in files of the checkpoint",
        Cost(f"other services cannot read it; in {best.capitalize()} it would take {takes}"),
        do,
        commands,
    )


def _slow_restart(evidence: Evidence, load: Load, backend: str) -> Iterator[Advice]:
    recovery_ms = evidence.figures.of(backend).recovery(load.keys, load.tasks)
    if recovery_ms < _SLOW_RESTART_MS:
        return
    commands = []
    if load.carried == BUILT_IN:
        other = REDIS if _option(load, evidence.figures, REDIS, backend).fits else CASSANDRA
        commands = [migrate(evidence.checkpoint.uri, other)]
    yield SLOW_RESTART.advice(
        f"{load.keys:,.0f} rows, {rounded_size(evidence.checkpoint.size_bytes)}, are loaded by {load.tasks}"
        " parallel tasks",
        Cost("no batch runs until the state is loaded", recovery_ms=recovery_ms),
        "if that is too long, use more partitions and cores to load in parallel, or a database, which loads"
        " nothing",
        commands,
    )


def _key_by_key(evidence: Evidence) -> Advice:
    ours, other = evidence.figures.of(CASSANDRA), evidence.figures.of(ROCKSDB)
    times = other.rows_a_second / ours.rows_a_second
    work_ms = evidence.work_ms
    return KEY_BY_KEY.advice(
        f"a batch changes {_changed(evidence) or 0:.1%} of the rows of state in Cassandra",
        Cost(
            f"the batch takes {times:.1f} times as long as on RocksDB",
            batch_ms=None if work_ms is None else work_ms * (1 - 1 / times),
        ),
        "move the state to RocksDB, unless other services read it",
        [migrate(evidence.checkpoint.uri, ROCKSDB)],
    )


def _changed(evidence: Evidence) -> float | None:
    """Return the median share of rows that a batch changes."""
    parts = [
        sum(each.updated + each.removed for each in batch.operators) / batch.state_rows
        for batch in evidence.settled
        if batch.state_rows
    ]
    return statistics.median(parts) if parts else None


def _reported_memory(evidence: Evidence) -> int:
    """Return the memory of the stores in a job's newest batch."""
    return sum(each.memory_bytes for each in evidence.batches[-1].operators) if evidence.batches else 0


Location: TypeAlias = Medium | Literal["efs"]
LOCAL: Final = "local"
EFS: Final = "efs"
HDFS: Final = "hdfs"
S3: Final = "s3"
PLACES: Final = (LOCAL, EFS, HDFS, S3)
# Below this interval, the 22 requests per file on object storage slow down batches.
_QUICK_TRIGGER_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class StateNeeds:
    """The requirements on a checkpoint's location.

    Attributes:
        interval_ms: The time between two batches; None if unknown.
        size_bytes: The total bytes of the checkpoint.
        requests: The requests per day, in object storage.
        now: The current location.
    """

    interval_ms: float | None
    size_bytes: int
    requests: Requests | None
    now: str | None = None


def kept_of(evidence: Evidence) -> StateNeeds:
    """Return the requirements on the location of a checkpoint."""
    medium = medium_of(evidence.checkpoint.uri)
    now = EFS if medium == LOCAL and evidence.place.lasting is Lasting.SHARED else medium
    in_files = evidence.checkpoint.external is None
    size = max(evidence.kept_bytes, evidence.checkpoint.size_bytes) if in_files else 0
    return StateNeeds(evidence.gap_ms, size, requests_a_day(evidence, evidence.gap_ms), now)


def advised_place(interval_ms: float | None) -> Medium:
    """Return the advised location: object storage, or HDFS for short batches."""
    return HDFS if interval_ms is not None and interval_ms < _QUICK_TRIGGER_MS else S3


def place_choice(kept: StateNeeds, prices: Prices) -> tuple[Option, ...]:
    """Return all locations; the best one is marked as advised."""
    best: Location = advised_place(kept.interval_ms)
    if best == HDFS and kept.now == EFS:
        best = EFS
    money = {place: _money(place, kept, prices) for place in PLACES}
    return tuple(
        Option(
            place,
            place == best,
            place == kept.now,
            place != LOCAL,
            _why_there(place, kept),
            kept.size_bytes,
            money_a_month=None if cost is None else cost.total,
            unpriced=() if cost is None else cost.unpriced,
        )
        for place, cost in money.items()
    )


def _money(place: Location, kept: StateNeeds, prices: Prices) -> Money | None:
    """Return the cost of storage and requests; None for a shared file system, which has no price."""
    if place == EFS:
        return None
    return monthly(prices, place, checkpoint_bytes=kept.size_bytes, requests=kept.requests)


def _why_there(place: str, kept: StateNeeds) -> str:
    every = "" if kept.interval_ms is None else f" of {rounded_duration(kept.interval_ms)}"
    quick = kept.interval_ms is not None and kept.interval_ms < _QUICK_TRIGGER_MS
    return {
        LOCAL: "it is lost with its machine: for development, or with savepoints stored elsewhere",
        EFS: (
            "a shared file system: writes are fast and all machines can read it, but it is expensive"
            " for large state"
        ),
        HDFS: "writes are fast, and it is available on premises",
        S3: f"the lowest price per byte, but 22 requests per file, which slow down batches{every}"
        if quick
        else "the lowest price per byte, and it outlives every machine; 22 requests per file",
    }[place]
