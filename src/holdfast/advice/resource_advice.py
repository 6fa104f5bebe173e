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
from holdfast.config.units import MIB, counted, rounded_duration, rounded_size
from holdfast.formats.providers import provider_class

# Spark's own, and RocksDB's where Spark sets none.
_BLOCK_CACHE_MB: Final = 8
_WRITE_BUFFER_MB: Final = 64
_WRITE_BUFFERS: Final = 2
_BUDGET_MB: Final = 500
_WRITE_BUFFERS_KEY: Final = f"{ROCKSDB}.maxWriteBufferNumber"
# The other rule of lint that sees it.
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
    "RocksDB with so many stores that their caches and write buffers may take 1 GiB or more, where"
    " `boundedMemoryUsage` is not known to be on. No checkpoint has this setting: `--conf` tells it, and"
    " where it says"
    " `false` the advice is certain. Holdfast's own sessions turn it on.",
    "What all stores take at most: each its block cache (8 MiB, or `blockCacheSizeMB`) and its write"
    " buffers (2 of"
    " 64 MiB, or `maxWriteBufferNumber` of `writeBufferSizeMB`).",
    "Bound it before the query starts.",
)
MISSES = AdviceKind(
    "AD402",
    "cache-misses",
    Topic.MEMORY,
    Severity.NOTE,
    Confidence.LIKELY,
    "Of a job: of a thousand reads or more in a batch over a fifth found their block not in memory.",
    "The reads that went to disk, at what a slow read of RocksDB takes over a quick one (5.8 µs), as if"
    " one after the"
    " other.",
    "Double the budget, where the machines have the memory.",
)
STALLS = AdviceKind(
    "AD403",
    "writer-stalls",
    Topic.MEMORY,
    Severity.WARNING,
    Confidence.CERTAIN,
    "Of a job: RocksDB made writers wait for a twentieth of the batch or more, in the median.",
    "That time, for each batch.",
    "Give it more write buffers, or a disk that is quicker.",
)
ENDLESS = AdviceKind(
    "AD404",
    "state-without-end",
    Topic.MEMORY,
    Severity.WARNING,
    Confidence.LIKELY,
    "State that was larger in each third of the batches that are kept, without a watermark that moves; or a"
    " deduplication or a join that has had no watermark for ten batches.",
    "How much it grows in a day, at this pace, and when it reaches the 10 GB at which the alert fires.",
    "Bound it by a watermark or a time to live; see first what one would free.",
    "HF602",
)
MEMORY_KINDS: Final = (UNBOUNDED, MISSES, STALLS, ENDLESS)


def memory_advice(evidence: Evidence) -> Iterator[Advice]:
    """All advice on memory."""
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
    what = "nothing ends it"
    if a_day:
        days = (_ALERT_BYTES - operator.size_bytes) / a_day
        if days > 0:
            what += f", and in {rounded_duration(days * DAY_MS)} it has 10 GB"
        what += "; a day adds"
    yield ENDLESS.advice(
        "; ".join(seen for seen in (growth, lacking) if seen is not None),
        Cost(what, disk_bytes=a_day),
        "bound it by a watermark or a time to live; this shows what one would free",
        [f"holdfast ttl {place_word(evidence.checkpoint.uri)} --what-if 24h"],
        sureness=Confidence.CERTAIN if lacking is not None else None,
        rule=LACKS_WATERMARK if growth is None else None,
    )


def _growth_a_day(evidence: Evidence, operator: StatefulOperator) -> int | None:
    """Bytes a day, from the least sizes of the first and of the last third, two thirds of the time apart."""
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
        Cost(f"each store may take {cache + buffers} MiB outside of the heap", memory_bytes=most),
        "bound what all stores of an executor share, and leave its container room for it",
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
        f"{hits / reads:.0%} of the reads of RocksDB found their block in memory",
        Cost(f"{count(a_batch)} reads go to the disk in each batch", batch_ms=a_batch * 0.0058),
        f"give stores {2 * budget} MiB an executor, twice what they have, where the machines have it",
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
        f"RocksDB makes writers wait for {rounded_duration(stall_ms)} in each batch, of"
        f" {rounded_duration(batch_ms)}",
        Cost("write buffers are full before they are written", batch_ms=stall_ms),
        "give it more write buffers, or a disk that is quicker",
        [conf(_WRITE_BUFFERS_KEY, "4"), conf(WRITE_BUFFER_KEY, str(_WRITE_BUFFER_MB))],
    )


