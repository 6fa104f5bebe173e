"""Advice on a checkpoint's files: their location, the number written per batch, and the number kept."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Final

from holdfast.advice.advice import Advice, AdviceKind, Confidence, Cost, Topic, conf, count, trigger
from holdfast.advice.checkpoint_checks import Lasting, retains_few, without_changelog
from holdfast.advice.evidence import DAY_MS, ROCKSDB, Evidence
from holdfast.advice.findings import Severity
from holdfast.advice.prices import medium_of, request_money, storage_money
from holdfast.advice.usage import RENAMING, QueryShape, Requests, daily_requests
from holdfast.checkpoints.checkpoint import Store
from holdfast.config.checks import place_word
from holdfast.config.spark_defaults import (
    ABORTABLE_MANAGER,
    CHANGELOG_KEY,
    FILE_MANAGER_KEY,
    MEMORY_PROVIDER,
    RETAIN_KEY,
    ROCKSDB_PROVIDER,
    STATE_STORE,
)
from holdfast.formats.providers import provider_class
from holdfast.layout import Log
from holdfast.quantities import counted, rounded_duration, rounded_size

_OBJECTS: Final = "s3"
_S3: Final = ("s3a:", "s3:", "s3n:")
# Common trigger intervals.
_INTERVALS_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000)
_MANY_FILES_A_DAY: Final = 100_000
_SMALL_FILE: Final = 64 << 10
_LONG_REPLAY: Final = 20
_DELTAS: Final = 10
_MAINTENANCE_MS: Final = 60_000
_LEAST_MAINTENANCE_MS: Final = 10_000
_KEEP: Final = 10
_HOUR_MS: Final = 3_600_000
_MUCH_KEPT: Final = 1 << 30
_SLOW_LOGS: Final = 0.3
_SLOW_LOGS_MS: Final = 200
_LOG_PHASES: Final = ("walCommit", "commitOffsets", "commitBatch")

NOT_DURABLE: Final = AdviceKind(
    "AD201",
    "not-durable",
    Topic.CHECKPOINT,
    Severity.WARNING,
    Confidence.CERTAIN,
    "A checkpoint on a disk of one machine, in a container, in a temporary directory or in memory,"
    " according to `/proc/mounts`. In a temporary directory or in memory it is an error. On a local disk it"
    " is likely, because the disk may be attached to a different machine later.",
    "The state that would be lost with the location.",
    "Move the checkpoint to storage that outlives the machine: take a savepoint there and restore it.",
)
SMALL_FILES = AdviceKind(
    "AD202",
    "small-files",
    Topic.CHECKPOINT,
    Severity.NOTE,
    Confidence.LIKELY,
    "At least 100,000 state files a day, smaller than 64 KiB on average, at the pace of the newest batches."
    " On object storage a warning.",
    "The files and, on object storage, the requests that the longer interval would save, as `holdfast cost`"
    " counts them; an amount of money if `--prices` has prices for requests.",
    "Use a longer trigger: the shortest common interval that drops below the limit, and at most half of"
    " `--latency`.",
)
NO_CHANGELOG = AdviceKind(
    "AD203",
    "changelog-off",
    Topic.CHECKPOINT,
    Severity.WARNING,
    Confidence.CERTAIN,
    "RocksDB without changelog checkpointing: the state has snapshots and no changelog.",
    "The bytes of snapshots uploaded per day, from the newest batch.",
    "Turn on changelog checkpointing; the existing checkpoint continues with it.",
    "HF308",
)
LONG_REPLAY = AdviceKind(
    "AD204",
    "long-replay",
    Topic.CHECKPOINT,
    Severity.WARNING,
    Confidence.LIKELY,
    "A store whose newest base is more than twenty batches old.",
    "The time to replay those changes at a restart: the bytes of the newest change for each batch since, at"
    " the load speed measured for the backend.",
    "Run maintenance once per ten batches if batches are short; otherwise make a snapshot every ten batches.",
)
KEEPS_MUCH = AdviceKind(
    "AD205",
    "keeps-much",
    Topic.CHECKPOINT,
    Severity.NOTE,
    Confidence.LIKELY,
    "More than twenty kept batches, with at least 1 GiB and three times what the newest batch needs.",
    "The bytes beyond one hour of batches, and at least ten batches, estimated from the first partition of"
    " each operator; their price per month.",
    "Keep one hour of batches, and at least ten.",
)
KEEPS_FEW = AdviceKind(
    "AD206",
    "keeps-few",
    Topic.CHECKPOINT,
    Severity.WARNING,
    Confidence.CERTAIN,
    "Fewer than three kept batches, after ten or more.",
    "There is no fallback from a damaged batch. The cost of keeping ten is given: at least seven times what"
    " a batch adds.",
    "Keep ten batches.",
    "HF307",
)
SLOW_LOGS = AdviceKind(
    "AD207",
    "slow-logs",
    Topic.CHECKPOINT,
    Severity.WARNING,
    Confidence.CERTAIN,
    "For a job: at least 30% of a batch, and at least 200 ms, is spent writing the offset log and the"
    " commit log.",
    "The time spent on the logs, per batch.",
    "Use faster storage for the checkpoint, or a longer trigger: the logs cost the same for a batch of any"
    " size.",
)
RENAMES = AdviceKind(
    "AD208",
    "renames-on-s3",
    Topic.CHECKPOINT,
    Severity.NOTE,
    Confidence.GUESS,
    "A checkpoint on S3 whose job may use Hadoop's default checkpoint file manager. No file records which"
    " one a job uses; with `--conf` the advice is certain.",
    "The rename requests per day, at the pace of the newest batches: each file is written under a temporary"
    " name, copied and deleted. A batch that fails between the two steps leaves either file.",
    "Use the file manager that publishes a file when its upload completes. It is in Spark's package"
    " spark-hadoop-cloud.",
    "HF408",
)
KINDS: Final = (
    NOT_DURABLE, SMALL_FILES, NO_CHANGELOG, LONG_REPLAY, KEEPS_MUCH, KEEPS_FEW, SLOW_LOGS, RENAMES
)  # fmt: skip


def checkpoint_advice(evidence: Evidence) -> Iterator[Advice]:
    """Yield all advice on a checkpoint's files."""
    yield from _not_durable(evidence)
    yield from _slow_logs(evidence)
    yield from _renames(evidence)
    if evidence.checkpoint.external is not None or not evidence.checkpoint.operators:
        return
    yield from _small_files(evidence)
    yield from _no_changelog(evidence)
    yield from _long_replay(evidence)
    yield from _advise_retention(evidence)


