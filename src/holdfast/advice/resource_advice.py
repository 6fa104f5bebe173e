"""Advice on memory and on the number of partitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Final

from holdfast.advice.advice import Advice, AdviceKind, Confidence, Cost, Topic, conf, count, rescale
from holdfast.advice.checkpoint_checks import (
    grown,
    lacks_watermark,
    least_of_thirds,
    name_of,
    tiny_partitions,
    uneven,
)
from holdfast.advice.evidence import DAY_MS, Evidence
from holdfast.advice.findings import Severity
from holdfast.checkpoints.checkpoint import StatefulOperator
from holdfast.checkpoints.state.contents import shares
from holdfast.config.backend import BLOCK_CACHE_KEY, MAX_MEMORY_KEY, WRITE_BUFFER_KEY
from holdfast.config.checks import place_word
from holdfast.config.spark_defaults import BOUNDED_MEMORY_KEY, ROCKSDB, ROCKSDB_PROVIDER
from holdfast.config.units import MIB
from holdfast.formats.providers import provider_class
from holdfast.quantities import counted, rounded_duration, rounded_size

# Spark's default, or RocksDB's if Spark sets none.
_BLOCK_CACHE_MB: Final = 8
_WRITE_BUFFER_MB: Final = 64
_WRITE_BUFFERS: Final = 2
_BUDGET_MB: Final = 500
_WRITE_BUFFERS_KEY: Final = f"{ROCKSDB}.maxWriteBufferNumber"
# The other lint rule that reports this.
LACKS_WATERMARK: Final = "HF604"
_MUCH: Final = 1 << 30
_FEWEST_READS: Final = 1000
_FEW_HITS: Final = 0.8
_STALLED: Final = 0.05
_ALERT_BYTES: Final = 10 * 10**9

UNBOUNDED = AdviceKind(
    "AD401",
    "unbounded-rocksdb",
    Topic.MEMORY,
    Severity.WARNING,
    Confidence.GUESS,
    "RocksDB with so many stores that their caches and write buffers may take at least 1 GiB, where"
    " `boundedMemoryUsage` may be off. Checkpoints do not record this setting: give it with `--conf`; if it"
    " is `false`, the advice is certain. Holdfast's own sessions turn it on.",
    "The maximum memory of all stores: for each its block cache (8 MiB, or `blockCacheSizeMB`) and its"
    " write buffers (2 of 64 MiB, or `maxWriteBufferNumber` of `writeBufferSizeMB`).",
    "Set a limit before the query starts.",
)
MISSES = AdviceKind(
    "AD402",
    "cache-misses",
    Topic.MEMORY,
    Severity.NOTE,
    Confidence.LIKELY,
    "For a job: at least a thousand reads per batch, of which more than a fifth missed the block cache.",
    "The number of reads from disk, each at the difference between a slow and a fast read of RocksDB (5.8"
    " µs), as if they ran one after the other.",
    "Double the budget, if the machines have the memory.",
)
STALLS = AdviceKind(
    "AD403",
    "writer-stalls",
    Topic.MEMORY,
    Severity.WARNING,
    Confidence.CERTAIN,
    "For a job: RocksDB stalled writers for at least a twentieth of a median batch.",
    "The time for which writers are stalled, per batch.",
    "Use more write buffers, or a faster disk.",
)
ENDLESS = AdviceKind(
    "AD404",
    "state-without-end",
    Topic.MEMORY,
    Severity.WARNING,
    Confidence.LIKELY,
    "State that was larger in each third of the kept batches, without a watermark that moves; or a"
    " deduplication or a join that has had no watermark for ten batches.",
    "The growth per day at this pace, and the time until it reaches the 10 GB at which the alert fires.",
    "Bound the state with a watermark or a TTL; first estimate what a TTL would free.",
    "HF602",
)
MEMORY_KINDS: Final = (UNBOUNDED, MISSES, STALLS, ENDLESS)


def memory_advice(evidence: Evidence) -> Iterator[Advice]:
    """Yield all advice on memory."""
    for operator in evidence.checkpoint.operators:
        yield from _endless(evidence, operator)
    if provider_class(evidence.checkpoint.confs) != ROCKSDB_PROVIDER:
        return
    yield from _unbounded(evidence)
    yield from _misses(evidence)
    yield from _stalls(evidence)


def _endless(evidence: Evidence, operator: StatefulOperator) -> Iterator[Advice]:
    facts = evidence.facts
    growth, lacking = grown(facts, operator), lacks_watermark(evidence.checkpoint, operator)
    if growth is None and lacking is None:
        return
    a_day = None if growth is None else _growth_a_day(evidence, operator)
    what = "nothing removes this state"
    if a_day:
        days = (_ALERT_BYTES - operator.size_bytes) / a_day
        if days > 0:
            what += f", and it reaches 10 GB in {rounded_duration(days * DAY_MS)}"
        what += "; growth per day"
    yield ENDLESS.advice(
        "; ".join(seen for seen in (growth, lacking) if seen is not None),
        Cost(what, disk_bytes=a_day),
        "bound the state with a watermark or a TTL; this command estimates what a TTL would free",
        [f"holdfast ttl {place_word(evidence.checkpoint.uri)} --what-if 24h"],
        sureness=Confidence.CERTAIN if lacking is not None else None,
        rule=LACKS_WATERMARK if growth is None else None,
    )


def _growth_a_day(evidence: Evidence, operator: StatefulOperator) -> int | None:
    """Return the growth in bytes per day, from the smallest sizes of the first and the last third."""
    sizes = evidence.facts.sizes
    least = least_of_thirds([sizes[batch].get(operator.operator_id, 0) for batch in sorted(sizes)])
    if least is None or evidence.span_ms is None:
        return None
    return round((least[2] - least[0]) / (evidence.span_ms * 2 / 3) * DAY_MS)


def _unbounded(evidence: Evidence) -> Iterator[Advice]:
    bounded = evidence.conf(BOUNDED_MEMORY_KEY)
    if bounded == "true" or (bounded is None and evidence.needs.own_session):
        return
    cache = _number(evidence, BLOCK_CACHE_KEY, _BLOCK_CACHE_MB)
    buffers = _number(evidence, WRITE_BUFFER_KEY, _WRITE_BUFFER_MB) * _number(
        evidence, _WRITE_BUFFERS_KEY, _WRITE_BUFFERS
    )
    most = evidence.stores * (cache + buffers) * MIB
    if most < _MUCH:
        return
    known = "is false" if bounded == "false" else "is off unless the session sets it"
    yield UNBOUNDED.advice(
        f"RocksDB has {counted(evidence.stores, 'store')}, and `{BOUNDED_MEMORY_KEY}` {known}",
        Cost(f"each store may take {cache + buffers} MiB outside the heap", memory_bytes=most),
        "set a memory limit for all stores of an executor, and reserve it in the container",
        [conf(BOUNDED_MEMORY_KEY, "true"), conf(MAX_MEMORY_KEY, str(_BUDGET_MB))],
        sureness=Confidence.CERTAIN if bounded == "false" else None,
    )


def _number(evidence: Evidence, key: str, default: int) -> int:
    text = evidence.conf(key) or ""
    return int(text) if text.isascii() and text.isdigit() and int(text[:9]) > 0 else default


def _misses(evidence: Evidence) -> Iterator[Advice]:
    settled = evidence.settled
    hits, misses = (
        sum(
            each.store.get(f"rocksdbReadBlockCache{kind}Count", 0)
            for batch in settled
            for each in batch.operators
        )
        for kind in ("Hit", "Miss")
    )
    reads = hits + misses
    if not settled or reads < _FEWEST_READS * len(settled) or hits >= _FEW_HITS * reads:
        return
    a_batch = misses / len(settled)
    budget = _number(evidence, MAX_MEMORY_KEY, _BUDGET_MB)
    yield MISSES.advice(
        f"only {hits / reads:.1%} of RocksDB's reads hit the block cache",
        Cost(f"each batch makes {count(a_batch)} reads from disk", batch_ms=a_batch * 0.0058),
        f"give stores {2 * budget} MiB per executor, twice the current budget, if the machines have the"
        " memory",
        [conf(MAX_MEMORY_KEY, str(2 * budget))],
    )


def _stalls(evidence: Evidence) -> Iterator[Advice]:
    batch_ms = evidence.batch_ms
    if not batch_ms:
        return
    stalls = [
        sum(each.store.get("rocksdbWriterStallLatencyMs", 0) for each in batch.operators)
        for batch in evidence.settled
    ]
    stall_ms = statistics.median(stalls) / evidence.loading_tasks
    if stall_ms < _STALLED * batch_ms:
        return
    yield STALLS.advice(
        f"RocksDB stalls writers for {rounded_duration(stall_ms)} of each batch of"
        f" {rounded_duration(batch_ms)}",
        Cost("write buffers fill faster than they are flushed", batch_ms=stall_ms),
        "use more write buffers, or a faster disk",
        [conf(_WRITE_BUFFERS_KEY, "4"), conf(WRITE_BUFFER_KEY, str(_WRITE_BUFFER_MB))],
    )


# The maximum recommended size of a partition, because one task loads its store.
_FULL_PARTITION: Final = 512 << 20
_LARGE_PARTITION: Final = 2 << 30
# The default number of cores.
_USUAL_CORES: Final = 8
_WELL_USED: Final = 0.75
_MOSTLY: Final = 0.8
_FAR: Final = 0.1
_BUSY: Final = 0.5

TINY = AdviceKind(
    "AD301",
    "tiny-partitions",
    Topic.PARTITIONS,
    Severity.NOTE,
    Confidence.CERTAIN,
    "An operator with at least 32 partitions and fewer than 100 rows (or 16 KB) in each.",
    "The files that the surplus partitions write per day, at the pace of the newest batches; for a job with"
    " one stateful operator, and with `--cores`, also their share of the commit time of stores.",
    "Use as many partitions as cores (eight without `--cores`), or more if a partition would exceed 512 MiB.",
    "HF601",
)
IDLE = AdviceKind(
    "AD302",
    "idle-cores",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.LIKELY,
    "Fewer partitions than the cores given by `--cores`, with at least 100 rows per core. A guess unless"
    " the batches of a job are known to take more than half of the time.",
    "The share of a batch's work that the idle cores could do: the time of its tasks, times the share of"
    " cores without a partition.",
    "Use at least one partition per core.",
)
LAST_WAVE = AdviceKind(
    "AD303",
    "last-wave",
    Topic.PARTITIONS,
    Severity.NOTE,
    Confidence.LIKELY,
    "More partitions than cores, but not a multiple of the cores, so that over a quarter of the cores' time"
    " is idle while the last tasks run.",
    "The idle share of the time of a batch's tasks.",
    "Use a multiple of the number of cores.",
)
UNEVEN = AdviceKind(
    "AD304",
    "uneven-partitions",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.CERTAIN,
    "A store of at least 1 MB with four or more partitions, the largest of which has at least half of all"
    " bytes.",
    "The bytes that the partition holds beyond an even share, which one executor must hold; how many times"
    " longer its task takes to load than one with an even share.",
    "List the largest keys. More partitions do not help if one key has most of the bytes: split the key.",
    "HF603",
)
LARGE = AdviceKind(
    "AD305",
    "large-partitions",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.LIKELY,
    "A partition with at least 2 GiB of state, in a store with evenly distributed bytes.",
    "The time for one task to load it, from the backend measurements.",
    "Use enough partitions that each has at most 512 MiB.",
)
BACKLOG = AdviceKind(
    "AD306",
    "falls-behind",
    Topic.PARTITIONS,
    Severity.ERROR,
    Confidence.CERTAIN,
    "For a job: in four of five of its newest batches, more rows arrived than were processed.",
    "The backlog added per day, at this pace.",
    "Use more cores, and one partition per core; check whether a hot key limits the query.",
)
FAR = AdviceKind(
    "AD307",
    "far-stores",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.LIKELY,
    "For a job: the tasks of a median batch spend at least a tenth of it loading state, and not only after"
    " a start: they run on executors that do not hold the store.",
    "The time that tasks spend loading state, per batch.",
    "Let tasks wait for the executor that holds their store, and keep a fixed number of executors.",
)
TOO_FEW_CORES = AdviceKind(
    "AD308",
    "too-few-cores",
    Topic.PARTITIONS,
    Severity.ERROR,
    Confidence.LIKELY,
    "For a plan: a `--rate` above what `--cores` process, from the measurements of the advised backend.",
    "The backlog added per day.",
    "Use enough cores for twice the rate, so that the query can catch up.",
)
PARTITION_KINDS: Final = (TINY, IDLE, LAST_WAVE, UNEVEN, LARGE, BACKLOG, FAR, TOO_FEW_CORES)


def partition_advice(evidence: Evidence) -> Iterator[Advice]:
    """Yield all advice on partitions."""
    tiny = [operator for operator in evidence.checkpoint.operators if tiny_partitions(operator)]
    yield from (_tiny(evidence, operator) for operator in tiny)
    yield from _uneven(evidence)
    yield from _backlog(evidence)
    yield from _far(evidence)
    if not tiny:
        yield from _cores(evidence)


def fitting(size_bytes: int, cores: int | None) -> int:
    """Return the number of partitions for a state: one per core, and more if each would be too large."""
    each = cores or _USUAL_CORES
    return each * max(1, math.ceil(size_bytes / _FULL_PARTITION / each))


def too_few_cores(rate: float, cores: int, rows_a_second: float) -> Iterator[Advice]:
    """Yield advice if the cores of a plan cannot process its rows in time.

    Args:
        rate: The number of incoming rows per second.
        cores: The number of cores.
        rows_a_second: The number of rows that one core processes per second.
    """
    missing = rate - cores * rows_a_second
    if missing > 0:
        yield TOO_FEW_CORES.advice(
            f"{count(rate)} rows per second arrive, but {cores} cores process {count(cores * rows_a_second)}",
            Cost(f"the backlog grows by {count(missing * 86400)} rows a day"),
            f"use {cores_for(rate, rows_a_second)} cores, and one partition per core",
            [],
        )


def cores_for(rate: float, rows_a_second: float) -> int:
    """Return the number of cores needed to process twice the incoming rows; at least two."""
    return max(2, math.ceil(2 * rate / rows_a_second))


def _tiny(evidence: Evidence, operator: StatefulOperator) -> Advice:
    wanted = min(fitting(operator.size_bytes, evidence.needs.cores), operator.partitions - 1)
    fewer = operator.partitions - wanted
    a_day, cores = evidence.batches_a_day, evidence.needs.cores
    alone = len(evidence.checkpoint.operators) == 1
    commits = [each.commit_ms for batch in evidence.settled if alone for each in batch.operators]
    batch_ms = statistics.median(commits) * fewer / operator.partitions / cores if commits and cores else None
    cost = Cost(
        f"each batch has {counted(fewer, 'surplus task')} and"
        f" {counted(fewer * len(operator.store_names), 'surplus file')}",
        files_a_day=None if a_day is None else fewer * len(operator.store_names) * a_day,
        batch_ms=batch_ms,
    )
    fits = "one per core" if cores else "enough for eight cores; give your number of cores with --cores"
    do = f"use {wanted} partitions, {fits}"
    return TINY.advice(tiny_partitions(operator) or "", cost, do, [rescale(evidence.checkpoint.uri, wanted)])


def _uneven(evidence: Evidence) -> Iterator[Advice]:
    for store in shares(evidence.checkpoint):
        seen = uneven(store)
        largest, parts = store.largest, len(store.partitions)
        if seen is not None and largest is not None:
            times = store.largest_share * parts
            cost = Cost(
                f"its task has {times:.1f} times an even share, and the other tasks wait for it",
                memory_bytes=largest.bytes - store.bytes // parts,
            )
            do = "list the largest keys, and split the hot ones (`hf.skew.split_hot`)"
            command = f"holdfast skew {place_word(evidence.checkpoint.uri)} --top 10"
            yield UNEVEN.advice(seen, cost, do, [command])
        elif largest is not None and largest.bytes >= _LARGE_PARTITION:
            yield _large(evidence, store.state_name, store.bytes, largest.bytes)


def _large(evidence: Evidence, name: str, size_bytes: int, largest: int) -> Advice:
    wanted = fitting(size_bytes, evidence.needs.cores)
    rocksdb = evidence.figures.of("rocksdb")
    # One task loads it; the measurements are of two parallel tasks.
    recovery_ms = rocksdb.recovery(largest / rocksdb.bytes_a_key, tasks=1)
    return LARGE.advice(
        f"a partition of `{name}` holds {rounded_size(largest)}",
        Cost("one task loads it at each start", recovery_ms=recovery_ms),
        f"use {wanted} partitions of {rounded_size(size_bytes / wanted)} each",
        [rescale(evidence.checkpoint.uri, wanted)],
    )


def _cores(evidence: Evidence) -> Iterator[Advice]:
    cores, partitions = evidence.needs.cores, evidence.partitions
    spread = [operator for operator in evidence.checkpoint.operators if not operator.gathered]
    if cores is None or not spread:
        return
    work_ms, uri = evidence.work_ms, evidence.checkpoint.uri
    if partitions < cores:
        busy = _busy(evidence)
        rows = evidence.rows
        if (rows is not None and rows < 100 * cores) or (busy is not None and busy < _BUSY):
            return
        part = 1 - partitions / cores
        yield IDLE.advice(
            f"{name_of(spread[0])} has {counted(partitions, 'partition')}, but {cores} cores run tasks",
            Cost(
                f"{part:.1%} of the cores have no stateful work",
                batch_ms=None if work_ms is None else work_ms * part,
            ),
            f"use {cores} partitions",
            [rescale(uri, cores)],
            sureness=None if busy is not None else Confidence.GUESS,
        )
    elif partitions % cores:
        waves = math.ceil(partitions / cores)
        used = partitions / (waves * cores)
        if used >= _WELL_USED:
            return
        wanted = cores * (partitions // cores)
        yield LAST_WAVE.advice(
            f"{partitions} partitions on {cores} cores: the last of {waves} rounds has {partitions % cores}",
            Cost(
                f"{1 - used:.1%} of the cores' time is idle",
                batch_ms=None if work_ms is None else work_ms * (1 - used),
            ),
            f"use {wanted} partitions",
            [rescale(uri, wanted)],
        )


def _busy(evidence: Evidence) -> float | None:
    """Return the share of time in which batches run."""
    if evidence.batch_ms is None or not evidence.gap_ms:
        return None
    return min(evidence.batch_ms / evidence.gap_ms, 1.0)


def _backlog(evidence: Evidence) -> Iterator[Advice]:
    rates = [
        (batch.input_rate, batch.processed_rate)
        for batch in evidence.settled
        if batch.input_rate is not None and batch.processed_rate is not None
    ]
    behind = [came - done for came, done in rates if came > done]
    if not rates or len(behind) < _MOSTLY * len(rates):
        return
    missing = statistics.mean(came - done for came, done in rates)
    if missing <= 0:
        return
    cores, partitions = evidence.needs.cores, evidence.partitions
    commands = [f"holdfast skew {place_word(evidence.checkpoint.uri)} --top 10"]
    if cores is not None and partitions < cores:
        commands.insert(0, rescale(evidence.checkpoint.uri, cores))
    yield BACKLOG.advice(
        f"in {len(behind)} of {len(rates)} batches more rows arrived than were processed, {count(missing)}"
        " per second too many",
        Cost(f"the backlog grows by {count(missing * 86400)} rows a day"),
        "use more cores, and one partition per core; check whether a hot key limits the query",
        commands,
    )


def _far(evidence: Evidence) -> Iterator[Advice]:
    loads = [batch.load_ms for batch in evidence.settled if batch.load_ms is not None]
    batch_ms = evidence.batch_ms
    if not loads or not batch_ms:
        return
    # The sum over all tasks, divided by the number of parallel tasks.
    load_ms = statistics.median(loads) / evidence.loading_tasks
    if load_ms < _FAR * batch_ms:
        return
    yield FAR.advice(
        f"tasks spend {rounded_duration(load_ms)} of each batch of {rounded_duration(batch_ms)} loading"
        " state",
        Cost("they run on executors that do not hold their store", batch_ms=load_ms),
        "let tasks wait for the executor that holds their store, and keep a fixed number of executors",
        [conf("spark.locality.wait", "10s"), "--conf spark.dynamicAllocation.enabled=false"],
    )