# What a partition should hold at most: its store is loaded by one task.
_FULL_PARTITION: Final = 512 << 20
_LARGE_PARTITION: Final = 2 << 30
# So many where nobody says how many cores there are.
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
    "An operator with 32 partitions or more, and fewer than 100 rows (or 16 KB) in each.",
    "The files that the partitions too many write in a day, at the pace of the newest batches; of a job"
    " with one"
    " stateful operator, and with `--cores`, their part of the time that stores take to commit.",
    "Make a checkpoint with as many partitions as there are cores (eight where `--cores` does not say),"
    " and more"
    " where a partition would hold over 512 MiB.",
    "HF601",
)
IDLE = AdviceKind(
    "AD302",
    "idle-cores",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.LIKELY,
    "Fewer partitions than the cores that `--cores` gives, with 100 rows or more for each core. A guess"
    " where no"
    " batches of a job show that they take more than half of the time.",
    "The part of a batch's work that the idle cores could do: what its tasks take, times the part of the"
    " cores that"
    " has no partition.",
    "Make a checkpoint with a partition for each core.",
)
LAST_WAVE = AdviceKind(
    "AD303",
    "last-wave",
    Topic.PARTITIONS,
    Severity.NOTE,
    Confidence.LIKELY,
    "More partitions than cores, and no multiple of them, so that over a quarter of the cores' time is"
    " idle while"
    " the last tasks run.",
    "That part of what the tasks of a batch take.",
    "Make a checkpoint with a multiple of the cores.",
)
UNEVEN = AdviceKind(
    "AD304",
    "uneven-partitions",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.CERTAIN,
    "A store of 1 MB or more whose largest of four or more partitions has half of all bytes or more.",
    "The bytes that the partition holds beyond an even share, which one executor has to hold; how many"
    " times as long"
    " as an even one its task loads.",
    "Look at the largest keys. More partitions do not help where one key has most of it: split the key.",
    "HF603",
)
LARGE = AdviceKind(
    "AD305",
    "large-partitions",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.LIKELY,
    "A partition with 2 GiB of state or more, where the store is even.",
    "What one task takes to load it, by the figures of the backend.",
    "Make a checkpoint with so many partitions that each has 512 MiB or less.",
)
BACKLOG = AdviceKind(
    "AD306",
    "falls-behind",
    Topic.PARTITIONS,
    Severity.ERROR,
    Confidence.CERTAIN,
    "Of a job: more rows came in than were worked off, in four of five of its newest batches.",
    "The rows that wait at the end of a day, at this pace.",
    "Give it more cores, and a partition for each; see whether one key holds it up.",
)
FAR = AdviceKind(
    "AD307",
    "far-stores",
    Topic.PARTITIONS,
    Severity.WARNING,
    Confidence.LIKELY,
    "Of a job: the tasks of its batches load state for a tenth of the batch or more, in the median, and"
    " not only after a"
    " start: they run where the store is not.",
    "That time, for each batch.",
    "Let tasks wait for the executor that has their store, and keep the executors.",
)
TOO_FEW_CORES = AdviceKind(
    "AD308",
    "too-few-cores",
    Topic.PARTITIONS,
    Severity.ERROR,
    Confidence.LIKELY,
    "Of a plan: a `--rate` above what `--cores` work off, by the figures of the advised backend.",
    "The rows that wait at the end of a day.",
    "Give it as many cores as twice the rate needs: the other half is for catching up.",
)
PARTITION_KINDS: Final = (TINY, IDLE, LAST_WAVE, UNEVEN, LARGE, BACKLOG, FAR, TOO_FEW_CORES)


def partition_advice(evidence: Evidence) -> Iterator[Advice]:
    """All advice on partitions."""
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
    """Return whether the cores of a plan cannot process its rows in time.

    Args:
        rate: Rows a second that come in.
        cores: The cores that exist.
        rows_a_second: What one core works off.
    """
    missing = rate - cores * rows_a_second
    if missing > 0:
        yield TOO_FEW_CORES.advice(
            f"{count(rate)} rows a second come in, and {cores} cores work off {count(cores * rows_a_second)}",
            Cost(f"{count(missing * 86_400)} rows more wait at the end of each day"),
            f"give it {cores_for(rate, rows_a_second)} cores, and a partition for each",
            [],
        )


def cores_for(rate: float, rows_a_second: float) -> int:
    """The cores that work off twice the rows that come in; two at least."""
    return max(2, math.ceil(2 * rate / rows_a_second))