def shape_of(evidence: Evidence) -> QueryShape:
    """Return the properties of a checkpoint that decide the number of its requests."""
    checkpoint, facts = evidence.checkpoint, evidence.facts
    rocksdb = provider_class(checkpoint.confs) == ROCKSDB_PROVIDER
    whole = rocksdb and any(without_changelog(facts, operator) for operator in checkpoint.operators)
    return QueryShape(
        stores=evidence.stores,
        incremental=not whole,
        rocksdb=rocksdb,
        checksums=any(operator.format_version == 2 for operator in checkpoint.operators),
        log_sources=sum('"logOffset"' in (source.offset or "") for source in checkpoint.sources),
    )


def requests_a_day(evidence: Evidence, interval_ms: float | None) -> Requests | None:
    """Return the requests per day at an interval, as if the checkpoint were in object storage."""
    return None if not interval_ms else daily_requests(shape_of(evidence), interval_ms).total


def _not_durable(evidence: Evidence) -> Iterator[Advice]:
    place, checkpoint = evidence.place, evidence.checkpoint
    if place.lasting is Lasting.SHARED:
        return
    worst = place.lasting in (Lasting.MEMORY, Lasting.TEMPORARY)
    size = rounded_size(checkpoint.size_bytes)
    yield NOT_DURABLE.advice(
        f"the checkpoint is {place.what}",
        Cost(
            f"losing it loses {size} of state and the offsets of {counted(len(checkpoint.sources), 'source')}"
        ),
        "use storage that outlives the machine; a query can resume there from a savepoint",
        [
            f"holdfast savepoint take {place_word(checkpoint.uri)} s3a://BUCKET/savepoints",
            "holdfast restore s3a://BUCKET/savepoints/savepoints/ID s3a://BUCKET/checkpoint",
        ],
        severity=Severity.ERROR if worst else None,
        sureness=Confidence.LIKELY if place.lasting is Lasting.DISK else None,
    )


