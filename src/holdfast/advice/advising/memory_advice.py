"""Advice on memory: what stores may take of it, and state that nothing ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from holdfast.advice.advising.advice import Advice, Cost, Kind, Sureness, Topic, count
from holdfast.advice.advising.commands import conf
from holdfast.advice.advising.evidence import DAY_MS, Evidence
from holdfast.advice.facts.checkpoint_checks import grown, lacks_watermark, least_of_thirds
from holdfast.advice.findings import Severity
from holdfast.checkpoints.values import Operator
from holdfast.config.job.backend import BLOCK_CACHE_KEY, MAX_MEMORY_KEY, WRITE_BUFFER_KEY
from holdfast.config.locations import place_word
from holdfast.config.spark_defaults import BOUNDED_MEMORY_KEY, ROCKSDB, ROCKSDB_PROVIDER
from holdfast.config.units import MIB, counted, rounded_duration
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

UNBOUNDED = Kind(
    "AD401",
    "unbounded-rocksdb",
    Topic.MEMORY,
    Severity.WARNING,
    Sureness.GUESS,
    "RocksDB with so many stores that their caches and write buffers may take 1 GiB or more, where"
    " `boundedMemoryUsage` is not known to be on. No checkpoint has this setting: `--conf` tells it, and"
    " where it says"
    " `false` the advice is certain. Holdfast's own sessions turn it on.",
    "What all stores take at most: each its block cache (8 MiB, or `blockCacheSizeMB`) and its write"
    " buffers (2 of"
    " 64 MiB, or `maxWriteBufferNumber` of `writeBufferSizeMB`).",
    "Bound it before the query starts.",
)
MISSES = Kind(
    "AD402",
    "cache-misses",
    Topic.MEMORY,
    Severity.NOTE,
    Sureness.LIKELY,
    "Of a job: of a thousand reads or more in a batch over a fifth found their block not in memory.",
    "The reads that went to disk, at what a slow read of RocksDB takes over a quick one (5.8 µs), as if"
    " one after the"
    " other.",
    "Double the budget, where the machines have the memory.",
)
STALLS = Kind(
    "AD403",
    "writer-stalls",
    Topic.MEMORY,
    Severity.WARNING,
    Sureness.CERTAIN,
    "Of a job: RocksDB made writers wait for a twentieth of the batch or more, in the median.",
    "That time, for each batch.",
    "Give it more write buffers, or a disk that is quicker.",
)
ENDLESS = Kind(
    "AD404",
    "state-without-end",
    Topic.MEMORY,
    Severity.WARNING,
    Sureness.LIKELY,
    "State that was larger in each third of the batches that are kept, without a watermark that moves; or a"
    " deduplication or a join that has had no watermark for ten batches.",
    "How much it grows in a day, at this pace, and when it reaches the 10 GB at which the alert fires.",
    "Bound it by a watermark or a time to live; see first what one would free.",
    "HF602",
)
KINDS: Final = (UNBOUNDED, MISSES, STALLS, ENDLESS)


def memory_advice(evidence: Evidence) -> Iterator[Advice]:
    """All advice on memory."""
    for operator in evidence.checkpoint.operators:
        yield from _endless(evidence, operator)
    if provider_class(evidence.checkpoint.confs) != ROCKSDB_PROVIDER:
        return
    yield from _unbounded(evidence)
    yield from _misses(evidence)
    yield from _stalls(evidence)


def _endless(evidence: Evidence, operator: Operator) -> Iterator[Advice]:
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
        sureness=Sureness.CERTAIN if lacking is not None else None,
        rule=LACKS_WATERMARK if growth is None else None,
    )


def _growth_a_day(evidence: Evidence, operator: Operator) -> int | None:
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
        sureness=Sureness.CERTAIN if bounded == "false" else None,
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