def _tiny(evidence: Evidence, operator: StatefulOperator) -> Advice:
    wanted = min(fitting(operator.size_bytes, evidence.needs.cores), operator.partitions - 1)
    fewer = operator.partitions - wanted
    a_day, cores = evidence.batches_a_day, evidence.needs.cores
    alone = len(evidence.checkpoint.operators) == 1
    commits = [each.commit_ms for batch in evidence.settled if alone for each in batch.operators]
    batch_ms = statistics.median(commits) * fewer / operator.partitions / cores if commits and cores else None
    cost = Cost(
        f"{counted(fewer, 'task')} and {counted(fewer * len(operator.store_names), 'file')} too many in"
        " each batch",
        files_a_day=None if a_day is None else fewer * len(operator.store_names) * a_day,
        batch_ms=batch_ms,
    )
    fits = "one for each core" if cores else "enough for eight cores; --cores gives yours"
    do = f"make a checkpoint with {wanted} partitions, {fits}"
    return TINY.advice(tiny_partitions(operator) or "", cost, do, [rescale(evidence.checkpoint.uri, wanted)])


def _uneven(evidence: Evidence) -> Iterator[Advice]:
    for store in shares(evidence.checkpoint):
        seen = uneven(store)
        largest, parts = store.largest, len(store.partitions)
        if seen is not None and largest is not None:
            times = store.largest_share * parts
            cost = Cost(
                f"its task has {times:.1f} times an even share, and the others wait for it",
                memory_bytes=largest.bytes - store.bytes // parts,
            )
            do = "see which keys are the largest, and split the hot ones (`hf.skew.split_hot`)"
            command = f"holdfast skew {place_word(evidence.checkpoint.uri)} --keys 10"
            yield UNEVEN.advice(seen, cost, do, [command])
        elif largest is not None and largest.bytes >= _LARGE_PARTITION:
            yield _large(evidence, store.state_name, store.bytes, largest.bytes)


def _large(evidence: Evidence, name: str, size_bytes: int, largest: int) -> Advice:
    wanted = fitting(size_bytes, evidence.needs.cores)
    rocksdb = evidence.figures.of("rocksdb")
    # One task loads it, and the figures are of two side by side.
    recovery_ms = rocksdb.recovery(largest / rocksdb.bytes_a_key, tasks=1)
    return LARGE.advice(
        f"a partition of `{name}` has {rounded_size(largest)}",
        Cost("one task loads it at each start", recovery_ms=recovery_ms),
        f"make a checkpoint with {wanted} partitions, of {rounded_size(size_bytes / wanted)} each",
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
            f"{name_of(spread[0])} has {counted(partitions, 'partition')}, and {cores} cores run tasks",
            Cost(
                f"{part:.0%} of the cores have no part in the work on state",
                batch_ms=None if work_ms is None else work_ms * part,
            ),
            f"make a checkpoint with {cores} partitions",
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
                f"{1 - used:.0%} of the cores' time is idle",
                batch_ms=None if work_ms is None else work_ms * (1 - used),
            ),
            f"make a checkpoint with {wanted} partitions",
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
    commands = [f"holdfast skew {place_word(evidence.checkpoint.uri)} --keys 10"]
    if cores is not None and partitions < cores:
        commands.insert(0, rescale(evidence.checkpoint.uri, cores))
    yield BACKLOG.advice(
        f"in {len(behind)} of {len(rates)} batches more rows came in than were worked off,"
        f" {count(missing)} a second too many",
        Cost(f"{count(missing * 86_400)} rows more wait at the end of each day"),
        "give it more cores, and a partition for each; see whether one key holds it up",
        commands,
    )


def _far(evidence: Evidence) -> Iterator[Advice]:
    loads = [batch.load_ms for batch in evidence.settled if batch.load_ms is not None]
    batch_ms = evidence.batch_ms
    if not loads or not batch_ms:
        return
    # What all tasks take together; so many run side by side.
    load_ms = statistics.median(loads) / evidence.loading_tasks
    if load_ms < _FAR * batch_ms:
        return
    yield FAR.advice(
        f"tasks load state for {rounded_duration(load_ms)} in each batch, of {rounded_duration(batch_ms)}",
        Cost("they run where their store is not", batch_ms=load_ms),
        "let tasks wait for the executor that has their store, and keep the executors",
        [conf("spark.locality.wait", "10s"), "--conf spark.dynamicAllocation.enabled=false"],
    )