def _small_files(evidence: Evidence) -> Iterator[Advice]:
    a_day, gap_ms, stores = evidence.batches_a_day, evidence.gap_ms, evidence.stores
    if a_day is None or gap_ms is None or stores * a_day < _MANY_FILES_A_DAY:
        return
    size = evidence.checkpoint.new_bytes / stores
    latency_ms = evidence.needs.latency_ms
    longest = _INTERVALS_MS[-1] if latency_ms is None else latency_ms // 2
    usual = [each for each in _INTERVALS_MS if gap_ms * 1.5 <= each <= longest]
    if size >= _SMALL_FILE or not usual:
        return
    few = (each for each in usual if stores * DAY_MS / each < _MANY_FILES_A_DAY)
    interval_ms = next(few, usual[-1])
    saved_files = stores * (a_day - DAY_MS / interval_ms)
    requests = money = None
    objects = medium_of(evidence.checkpoint.uri) == _OBJECTS
    if objects:
        now, then = (requests_a_day(evidence, each) for each in (gap_ms, interval_ms))
        if now is not None and then is not None:
            saved = now + then.times(-1)
            requests, money = saved.total, request_money(evidence.prices, saved)
    yield SMALL_FILES.advice(
        f"a batch every {rounded_duration(gap_ms)} writes {counted(stores, 'state file')} of"
        f" {rounded_size(size)} each",
        Cost(
            f"{count(stores * a_day)} state files per day; saved by a longer trigger",
            files_a_day=saved_files,
            requests_a_day=requests,
            money_a_month=money,
        ),
        f"use a trigger of {rounded_duration(interval_ms)}, if results may be that late",
        [trigger(interval_ms)],
        severity=Severity.WARNING if objects else None,
    )


def _no_changelog(evidence: Evidence) -> Iterator[Advice]:
    checkpoint = evidence.checkpoint
    if provider_class(checkpoint.confs) != ROCKSDB_PROVIDER:
        return
    for operator in checkpoint.operators:
        seen = without_changelog(evidence.facts, operator)
        if seen is None:
            continue
        a_day = evidence.batches_a_day
        uploaded = "" if a_day is None else f", {rounded_size(operator.new_bytes * a_day)} a day"
        yield NO_CHANGELOG.advice(
            seen,
            Cost(
                f"each batch uploads {rounded_size(operator.new_bytes)}{uploaded}, however little has changed"
            ),
            "upload only the changes of each batch; the existing checkpoint continues with changelogs",
            [conf(CHANGELOG_KEY, "true")],
        )


def changes_of(store: Store) -> int:
    """Return the number of changes that a restart replays for a store."""
    return sum(not file.kind.whole for file in store.files)


def _long_replay(evidence: Evidence) -> Iterator[Advice]:
    stores = [store for operator in evidence.checkpoint.operators for store in operator.stores]
    longest = max(map(changes_of, stores), default=0)
    if longest <= _LONG_REPLAY:
        return
    replayed = sum(store.new_bytes * changes_of(store) for store in stores)
    rocksdb = evidence.figures.of(ROCKSDB)
    keys = replayed / rocksdb.bytes_a_key
    recovery_ms = rocksdb.recovery(keys, evidence.loading_tasks) - rocksdb.recovery(0)
    quick = evidence.gap_ms is not None and evidence.gap_ms * _DELTAS < _MAINTENANCE_MS
    if quick and provider_class(evidence.checkpoint.confs) != MEMORY_PROVIDER:
        every_ms = max(_LEAST_MAINTENANCE_MS, math.ceil((evidence.gap_ms or 0) * _DELTAS / 1000) * 1000)
        command = conf(f"{STATE_STORE}.maintenanceInterval", f"{every_ms // 1000}s")
        do = "run maintenance, which uploads snapshots, once per ten batches"
    else:
        command = conf(f"{STATE_STORE}.minDeltasForSnapshot", str(_DELTAS))
        do = "make a snapshot every ten batches"
    yield LONG_REPLAY.advice(
        f"a restart replays up to {longest} changes of a store, {rounded_size(replayed)} in all",
        Cost("the first batch waits for the replay", recovery_ms=recovery_ms if recovery_ms >= 1 else None),
        do,
        [command],
    )


def _advise_retention(evidence: Evidence) -> Iterator[Advice]:
    checkpoint, kept = evidence.checkpoint, len(evidence.checkpoint.committed)
    few = retains_few(checkpoint)
    if few is not None:
        more = checkpoint.new_bytes * (_KEEP - kept)
        yield KEEPS_FEW.advice(
            few,
            Cost(
                f"there is no fallback from a damaged batch; {_KEEP} batches would take"
                f" {rounded_size(more)} more"
            ),
            f"keep {_KEEP} batches",
            [conf(RETAIN_KEY, str(_KEEP))],
        )
        return
    hour = _KEEP if not evidence.gap_ms else math.ceil(_HOUR_MS / evidence.gap_ms)
    wanted = max(_KEEP, hour)
    needed = max(round(evidence.kept_bytes * wanted / max(kept, 1)), checkpoint.size_bytes)
    spare = evidence.kept_bytes - needed
    much = evidence.kept_bytes >= max(_MUCH_KEPT, 3 * checkpoint.size_bytes)
    if kept <= 2 * _KEEP or not much or wanted >= kept or spare <= 0:
        return
    yield KEEPS_MUCH.advice(
        f"{kept} batches are kept, {rounded_size(evidence.kept_bytes)}; the newest needs"
        f" {rounded_size(checkpoint.size_bytes)}",
        Cost(
            f"{counted(kept - wanted, 'batch')} more than one hour needs",
            disk_bytes=spare,
            money_a_month=storage_money(evidence.prices, medium_of(checkpoint.uri), spare),
        ),
        f"keep {wanted} batches",
        [conf(RETAIN_KEY, str(wanted))],
    )


def _renames(evidence: Evidence) -> Iterator[Advice]:
    checkpoint, manager = evidence.checkpoint, evidence.needs.confs.get(FILE_MANAGER_KEY)
    if not checkpoint.uri.startswith(_S3) or manager == ABORTABLE_MANAGER:
        return
    files = evidence.stores + len(Log)
    a_day = evidence.batches_a_day
    requests = None if a_day is None else RENAMING.times(files * a_day)
    yield RENAMES.advice(
        f"a batch publishes {counted(files, 'file')} on S3, by renames with the default file manager",
        Cost(
            "on S3 a rename copies and deletes the file, and is not atomic",
            requests_a_day=None if requests is None else requests.total,
            money_a_month=None if requests is None else request_money(evidence.prices, requests),
        ),
        "use the S3 file manager from Spark's package spark-hadoop-cloud",
        [conf(FILE_MANAGER_KEY, ABORTABLE_MANAGER)],
        sureness=None if manager is None else Confidence.CERTAIN,
    )


def _slow_logs(evidence: Evidence) -> Iterator[Advice]:
    batch_ms = evidence.batch_ms
    if not batch_ms:
        return
    spent = statistics.median(
        sum(batch.phases_ms.get(phase, 0) for phase in _LOG_PHASES) for batch in evidence.settled
    )
    if spent < max(_SLOW_LOGS * batch_ms, _SLOW_LOGS_MS):
        return
    yield SLOW_LOGS.advice(
        f"a batch of {rounded_duration(batch_ms)} spends {rounded_duration(spent)} writing its logs",
        Cost("the batch waits for these writes", batch_ms=spent),
        "use faster storage for the checkpoint, or a longer trigger",
        [trigger(next((each for each in _INTERVALS_MS if each >= 2 * batch_ms), _INTERVALS_MS[-1]))],
    )
